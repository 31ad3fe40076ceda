"""What an engine promises its caller: what may be repeated, threads, receivers that feed, and time zones."""

from __future__ import annotations

import datetime as dt
import gc
import json
import re
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import clew
from clew.archive.layout import MANIFEST
from clew.engine.zones import normal_zone
from clew.errors import (
    BatchError,
    BoxFailed,
    DeliveryFailed,
    Finished,
    NetworkError,
    StoreSettings,
    UnknownEpoch,
    UnknownStream,
)
from clew.session import Engine


def network() -> clew.Network:
    net = clew.Network("small")
    net.stream("s", "t LONG, g STRING", order="t", key=["t", "g"]).filter("t >= 0").output("o")
    return net


def opened(folder: Path, net: clew.Network | None = None, **options: Any) -> Engine:
    return clew.open(folder / "store", net or network(), durable=False, lane="driver", **options)


def at(engine: Engine, name: str = "o", column: str = "t") -> list[Any]:
    return list(engine._store.read_table(name).column(column).to_pylist())


# --- what may be repeated ---


@pytest.mark.parametrize("id", [5, 5.0, b"a", ("a", 1), True])
def test_an_id_that_is_no_text_is_refused(tmp_path: Path, id: Any) -> None:
    with opened(tmp_path) as engine:
        with pytest.raises(BatchError) as refused:
            engine.feed("s", [{"t": 1}], id=id)
        assert str(refused.value) == f"an id is text, not {id!r}\n  hint: id={str(id)!r}"
        assert engine.last_epoch == 0


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda e: e.feed(None, []), UnknownStream, "network 'small' has no source stream None\n  sources: s"),
        (lambda e: e.feed(5, []), UnknownStream, "network 'small' has no source stream 5\n  sources: s"),
        (
            lambda e: e.feed_all([]),
            BatchError,
            "feed_all needs a dict by stream, not []\n  hint: feed_all({'stream': ...})",
        ),
        (lambda e: e.run(None), BatchError, "run needs a dict by stream, not None\n  hint: run({'stream': ...})"),
        (lambda e: e.read("o", as_of="1"), UnknownEpoch, "an epoch is a whole number, not '1'"),
        (
            lambda e: e.progress("1"),
            UnknownEpoch,
            "progress of '1' epochs was asked for\n  hint: 1 or more; 200 are kept",
        ),
    ],
)
def test_a_call_with_something_else_is_refused(tmp_path: Path, call: Any, kind: Any, text: str) -> None:
    with opened(tmp_path) as engine:
        with pytest.raises(kind) as refused:
            call(engine)
        assert str(refused.value) == text


def test_a_store_is_not_opened_with_something_else(tmp_path: Path) -> None:
    with pytest.raises(StoreSettings, match=r"^no time zone None\n"):
        opened(tmp_path, time_zone=None)
    with pytest.raises(NetworkError) as refused:
        opened(tmp_path, spark=5)
    assert str(refused.value).splitlines()[:2] == [
        "clew.open was given spark=5",
        "  hint: a Spark session, or leave it out: one is started",
    ]
    assert not any(tmp_path.iterdir())


def test_too_many_windows_at_once_are_told_with_their_box(tmp_path: Path) -> None:
    net = clew.Network("n")
    s = net.stream("s", "t TIMESTAMP", order="t", key="t")
    s.window(landmark="2020-01-01", slide="1 second", name="since").agg(n="count(*)").output("o")
    with opened(tmp_path, net) as engine:
        engine.feed("s", [{"t": "2020-01-01 00:00:00"}])
        with pytest.raises(BoxFailed) as failed:
            engine.feed("s", [{"t": "2024-01-01 00:00:00"}])
    assert str(failed.value).splitlines()[:2] == [
        "box 'n.since' (window) would emit 126,230,400 windows in one call: progress of 't' comes "
        "from 2020-01-01 00:00:00+00:00 to 2024-01-01 00:00:00+00:00",
        "  hint: a larger slide makes fewer; is one value far ahead, or a gap in the data?",
    ]


def test_a_script_that_fed_all_and_finished_can_be_run_again(tmp_path: Path) -> None:
    for again in (False, True):
        with opened(tmp_path) as engine:
            fed = engine.feed("s", [{"t": 1, "g": "a"}], id="first")
            done = engine.finish()
            assert [(e.number, e.repeated) for e in (fed, done)] == [(1, again), (2, again)]
            assert (engine.finish().repeated, engine.last_epoch) == (True, 2)
            with pytest.raises(Finished, match=r"the sources have ended: finish\(\) was called"):
                engine.feed("s", [{"t": 2, "g": "a"}], id="second")
            with pytest.raises(Finished):
                engine.advance("s", 5)


def test_a_forgotten_engine_lets_its_store_go(tmp_path: Path) -> None:
    def forget() -> None:
        opened(tmp_path).feed("s", [{"t": 1, "g": "a"}])
        gc.collect()

    with pytest.warns(ResourceWarning) as warned:
        forget()
    assert f"store '{tmp_path / 'store'}' was not closed" in [str(w.message) for w in warned]
    with opened(tmp_path) as again:
        assert again.last_epoch == 1


# --- threads and receivers ---


