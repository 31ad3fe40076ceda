"""Networks on which a law once did not hold, shrunk; each says what was wrong."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import pyarrow as pa

import clew
from clew.testing import FINISH, check_reference

SCHEMA = "ts LONG, id INT, g STRING, x DOUBLE, n INT"


def row(ts: int, id: int = 0, x: float | None = None, g: str | None = None, n: int | None = None) -> dict[str, object]:
    return {"ts": ts, "id": id, "g": g, "x": x, "n": n}


def test_an_infinite_value_does_not_flush_a_sort(tmp_path: Path) -> None:
    """Progress of a DOUBLE column at inf was taken for the end of the stream."""
    net = clew.Network("net")
    net.stream("s", SCHEMA, order="ts", key=["ts", "id"]).sort("x", slack=2).output("o")
    batches = [{"s": [row(1, x=2.0), row(2, x=math.inf), row(3, x=1.0)]}, {"s": [row(4, x=0.0), row(5, x=3.0)]}, FINISH]
    check_reference(net, batches, tmp_path / "store")


def test_a_join_moves_the_right_order_on_under_the_name_that_the_output_has_for_it(tmp_path: Path) -> None:
    """Its progress was taken from the rows emitted once the column got a suffix, so that rows came late."""
    net = clew.Network("net")
    left, right = (net.stream(name, SCHEMA, order="ts", key=["ts", "id"]) for name in "lr")
    pairs = left.join(right, within=(0, 10))
    fives = pairs.window(span=5, on="ts_right").agg(n="count(*)").output("o")
    rows = [row(ts) for ts in range(12)]
    check_reference(net, [{"r": rows}, {"l": rows}, FINISH], tmp_path / "store")
    with clew.open(tmp_path / "store", net) as engine:
        assert engine.late(fives.name).count() == 0


def test_a_left_column_named_as_the_rights_order_is_no_order(tmp_path: Path) -> None:
    """It was given the join's progress, which has nothing to do with it."""
    net = clew.Network("net")
    left = net.stream("l", "t LONG, u LONG", order="t", key="t")
    right = net.stream("r", "u LONG", order="u", key="u")
    left.join(right, within=0, on=("t", "u")).window(span=5, on="u").agg(n="count(*)").output("o")
    batch = {"l": [{"t": i, "u": i - 20} for i in range(30)], "r": [{"u": i} for i in range(30)]}
    check_reference(net, [batch, FINISH], tmp_path / "store")
    with clew.open(tmp_path / "store", net) as engine:
        assert [r.n for r in engine.read("o").collect()] == [5] * 6


def test_progress_stays_where_it_was_while_an_expression_of_it_fails(tmp_path: Path) -> None:
    """It went back to the beginning at an epoch's cut, so that later epochs closed no windows."""
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t", max_ahead=10**9)
    q = net.stream("q", "t INT", order="t", key="t", max_ahead=10**9)
    both = s.map(k="cast(t AS tinyint)").union(q.map(k="cast(t AS tinyint)"))
    both.window(span=10, on="k").agg(first="min(k)", n="count(*)").output("o")
    batches = [{"s": [{"t": 1}, {"t": 100}, {"t": 200}]}, {"q": [{"t": 2}, {"t": 50}, {"t": 100}]}]
    check_reference(net, batches, tmp_path / "store")
    with clew.open(tmp_path / "store", net) as engine:
        assert [r.n for r in engine.read("o").collect()] == [2, 1]


def test_an_infinite_value_fills_no_landmark_with_windows(tmp_path: Path) -> None:
    """It moved progress behind all windows there can be, which made its epoch fail."""
    net = clew.Network("net")
    s = net.stream("s", SCHEMA, order="ts", key=["ts", "id"])
    s.window(landmark=0, slide=1, on="x").agg(n="count(*)").output("o")
    batches = [{"s": [row(1, x=1.0)]}, {"s": [row(2, x=2.0), row(3, x=math.inf)]}, {"s": [row(4, x=3.5)]}, FINISH]
    check_reference(net, batches, tmp_path / "store")
    with clew.open(tmp_path / "store", net) as engine:
        assert [r.n for r in engine.read("o").collect()] == [1, 2, 3]


