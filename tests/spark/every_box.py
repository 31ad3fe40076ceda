"""Networks with a box of every kind, and data for them: what both lanes, and broken tasks, are tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import clew
from clew.network.stream import Stream
from clew.testing import FINISH, Advance
from clew.testing.laws import Action

Row = dict[str, Any]


def doubled(rows: pa.Table) -> pa.Table:
    twice = [None if v is None else 2 * v for v in rows["x"].to_pylist()]
    return rows.append_column("twice", pa.array(twice, pa.float64()))


def numbered(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Every row with its number so far."""
    seen = 0 if state is None else state["seen"][0].as_py()
    count = len(rows)
    out = pa.table(
        {
            "ts": rows["ts"],
            "number": pa.array(range(seen + 1, seen + count + 1), pa.int64()),
            "_row": pa.array(range(count), pa.int64()),
            "_from": pa.array(range(count), pa.int64()),
        }
    )
    return pa.table({"seen": pa.array([seen + count], pa.int64())}), out


def spread(rows: pa.Table) -> float | None:
    values = [v for v in rows["x"].to_pylist() if v is not None and not math.isnan(v)]
    return max(values) - min(values) if values else None


def touchy(rows: pa.Table) -> int:
    """Fails on windows that hold the id 13."""
    if 13 in rows["id"].to_pylist():
        raise ValueError("an unlucky row")
    return len(rows)


Make = Callable[[Stream, Stream], Stream]
SUMS = {"ts": "min(ts)", "x": "avg(x)", "n": "count(*)"}
BOXES: dict[str, Make] = {
    "filter": lambda s, _: s.filter("x > 2 AND g <> 'b'"),
    "filter_that_fails": lambda s, _: s.filter("10 / id > 1"),
    "map": lambda s, _: s.map("ts", "g", ratio="x / id", text="coalesce(g, '?')"),
    "map_of_spark": lambda s, _: s.map("ts", "id", mark="sha2(coalesce(g, ''), 256)", odd="pmod(id, 7)"),
    "union": lambda s, t: s.union(t, s),
    "sort": lambda s, _: s.sort("id", slack=6),
    "drop": lambda s, _: s.drop(3),
    "drop_random": lambda s, _: s.drop(fraction=0.3, seed=5),
    "count_window": lambda s, _: s.window(rows=5, slide=2, by="g").agg(**SUMS, sd="stddev(x)", m="median(x)"),
    "partial_window": lambda s, _: s.window(rows=4, slide=1, by="g", partial=True).agg(
        ts="max(ts)", kinds="count(distinct id)", first="first(x)", last="last(x)"
    ),
    "clock_window": lambda s, _: s.window(span=10, slide=4, by="g").agg(**SUMS, all="collect_list(id)"),
    "clock_window_of_keys": lambda s, _: s.window(span=8, by=["g", "id"]).agg(ts="max(ts)", v="var_samp(x)"),
    "tuple_window": lambda s, _: s.window(span=6, slide=3, anchor="tuple", by="id").agg(**SUMS, top="max(x)"),
    "window_without_groups": lambda s, _: s.window(span=5, slide=5).agg(**SUMS, q="sum(x * id) / sum(id)"),
    "landmark": lambda s, _: s.window(landmark=3, slide=7, by="g").agg(ts="max(ts)", total="sum(x)"),
    "landmark_of_rows": lambda s, _: s.window(landmark=2, slide=9, on="rows", by="g").agg(n="count(x)"),
    "latch": lambda s, _: s.window(latch=10, by="g").agg(ts="max(ts)", most="max(x)", n="count(*)"),
    "latch_of_rows": lambda s, _: s.window(latch=6, on="rows", by="g").agg(total="sum(id)"),
    "user_function": lambda s, _: s.window(rows=4, by="g").agg(
        ts="max(ts)", spread=clew.function(spread, "DOUBLE"), n=clew.function(touchy, "INT", columns=["id"])
    ),
    "join": lambda s, t: s.join(t, within=2, by="g"),
    "join_left": lambda s, t: s.join(t, within=(-3, 1), by={"g": "g", "id": "id"}, how="left"),
    "join_of_widths": lambda s, t: s.join(
        t.map("g", ts="int(ts)", id="bigint(id)"), within=3, by=["g", "id"], how="left", suffix="_narrow"
    ),
    "join_without_keys": lambda s, t: s.join(t, within=0, how="left"),
    "join_where": lambda s, t: s.join(t, within=3, by="g", where="x > x_right AND 6 / id < 4"),
    "join_where_left": lambda s, t: s.join(t, within=3, by="g", where="x < x_right OR x IS NULL", how="left"),
    "self_join": lambda s, _: s.join(s.filter("id > 4"), within=(0, 2), by="id", suffix="_later"),
    "resample": lambda s, t: s.resample(t, within=4, by="g").agg(near="avg(x)", many="count(*)"),
    "resample_without_keys": lambda s, t: s.resample(t, within=1).agg(near="max(x)"),
    "apply_rows": lambda s, _: s.apply(doubled, "ts LONG, id INT, g STRING, x DOUBLE, twice DOUBLE", how="rows"),
    "apply_stateful": lambda s, _: s.apply(numbered, "ts LONG, number LONG", how="stateful"),
}  # fmt: skip
"""A box each, over two streams of one schema."""

