"""The same rows to clew and to DuckDB; their answers in a form that can be compared."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import clew
from clew.network.stream import Stream
from clew.testing import FINISH
from clew.testing.laws import act

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()), ("id", pa.int32()), ("g", pa.string()), ("x", pa.float64()), ("n", pa.int32()),
        ("c", pa.decimal128(10, 2)), ("tm", pa.timestamp("us")), ("d", pa.date32()), ("b", pa.bool_()),
    ]
)  # fmt: skip
TEXT = "ts LONG, id INT, g STRING, x DOUBLE, n INT, c DECIMAL(10, 2), tm TIMESTAMP_NTZ, d DATE, b BOOLEAN"
NOON = dt.datetime(2024, 2, 28, 12)


def rows(seed: int, count: int, *, nan: bool = True, gaps: int = 1) -> pa.Table:
    """Rows in order, ties among them, whose numbers add up without rounding; nulls and empty strings everywhere."""
    chance = random.Random(seed)
    reals = [None, -0.5, 0.25, 0.0, 1.0, 2.5, 7.75, 1024.0] + ([math.nan] if nan else [])
    found = []
    ts = 0
    for i in range(count):
        ts += chance.choice([0, 0, 1, 1, 2, *([gaps] if gaps > 2 else [])])
        found.append(
            {
                "ts": ts,
                "id": i,
                "g": chance.choice([None, "", "a", "b", "c c"]),
                "x": chance.choice(reals),
                "n": chance.choice([None, -3, 0, 1, 2, 40]),
                "c": chance.choice([None, Decimal("0.10"), Decimal("-3.75"), Decimal("12345.67")]),
                "tm": None if chance.random() < 0.2 else NOON + dt.timedelta(minutes=chance.randint(0, 3000)),
                "d": None if chance.random() < 0.2 else (NOON + dt.timedelta(days=chance.randint(0, 3))).date(),
                "b": chance.choice([None, True, False]),
            }
        )
    return pa.Table.from_pylist(found, SCHEMA)


def clewed(make: Callable[..., Stream], folder: Path, *tables: pa.Table, cut: int = 37) -> pa.Table:
    """What a network makes of the rows, fed in epochs of `cut` and finished."""
    net = clew.Network("oracle")
    streams = [net.stream(f"s{i}", TEXT, order="ts", key=["ts", "id"]) for i in range(len(tables))]
    make(*streams).output("o")
    with clew.open(folder, net, lane="driver", durable=False) as engine:
        end = max(t.column("ts")[-1].as_py() for t in tables)
        for start in range(0, end + 1, cut):
            batch = {f"s{i}": _between(t, start, start + cut) for i, t in enumerate(tables)}
            act(engine, batch)
        act(engine, FINISH)
        found = engine._store.read_table("o")
    return found.select([n for n in found.column_names if not n.startswith("_")])


def _between(table: pa.Table, low: int, high: int) -> pa.Table:
    return table.filter(pa.array([low <= ts < high for ts in table.column("ts").to_pylist()]))


def duck(sql: str, *tables: pa.Table) -> pa.Table:
    """What DuckDB makes of them; they are called s0, s1."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for i, table in enumerate(tables):
            connection.register(f"s{i}", table)
        return connection.sql(sql).to_arrow_table()


def same(found: pa.Table, expected: pa.Table, *, ordered: bool = False) -> None:
    """Equal rows, in the same order if that is fixed; numbers by value, NaN equal to NaN."""
    assert found.column_names == expected.column_names
    mine, theirs = ([tuple(map(_plain, row.values())) for row in t.to_pylist()] for t in (found, expected))
    if not ordered:
        mine, theirs = sorted(mine, key=repr), sorted(theirs, key=repr)
    assert len(mine) == len(theirs)
    for i, pair in enumerate(zip(mine, theirs, strict=True)):
        assert pair[0] == pair[1], f"row {i}"
    assert mine


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal | int | float) and not isinstance(value, bool):
        real = float(value)
        return "NaN" if math.isnan(real) else real + 0.0
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value
