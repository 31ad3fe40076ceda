"""What can be explained no more, or was never noted, is refused and never told in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import LineageError, TooOld, Untraced
from clew.session import Engine


def aging(place: Path, mode: str) -> Engine:
    """The first 18 tuples of `a` are gone, all of `b` are there."""
    net = clew.Network("net")
    a = net.stream("a", "t LONG", order="t", key="t", retention=10)
    b = net.stream("b", "t LONG", order="t", key="t")
    a.filter("t >= 0").output("same")
    a.window(rows=4, name="fours").agg(n="count(*)").output("w")
    a.resample(b, within=3, name="near").agg(n="count(*)").output("r")
    a.union(b).output("u")
    a.join(b, within=0).output("j")
    engine = clew.open(place / "s", net, durable=False, lane="driver", lineage=mode)
    for first in range(0, 30, 3):
        rows = [{"t": t} for t in range(first, first + 3)]
        engine.feed_all({"a": rows, "b": rows})
    return engine


@pytest.mark.parametrize("mode", ["exact", "interval"])
@pytest.mark.parametrize("stream", ["same", "w", "r", "u", "j"])
def test_what_is_made_of_tuples_that_aged_out_is_refused(tmp_path: Path, mode: str, stream: str) -> None:
    with aging(tmp_path, mode) as engine:
        for asked in (None, 1):
            with pytest.raises(TooOld, match="that it is made of are gone") as caught:
                _ = engine.why(stream, asked).tids
            assert "tuples of stream 'a' between a:1 and a:18 are gone since epoch 10" in str(caught.value)
            with pytest.raises(TooOld):
                str(engine.why(stream, 1))
        last = engine._store.state.streams[stream].seq
        assert engine.why(stream, last).verify()
        assert engine.why(stream, last).tids


def test_what_tells_of_tuples_that_are_there_says_that_a_trigger_is_not(tmp_path: Path) -> None:
    with aging(tmp_path, "exact") as engine:
        seq = next(i for i, row in enumerate(engine._store.read_table("j").to_pylist(), 1) if row["t"] == 3)
        assert engine.why("j", seq, of="b").tids == {f"j:{seq}": {"b": ["b:4"]}}
        assert "completed by b:4" in str(engine.why("j", seq, of="b"))
        assert "completed by a tuple that has aged out" in str(engine.why("same", 3, of="b"))


def test_impact_of_what_is_there_needs_nothing_that_is_gone(tmp_path: Path) -> None:
    with aging(tmp_path, "exact") as engine:
        tids = engine.impact("a", 25).tids["a:25"]
        assert (tids["same"], tids["w"]) == (["same:25"], ["w:7"])
        assert tids["r"] == [f"r:{seq}" for seq in range(22, 27)]
        with pytest.raises(TooOld, match="a:1 is gone since epoch 10"):
            engine.impact("a", 1)


def runs(place: Path, *modes: Any) -> Engine:
    """One engine after the other, each with a mode of its own and four tuples; the last one is still open."""
    for number, mode in enumerate(modes):
        net = clew.Network("net")
        s = net.stream("s", "t LONG", order="t", key="t")
        twos = s.window(rows=2, name="twos").agg(t="max(t)", n="count(*)")
        twos.window(rows=2, name="fours").agg(n="sum(n)").output("o")
        s.filter("t >= 0").output("same")
        engine = clew.open(place / "s", net, durable=False, lane="driver", lineage=mode)
        engine.feed("s", [{"t": t} for t in range(4 * number + 1, 4 * number + 5)])
        if number < len(modes) - 1:
            engine.close()
    return engine


@pytest.mark.parametrize("mode", ["exact", "interval"])
def test_what_was_not_noted_is_refused_and_what_was_is_told(tmp_path: Path, mode: str) -> None:
    with runs(tmp_path, mode, "off", mode) as engine:
        told = [["s:1", "s:2", "s:3", "s:4"], None, ["s:9", "s:10", "s:11", "s:12"]]
        for seq, expected in enumerate(told, 1):
            if expected is not None:
                assert engine.why("o", seq).tids == {f"o:{seq}": {"s": expected}}
                assert engine.why("o", seq).verify()
                continue
            with pytest.raises(Untraced) as caught:
                _ = engine.why("o", seq).tids
            for part in ("box 'fours'", "stamp 8", "from stamp 5 to 8", "from epoch 2 on: off", "lineage='exact'"):
                assert part in str(caught.value)
        with pytest.raises(Untraced):
            _ = engine.why("o").tids
        assert engine.why("same", 6).tids == {"same:6": {"s": ["s:6"]}}


def test_impact_behind_what_was_not_noted_is_refused(tmp_path: Path) -> None:
    """It would be told that nothing depends on a tuple that became part of rows."""
    with runs(tmp_path, "exact", "off", "exact") as engine:
        with pytest.raises(Untraced, match="box 'twos'"):
            engine.impact("s", 5)
        assert engine.impact("s", 5, on="same").tids == {"s:5": {"same": ["same:5"]}}
        assert engine.impact("s", 9).tids == {"s:9": {"o": ["o:3"], "same": ["same:9"]}}


def test_a_window_over_rows_that_were_not_noted_is_refused_where_it_needs_them(tmp_path: Path) -> None:
    with runs(tmp_path, {"*": "exact", "twos": "off"}) as engine:
        with pytest.raises(Untraced, match="box 'twos'"):
            _ = engine.why("o", 1).tids
        assert engine.why("o", 1, of="twos").tids == {"o:1": {"twos": ["twos@2.0", "twos@4.0"]}}


@pytest.mark.parametrize("modes", ["nope", 1, None, {"*": "nope"}, {"nope": "exact"}, {1: "exact"}, ["exact"],
                                   {"s": "exact"}])  # fmt: skip
def test_modes_that_are_none_are_refused(tmp_path: Path, modes: Any) -> None:
    with pytest.raises(LineageError):
        runs(tmp_path, modes)
    assert not (tmp_path / "s").exists()
