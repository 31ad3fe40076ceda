"""Outputs reach their receivers at least once, in order, each epoch by its number, whatever fails on the way."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fault.engines import opened

import clew
from clew.errors import DeliveryFailed, DuplicateName, NetworkError, UnknownStream

Seen = list[tuple[int, list[int]]]


def network() -> clew.Network:
    net = clew.Network("delivered")
    numbers = net.stream("numbers", "t LONG", order="t", key="t")
    numbers.filter("t % 2 = 0").output("even")
    numbers.filter("t % 2 = 1").output("odd")
    return net


def into(seen: Seen) -> Callable[[pa.Table, int], None]:
    return lambda rows, epoch: seen.append((epoch, rows.column("t").to_pylist()))


def feed(engine: clew.Engine, *numbers: int) -> None:
    engine.feed("numbers", [{"t": t} for t in numbers])


def test_each_epochs_new_rows_come_once_also_those_of_before(tmp_path: Path) -> None:
    seen: Seen = []
    with opened(tmp_path / "s", network()) as engine:
        feed(engine, 0, 1, 2)
        engine.deliver("even", into(seen), form="arrow")
        feed(engine, 3)
        feed(engine, 4, 6)
    assert seen == [(1, [0, 2]), (3, [4, 6])]


def test_a_restart_goes_on_where_the_receiver_was(tmp_path: Path) -> None:
    seen: Seen = []
    for numbers in ((0, 2), (4,)):
        with opened(tmp_path / "s", network()) as engine:
            feed(engine, *numbers)
            engine.deliver("even", into(seen), form="arrow")
    assert seen == [(1, [0, 2]), (2, [4])]


def test_a_receiver_that_fails_gets_the_same_rows_again_and_holds_no_other_up(tmp_path: Path) -> None:
    seen, other = Seen(), Seen()
    broken = True

    def take(rows: pa.Table, epoch: int) -> None:
        if broken:
            raise RuntimeError("no room")
        into(seen)(rows, epoch)

    with opened(tmp_path / "s", network()) as engine:
        engine.deliver("even", take, form="arrow")
        engine.deliver("odd", into(other), form="arrow")
        with pytest.raises(DeliveryFailed, match="delivery 'even' of output 'even' failed at epoch 1") as caught:
            feed(engine, 0, 1)
        assert caught.value.details[0] == "cause: RuntimeError: no room"
        broken = False
        feed(engine, 2, 3)
    assert seen == [(1, [0]), (2, [2])]
    assert other == [(1, [1]), (2, [3])]


def test_two_receivers_of_one_output_are_served_each_by_its_name(tmp_path: Path) -> None:
    one, two = Seen(), Seen()
    with opened(tmp_path / "s", network()) as engine:
        engine.deliver("even", into(one), name="one", form="arrow")
        feed(engine, 0)
        engine.deliver("even", into(two), name="two", form="arrow")
        feed(engine, 2)
    assert one == two == [(1, [0]), (2, [2])]


@pytest.mark.parametrize("restart", [False, True])
def test_one_name_is_of_one_output(tmp_path: Path, restart: bool) -> None:
    engine = opened(tmp_path / "s", network())
    engine.deliver("even", into([]), name="sink", form="arrow")
    feed(engine, 0, 1)
    if restart:
        engine.close()
        engine = opened(tmp_path / "s", network())
    with engine, pytest.raises(DuplicateName, match="delivery 'sink' is of output 'even', and cannot be of 'odd' too"):
        engine.deliver("odd", into([]), name="sink", form="arrow")


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / "s", network()) as engine:
        engine.deliver("even", into([]), form="arrow")
        feed(engine, 0)
        mark = tmp_path / "s" / "_deliveries" / "even.json"
        mark.write_text("{")
        with pytest.raises(DeliveryFailed) as caught:
            feed(engine, 2)
        assert str(caught.value) == (
            "delivery 'even' of output 'even' failed at epoch 2\n"
            "  cause: StoreError: the store has a damaged file\n"
            f"  file: {mark}\n"
            "  cause: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"
            "  all epochs up to 2 are committed: do not feed them again\n"
            "  hint: delete it: then all epochs of 'even' are delivered to 'even' again"
        )
        mark.unlink()
        seen: Seen = []
        engine.deliver("even", into(seen), form="arrow")
    assert seen == [(1, [0]), (2, [2])]


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "at", ["clew.engine.delivery.write_over", "pathlib.Path.mkdir", "clew.engine.delivery.pc.equal"]
)
def test_what_fails_around_a_receiver_leaves_the_epoch_and_the_other_receivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    seen, other = Seen(), Seen()
    with opened(tmp_path / "s", network()) as engine:
        engine.deliver("even", into(seen), form="arrow")
        engine.deliver("odd", into(other), form="arrow")
        real, calls = engine._deliveries._serve, []

        def first_fails(receiver: Any) -> None:
            with monkeypatch.context() as patch:
                if not calls:
                    patch.setattr(at, no_space)
                calls.append(receiver.name)
                real(receiver)

        monkeypatch.setattr(engine._deliveries, "_serve", first_fails)
        with pytest.raises(DeliveryFailed) as caught:
            feed(engine, 0, 1)
        assert str(caught.value) == (
            "delivery 'even' of output 'even' failed at epoch 1\n"
            "  cause: OSError: [Errno 28] No space left on device\n"
            "  all epochs up to 1 are committed: do not feed them again\n"
            "  hint: its rows from this epoch on are delivered again with the next epoch, or at the next open"
        )
        assert (engine.last_epoch, other) == (1, [(1, [1])])
        feed(engine, 2)
    assert seen[-2:] == [(1, [0]), (2, [2])]


def test_a_frame_that_spark_cannot_make_fails_its_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "s", network()) as engine:
        engine.deliver("even", into([]))
        monkeypatch.setattr(engine._deliveries, "_session", no_space)
        with pytest.raises(DeliveryFailed, match="delivery 'even' of output 'even' failed at epoch 1"):
            feed(engine, 0)
        assert engine.last_epoch == 1


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"output": "evn"}, UnknownStream, "has no output 'evn'"),
        ({"to": 3}, NetworkError, "a delivery goes to a function of"),
        ({"form": "pandas"}, NetworkError, "no form 'pandas' of a delivery"),
        ({"name": "n" * 300}, NetworkError, "is too long a name"),
    ],
)
def test_what_cannot_be_delivered_is_refused(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with opened(tmp_path / "s", network()) as engine, pytest.raises(error, match=text):
        engine.deliver(**{"output": "even", "to": into([]), **given})