def test_threads_may_feed_one_engine(tmp_path: Path) -> None:
    """They made the same epoch, and the engine took no more."""
    failed: list[BaseException] = []
    seen: list[int] = []

    def receive(_: Any, epoch: int) -> None:
        seen.append(epoch)

    def feed(g: str) -> None:
        try:
            for i in range(10):
                engine.feed("s", [{"t": 7, "g": f"{g}{i}"}], id=f"{g}{i}")
                engine.feed("s", [{"t": 7, "g": f"all{i}"}], id=f"all{i}")
        except BaseException as error:
            failed.append(error)

    with opened(tmp_path) as engine:
        engine.deliver("o", receive, form="arrow")
        threads = [threading.Thread(target=feed, args=(g,)) for g in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert (engine.last_epoch, len(at(engine)), seen) == (50, 50, list(range(1, 51)))


def test_a_receiver_may_feed_and_is_handed_what_came_of_it_afterwards(tmp_path: Path) -> None:
    """It was handed the same rows again and again."""
    told: list[tuple[str, int, list[int]]] = []

    def receive(rows: pa.Table, epoch: int) -> None:
        told.append(("begins", epoch, rows.column("t").to_pylist()))
        if epoch < 3:
            engine.feed("s", [{"t": epoch * 10, "g": "a"}])
        told.append(("ends", epoch, []))

    with opened(tmp_path) as engine:
        engine.deliver("o", receive, form="arrow")
        engine.feed("s", [{"t": 1, "g": "a"}])
        assert told == [
            ("begins", 1, [1]), ("ends", 1, []),
            ("begins", 2, [10]), ("ends", 2, []),
            ("begins", 3, [20]), ("ends", 3, []),
        ]  # fmt: skip


def test_a_receiver_cannot_start_a_run(tmp_path: Path) -> None:
    """It would wait for itself."""

    def receive(*_: Any) -> None:
        engine.run({"s": tmp_path}, available_now=True)

    with opened(tmp_path) as engine:
        engine.deliver("o", receive, form="arrow")
        with pytest.raises(DeliveryFailed, match="BatchError: a receiver cannot start a run") as failed:
            engine.feed("s", [{"t": 1, "g": "a"}])
        assert str(failed.value.__cause__) == (
            "a receiver cannot start a run\n  hint: it may feed(...); a run waits until it has returned"
        )


# --- time zones ---


def times() -> clew.Network:
    net = clew.Network("times")
    net.stream("s", "t TIMESTAMP, n TIMESTAMP_NTZ", order="t", key="t").output("o")
    return net


ZONES = {"UTC": 0, "utc": 0, "Z": 0, "Etc/UTC": 0, "+00:00": 0, "+02:00": 2, "-03:30": -3.5, "Asia/Tokyo": 9}


@pytest.mark.parametrize(("zone", "hours"), ZONES.items())
def test_times_without_a_zone_are_taken_in_the_store_s_whatever_its_spelling(
    tmp_path: Path, zone: str, hours: float
) -> None:
    naive = [dt.datetime(2024, 6, 1, h) for h in range(3)]
    with opened(tmp_path, times(), time_zone=zone) as engine:
        engine.feed("s", [{"t": naive[0], "n": naive[0]}])
        engine.feed("s", pa.table({"t": [naive[1]], "n": [naive[1]]}))
        engine.feed("s", pd.DataFrame({"t": [naive[2]], "n": [naive[2]]}))
        expected = [(n - dt.timedelta(hours=hours)).replace(tzinfo=dt.UTC) for n in naive]
        assert at(engine, column="t") == expected
        assert at(engine, column="n") == naive


def test_a_table_s_times_with_a_zone_are_those_of_the_store_s_zone_where_the_stream_has_none(tmp_path: Path) -> None:
    when = dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC)
    with opened(tmp_path, times(), time_zone="+02:00") as engine:
        engine.feed("s", pa.table({"t": [when], "n": [when]}))
        assert at(engine, column="n") == [dt.datetime(2024, 6, 1, 14)]


@pytest.mark.parametrize("zone", ["+99:99", "+18:01", "+01:60", "Mars/Olympus", "", "2"])
def test_a_zone_that_does_not_exist_is_refused(tmp_path: Path, zone: str) -> None:
    with pytest.raises(StoreSettings) as refused:
        opened(tmp_path, time_zone=zone)
    assert str(refused.value) == f"no time zone '{zone}'\n  hint: a name like 'Europe/Paris', or '+02:00'"


def test_a_zone_has_one_spelling() -> None:
    assert [normal_zone(z) for z in ("z", "GMT", "-00:00", "-18:00")] == ["UTC", "UTC", "UTC", "-18:00"]


@pytest.mark.parametrize("zone", ["UTC", "Z", "utc"])
def test_a_store_that_spells_its_zone_otherwise_opens_under_any_spelling(tmp_path: Path, zone: str) -> None:
    opened(tmp_path, times()).close()
    manifest = tmp_path / "store" / MANIFEST
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"settings": facts["settings"] | {"time_zone": "Z"}}))
    with opened(tmp_path, times(), time_zone=zone) as engine:
        engine.feed("s", pa.table({"t": [dt.datetime(2024, 6, 1)], "n": [dt.datetime(2024, 6, 1)]}))
        assert at(engine) == [dt.datetime(2024, 6, 1, tzinfo=dt.UTC)]
    with pytest.raises(StoreSettings, match=re.escape("time_zone: 'Z' in the store, '+02:00' asked for")):
        opened(tmp_path, times(), time_zone="+02:00")
