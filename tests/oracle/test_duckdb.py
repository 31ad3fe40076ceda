"""DuckDB answers the same question, as SQL over all the rows at once, wherever SQL can ask it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.sql import clewed, duck, rows, same

SEEDS = [1, 2, 3]
seeds = pytest.mark.parametrize("seed", SEEDS)

# clew's (and Spark's) aggregate, and DuckDB's; NaN is the greatest number in both
AGGREGATES = {
    "n": ("count(*)", "count(*)"),
    "nx": ("count(x)", "count(x)"),
    "ng": ("count(g)", "count(g)"),
    "dx": ("count(distinct x)", "count(distinct x)"),
    "dg": ("count(distinct g)", "count(distinct g)"),
    "dc": ("count(distinct c)", "count(distinct c)"),
    "dat": ("count(distinct tm)", "count(distinct tm)"),
    "sx": ("sum(x)", "sum(x)"),
    "sn": ("sum(n)", "sum(n)"),
    "sc": ("sum(c)", "sum(c)"),
    "an": ("avg(n)", "avg(n)"),
    "lx": ("min(x)", "min(x)"),
    "hx": ("max(x)", "max(x)"),
    "lg": ("min(g)", "min(g)"),
    "hg": ("max(g)", "max(g)"),
    "hc": ("max(c)", "max(c)"),
    "lat": ("min(tm)", "min(tm)"),
    "hd": ("max(d)", "max(d)"),
    "hb": ("max(b)", "max(b)"),
    "mn": ("median(n)", "median(n)"),
    "v": ("sum(n * 2) / count(n)", "CASE WHEN count(n) > 0 THEN sum(n * 2)::DOUBLE / count(n) END"),
    "w": ("max(n) - min(n)", "max(n) - min(n)"),
}
PLACED = {
    "fx": ("first(x)", "first(x ORDER BY ts, id)"),
    "lg1": ("last(g)", "last(g ORDER BY ts, id)"),
    "al": ("collect_list(n)", "list(n ORDER BY ts, id) FILTER (n IS NOT NULL)"),
}


def aggregates(which: dict[str, tuple[str, str]]) -> tuple[dict[str, str], str]:
    return {name: ours for name, (ours, _) in which.items()}, ", ".join(f"{t} AS {n}" for n, (_, t) in which.items())


@seeds
@pytest.mark.parametrize(
    "condition",
    ["x > 1", "NOT (x > 1)", "x IS NULL OR n < 0", "g = ''", "g <> 'a' AND n >= 0", "x = x", "c >= 0 AND c <= 1",
     "d > DATE '2024-02-28'", "tm < TIMESTAMP_NTZ '2024-02-29 00:00:00'", "b", "NOT b OR n IS NULL",
     "n IN (1, 2, NULL)", "coalesce(g, 'null') LIKE 'c%'"],
)  # fmt: skip
def test_filters(tmp_path: Path, seed: int, condition: str) -> None:
    table = rows(seed, 120)
    theirs = duck(f"SELECT * FROM s0 WHERE {condition.replace('TIMESTAMP_NTZ', 'TIMESTAMP')} ORDER BY ts, id", table)
    same(clewed(lambda s: s.filter(condition), tmp_path / "s", table), theirs, ordered=True)


@seeds
def test_projections(tmp_path: Path, seed: int) -> None:
    table = rows(seed, 150)
    made = {
        "a": "x * 2 - n", "b": "coalesce(x, n, 0)", "c": "CASE WHEN n > 0 THEN 'up' WHEN n < 0 THEN 'down' END",
        "e": "n % 7", "f": "abs(n)", "g": "c + c", "h": "NOT b", "i": "nullif(n, 0)", "j": "x / 4",
        "k": "CAST(n AS DOUBLE) / nullif(n, 0)",
    }  # fmt: skip
    theirs = ", ".join(f"{sql} AS {name}" for name, sql in made.items())
    mine = clewed(lambda s: s.map("ts", "id", **made), tmp_path / "s", table)
    same(mine, duck(f"SELECT ts, id, {theirs} FROM s0 ORDER BY ts, id", table), ordered=True)


@seeds
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("by", [None, "g"])
def test_partial_count_windows_are_rows_preceding(tmp_path: Path, seed: int, size: int, by: str | None) -> None:
    table = rows(seed, 160)
    which = {k: v for k, v in AGGREGATES.items() if not k.startswith("d")}  # DuckDB's windows know DISTINCT, slowly
    ours, _ = aggregates(which)
    over = f"({f'PARTITION BY {by}' if by else ''} ORDER BY ts, id ROWS {size - 1} PRECEDING)"
    theirs = _windowed(which, over) + f", count(distinct x) OVER {over} AS dx"
    mine = clewed(
        lambda s: s.window(rows=size, slide=1, by=by, partial=True).agg(**ours, dx="count(distinct x)"),
        tmp_path / "s",
        table,
    )
    same(mine, duck(f"SELECT {f'{by}, ' if by else ''}{theirs} FROM s0 ORDER BY ts, id", table), ordered=True)


def _windowed(which: dict[str, tuple[str, str]], over: str) -> str:
    found = dict(which)
    found["v"] = ("", "CASE WHEN count(n) @ > 0 THEN (sum(n * 2) @)::DOUBLE / count(n) @ END")
    found["w"] = ("", "max(n) @ - min(n) @")
    texts = {n: t if "@" in t else f"{t} @" for n, (_, t) in found.items()}
    return ", ".join(f"{t.replace('@', f'OVER {over}')} AS {n}" for n, t in texts.items())


@seeds
@pytest.mark.parametrize("size", [3, 5])
def test_full_count_windows_are_those_with_all_their_rows(tmp_path: Path, seed: int, size: int) -> None:
    table = rows(seed, 150)
    mine = clewed(
        lambda s: s.window(rows=size, slide=2, by="g").agg(t="max(id)", x="sum(x)", n="count(n)"), tmp_path / "s", table
    )
    theirs = f"""
        SELECT g, t, x, n FROM (
          SELECT g, id AS t, sum(x) OVER w AS x, count(n) OVER w AS n, ts,
                 row_number() OVER (PARTITION BY g ORDER BY ts, id) AS i
          FROM s0 WINDOW w AS (PARTITION BY g ORDER BY ts, id ROWS {size - 1} PRECEDING))
        WHERE i >= {size} AND (i - {size}) % 2 = 0 ORDER BY ts, t"""
    same(mine, duck(theirs, table), ordered=True)


@seeds
@pytest.mark.parametrize("span", [4, 25])
@pytest.mark.parametrize("by", [[], ["g"], ["g", "b"]])
def test_tumbling_windows_are_group_by(tmp_path: Path, seed: int, span: int, by: list[str]) -> None:
    table = rows(seed, 180, gaps=60)
    ours, theirs = aggregates({**AGGREGATES, **PLACED})
    mine = clewed(lambda s: s.window(span=span, by=by).agg(k="min(ts)", **ours), tmp_path / "s", table)
    columns = "".join(f"{c}, " for c in by)
    sql = f"SELECT {columns}min(ts) AS k, {theirs} FROM s0 GROUP BY {columns}ts // {span}"
    expected = duck(sql, table)
    lists = [[v if v is not None else [] for v in expected.column("al").to_pylist()]]
    expected = expected.set_column(expected.column_names.index("al"), "al", [lists[0]])
    same(mine, expected)


@seeds
def test_sliding_windows_are_a_join_with_their_starts(tmp_path: Path, seed: int) -> None:
    table = rows(seed, 150)
    mine = clewed(
        lambda s: s.window(span=9, slide=4, by="g").agg(n="count(*)", x="sum(x)", m="median(n)"), tmp_path / "s", table
    )
    sql = """SELECT g, count(*) AS n, sum(x) AS x, median(n) AS m
             FROM s0, (SELECT unnest(range(-12, 400, 4)) AS k) WHERE ts >= k AND ts < k + 9 GROUP BY g, k"""
    same(mine, duck(sql, table))


@seeds
def test_windows_over_time_are_date_trunc(tmp_path: Path, seed: int) -> None:
    table = rows(seed, 150, nan=False)
    table = table.filter(table.column("tm").is_valid()).sort_by("tm")
    order = table.set_column(0, "ts", [list(range(len(table)))]).set_column(1, "id", [list(range(len(table)))])
    mine = clewed(
        lambda s: s.window(span="1 hour", on="tm").agg(h="min(tm)", n="count(*)", d="max(d)"), tmp_path / "s", order
    )
    sql = "SELECT min(tm) AS h, count(*) AS n, max(d) AS d FROM s0 GROUP BY date_trunc('hour', tm)"
    same(mine, duck(sql, order))


@seeds
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("band", [(0, 0), (-3, 2), (1, 4)])
@pytest.mark.parametrize("key", [None, "g", "n"])
def test_band_joins(tmp_path: Path, seed: int, how: Any, band: tuple[int, int], key: str | None) -> None:
    left, right = rows(seed, 70), rows(seed + 50, 60)
    mine = clewed(
        lambda s, t: s.map("ts", "id", "g", "n", "x").join(
            t.map("ts", "id", "g", "n", "x"), within=band, by=key, how=how, where="x <= x_right OR x IS NULL"
        ),
        tmp_path / "s",
        left,
        right,
    )
    columns = [c for c in ("ts", "id", "g", "n", "x") if c != key]
    on = f"r.ts - l.ts BETWEEN {band[0]} AND {band[1]} AND (l.x <= r.x OR l.x IS NULL)"
    sql = (
        "SELECT l.ts, l.id, l.g, l.n, l.x, " + ", ".join(f"r.{c} AS {c}_right" for c in columns)
        + f" FROM s0 l {how} JOIN s1 r ON {on}" + (f" AND l.{key} = r.{key}" if key else "")
    )  # fmt: skip
    same(mine, duck(sql, left, right))


@seeds
def test_resample_is_a_left_join_and_group_by(tmp_path: Path, seed: int) -> None:
    values, ticks = rows(seed, 120), rows(seed + 9, 60)
    mine = clewed(
        lambda s, t: s.resample(t.map("ts", "id", "g"), within=2, by="g").agg(
            near="sum(x)", many="count(*)", top="max(n)"
        ),
        tmp_path / "s",
        values,
        ticks,
    )
    sql = """SELECT t.ts, t.id, t.g, sum(s.x) AS near, count(s.id) AS many, max(s.n) AS top
             FROM s1 t LEFT JOIN s0 s ON abs(s.ts - t.ts) <= 2 AND s.g IS NOT DISTINCT FROM t.g
             GROUP BY t.ts, t.id, t.g"""
    same(mine, duck(sql, values, ticks))


@seeds
def test_spread_is_duckdbs_up_to_rounding(tmp_path: Path, seed: int) -> None:
    table = rows(seed, 200, nan=False)
    ours = {"sd": "stddev(x)", "sp": "stddev_pop(x)", "v": "variance(n)", "vp": "var_pop(n)", "a": "avg(x)"}
    mine = clewed(lambda s: s.window(span=20, by="g").agg(k="min(ts)", **ours), tmp_path / "s", table)
    theirs = ", ".join(f"{sql} AS {name}" for name, sql in ours.items())
    expected = duck(f"SELECT g, min(ts) AS k, {theirs} FROM s0 GROUP BY g, ts // 20", table).to_pylist()
    found = {(r["g"], r["k"]): r for r in mine.to_pylist()}
    assert len(found) == len(expected) == len(mine)
    for row in expected:
        for name in ours:
            left, right = found[row["g"], row["k"]][name], row[name]
            assert (left is None) == (right is None)
            assert left is None or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)


@seeds
def test_a_chain_of_boxes_is_nested_sql(tmp_path: Path, seed: int) -> None:
    table = rows(seed, 200, nan=False)
    mine = clewed(
        lambda s: (
            s.filter("n IS NOT NULL")
            .map("ts", "id", "g", y="n * n")
            .window(rows=3, slide=1, by="g", partial=True)
            .agg(ts="max(ts)", y="sum(y)")
            .filter("y > 4")
            .window(span=16)
            .agg(k="min(ts)", n="count(*)", y="sum(y)", groups="count(distinct g)")
        ),
        tmp_path / "s",
        table,
    )
    sql = """
        WITH a AS (SELECT ts, id, g, n * n AS y FROM s0 WHERE n IS NOT NULL),
             b AS (SELECT g, ts, sum(y) OVER (PARTITION BY g ORDER BY ts, id ROWS 2 PRECEDING) AS y FROM a)
        SELECT min(ts) AS k, count(*) AS n, sum(y) AS y, count(distinct g) AS groups
        FROM b WHERE y > 4 GROUP BY ts // 16"""
    same(mine, duck(sql, table))
