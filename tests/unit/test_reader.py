"""A reader: what it can tell of networks that go on from the store's, and of rows that nothing can make again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clew
from clew.errors import CodeMissing, NetworkChanged, StoreError, UnknownStream
from clew.explain.reader import Reader
from clew.network.rebuild import missing_functions

ROWS = [{"t": t, "x": t % 4} for t in range(8)]


def no_spark(*_: Any) -> Any:
    raise AssertionError("Spark was asked for")


def same(rows: pa.Table) -> pa.Table:
    return rows.select(["t", "x"])


def opaque() -> clew.Network:
    """A box whose rows are not stored and cannot be made again, with filters behind it."""
    net = clew.Network("opaque")
    made = net.stream("s", "t LONG, x INT", order="t", key="t").apply(same, "t LONG, x INT", name="made")
    made.filter("x > 2", name="high").output("high")
    made.filter("x > 1", name="middle").map("t", "x", name="cut").output("cut")
    return net


def plain(*more: str) -> clew.Network:
    net = clew.Network("plain")
    counted = net.stream("s", "t LONG, x INT", order="t", key="t").window(rows=2, slide=1).agg(x="sum(x)", t="max(t)")
    counted.filter("x > 2", name="high").output("high")
    for name in more:
        counted.filter("x > 4", name=name).output(name)
    return net


def fed(root: Path, net: clew.Network, *, finish: bool = False) -> Path:
    with clew.open(root, net, durable=False, lane="driver") as engine:
        engine.feed("s", ROWS)
        if finish:
            engine.finish()
    return root


def test_only_tuples_that_are_there_are_told_to_depend_on_a_tuple(tmp_path: Path) -> None:
    with Reader(fed(tmp_path / "s", opaque()), opaque(), session=no_spark) as reader:
        assert reader.impact("s", [1, 8]).tids == {
            "s:1": {"high": ["high:1", "high:2"], "cut": ["cut:1", "cut:2", "cut:3", "cut:4"]},
            "s:8": {"high": ["high:2"], "cut": ["cut:4"]},
        }
        assert reader.impact("s", [1, 8]).verify()


def test_what_boxes_hold_is_not_known_without_the_functions_that_were_replayed(tmp_path: Path) -> None:
    with Reader(fed(tmp_path / "s", opaque()), session=no_spark) as reader:
        assert [f.__qualname__ for f in missing_functions(reader.network)] == ["same"]
        with pytest.raises(CodeMissing, match="function 'same' would have to run"):
            reader.impact("s", 1)
        assert reader.missed == ["same"]


def test_of_a_store_whose_sources_have_ended_nothing_is_replayed(tmp_path: Path) -> None:
    with Reader(fed(tmp_path / "s", opaque(), finish=True), session=no_spark) as reader:
        found = reader.impact("s", 8)
        assert found.tids == {"s:8": {"high": ["high:2"], "cut": ["cut:4"]}}
        assert found.open == {}
        assert reader.missed == []


def test_outputs_that_the_store_does_not_have_yet_are_boxes_like_others(tmp_path: Path) -> None:
    root = fed(tmp_path / "s", plain())
    with Reader(root, plain("higher"), session=no_spark) as reader:
        assert reader.impact("s", 8).tids == {"s:8": {"high": ["high:5"]}}
        assert len(reader.impact("s", 8, on="higher").tids["s:8"]["higher"]) == 1
        with pytest.raises(UnknownStream, match="stores no stream 'higher'"):
            reader.why("higher", 1)


def test_a_network_that_is_not_the_stores_is_refused(tmp_path: Path) -> None:
    other = clew.Network("other")
    other.stream("s", "t LONG, x INT", order="t", key="t").filter("x > 1").output("high")
    with pytest.raises(NetworkChanged):
        Reader(fed(tmp_path / "s", plain()), other, session=no_spark)


def test_a_store_without_an_epoch_has_nothing_to_read(tmp_path: Path) -> None:
    clew.open(tmp_path / "s", plain(), durable=False).close()
    for network in (None, plain()):
        with pytest.raises(StoreError, match="has no epoch yet"):
            Reader(tmp_path / "s", network, session=no_spark)


def test_a_reader_stands_at_the_epoch_at_which_it_was_opened(tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", plain(), durable=False, lane="driver") as engine:
        engine.feed("s", ROWS)
        with Reader(tmp_path / "s", session=no_spark) as reader:
            before = reader.impact("s", 8).to_json()
            engine.feed("s", [{"t": t, "x": 9} for t in range(8, 12)])
            assert (reader.last_epoch, engine.last_epoch) == (1, 2)
            assert reader.impact("s", 8).to_json() == before
            assert before["open"] != {}
            assert reader.network.name == engine.network.name


def test_two_streams_of_one_box_each_have_their_own_tids(tmp_path: Path) -> None:
    net = plain()
    s = net.stream("r", "t LONG, x INT", order="t", key="t").filter("x > 2", name="twice")
    s.output("one").output("two")
    with clew.open(tmp_path / "s", net, durable=False, lane="driver") as engine:
        engine.feed("r", ROWS)
        assert engine.impact("r", 4, on=["one", "two"]).tids == {"r:4": {"one": ["one:1"], "two": ["two:1"]}}
        assert engine.why("two", 1, of="one").tids == {"two:1": {"one": ["one:1"]}}