SCHEMA = "ts LONG, id INT, g STRING, x DOUBLE"


def sources(net: clew.Network, **options: Any) -> tuple[Stream, Stream]:
    first = net.stream("s", SCHEMA, order="ts", key=["ts", "id"], **options)
    return first, net.stream("t", SCHEMA, order="ts", key=["ts", "id"], **options)


def one_box(name: str) -> clew.Network:
    net = clew.Network("one")
    BOXES[name](*sources(net, lateness=2)).output("o")
    return net


def every_box(names: list[str] | None = None) -> clew.Network:
    """All of them side by side, then some behind each other."""
    net = clew.Network("every")
    s, t = sources(net, lateness=2)
    for name in names or list(BOXES):
        BOXES[name](s, t).output(f"o_{name}")
    small = s.filter("x < 9").keep("small")
    rise = small.window(rows=3, slide=1, by="g").agg(ts="min(ts)", x="avg(x)", id="max(id)")
    hot = rise.sort("ts", slack=4).filter("x > 4")
    hot.window(span=4, slide=2, anchor="tuple").agg(ts="min(ts)", kinds="count(distinct g)").output("chain")
    both = small.join(rise, within=(-2, 2), by="g", suffix="_avg").filter("x > x_avg")  # a diamond
    both.window(span=12, by="g").agg(ts="max(ts)", n="count(*)").output("diamond")
    return net


def rows(seed: int, start: int, count: int) -> list[Row]:
    """Ties, nulls, NaN, infinities, groups that come late, a failing tuple, late and repeated ones, wrong types."""
    chance = random.Random(seed)
    groups = [None, "", "a", "b"] + (["late"] if start > 30 else [])
    found: list[Row] = [
        {"ts": start + i // 3 + chance.choice([0, 0, 0, -1, -4]), "id": chance.randint(0, 14),
         "g": chance.choice(groups),
         "x": chance.choice([None, math.nan, math.inf, 0.1, -0.0, *(chance.uniform(0, 10) for _ in range(8))])}
        for i in range(count)
    ]  # fmt: skip
    found.append({"ts": None, "id": 1, "g": "a", "x": 1.0})
    found.append({"ts": start, "id": 2, "g": "a", "x": "warm"})
    return found


def life(epochs: int = 4, count: int = 60) -> list[Action]:
    actions: list[Action] = []
    for n in range(epochs):
        batch = {"s": rows(n, n * 20, count)}
        if n != 1:
            batch["t"] = rows(100 + n, n * 20, count // 2)
        actions.append(batch)
    actions += [Advance("s", epochs * 20 + 5), Advance("t", epochs * 20 + 5), FINISH]
    return actions