class Counter:
    """Counts rows from 100 for the first that asks, from 200 for the second, and so on: alike boxes, unlike states."""

    asked = 0

    def __call__(self, state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        if state is None:
            Counter.asked += 100
        before = Counter.asked if state is None else state.column("n")[0].as_py()
        out = pa.table({"t": rows["t"], "n": [before + i + 1 for i in range(len(rows))], "_row": range(len(rows))})
        return pa.table({"n": [before + len(rows)]}), out


def test_boxes_that_mean_the_same_hold_states_of_their_own(tmp_path: Path) -> None:
    """Checkpoints held one state for both, and a restart gave it to either."""

    def network() -> clew.Network:
        net = clew.Network("net")
        s = net.stream("s", "t LONG", order="t", key="t")
        for name in ("ones", "tens"):
            s.apply(Counter(), "t LONG, n LONG", how="stateful", name=name, version="1").output(name)
        return net

    def last(engine: clew.Engine) -> list[int]:
        return [engine._store.read_table(name)["n"].to_pylist()[-1] for name in ("ones", "tens")]

    with clew.open(tmp_path / "s", network(), durable=False) as engine:
        for t in range(64):  # a checkpoint is due
            engine.feed("s", [{"t": t}])
        before = last(engine)
    assert before == [164, 264]
    with clew.open(tmp_path / "s", network(), durable=False) as engine:
        engine.feed("s", [{"t": 64}])
        assert last(engine) == [165, 265]


def test_a_landmark_without_a_zone_is_of_the_stores(tmp_path: Path) -> None:
    """It was taken in UTC, unlike every other time without a zone."""
    net = clew.Network("net")
    s = net.stream("s", "t TIMESTAMP", order="t", key="t")
    s.window(landmark=dt.datetime(2024, 1, 1, 12), slide="1 hour").agg(n="count(*)").output("o")
    with clew.open(tmp_path / "s", net, time_zone="America/New_York", durable=False) as engine:
        engine.feed("s", [{"t": "2024-01-01 07:30:00"}, {"t": "2024-01-01 12:30:00"}])
        engine.finish()
        assert engine._store.read_table("o")["n"].to_pylist() == [1]


def test_columns_in_aggregates_are_found_in_any_case(tmp_path: Path) -> None:
    """A column that stood alone in a call was not."""
    net = clew.Network("net")
    s = net.stream("s", "t LONG, X LONG", order="t", key="t")
    s.window(rows=2, slide=1).agg(t="MAX(T)", x="max(x)", y="max(x + 0)").output("o")
    s.resample(s, within=1, on="t").agg(near="sum(x)").output("r")
    with clew.open(tmp_path / "s", net, durable=False) as engine:
        engine.feed("s", [{"t": 1, "X": 5}, {"t": 2, "X": 4}, {"t": 4, "X": 1}])
        assert engine._store.read_table("o").select(["t", "x", "y"]).to_pylist()[0] == {"t": 2, "x": 5, "y": 5}
        assert engine._store.read_table("r")["near"].to_pylist() == [9, 9]


def test_a_value_too_far_from_zero_for_a_windows_slide_is_late_for_the_reference_too(tmp_path: Path) -> None:
    """The reference put it into a window, as it had no bound where the engine has one."""
    net = clew.Network("net")
    s = net.stream("s", SCHEMA, order="ts", key=["ts", "id"])
    for name, options in {"clock": {"span": 1}, "latch": {"latch": 1}}.items():
        s.window(**options, on="x", by="ts").agg(n="count(*)").output(name)
    check_reference(net, [{"s": [row(1, x=5e15), row(2, x=2.5), row(3, x=-5e15)]}, FINISH], tmp_path / "store")
