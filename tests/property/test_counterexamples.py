"""Networks on which a law once did not hold, shrunk; each says what was wrong."""

from __future__ import annotations

import math
from pathlib import Path

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
