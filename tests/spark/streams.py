"""What tests of streaming sources share: a network, rows, and files that appear in one step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import clew

ARROW = pa.schema([("ts", pa.int64()), ("g", pa.string()), ("x", pa.float64())])
Row = dict[str, Any]
# what Spark's daemon of workers says, now and then, when its JVM is gone before it
DAEMON = re.compile(
    r"Traceback \(most recent call last\):\n(  File \".*pyspark/daemon\.py\".*\n)+BrokenPipeError: .*\n"
)


def network(**options: Any) -> clew.Network:
    net = clew.Network("running")
    s = net.stream("s", "ts LONG, g STRING, x DOUBLE", order="ts", key=["ts", "g"], **options)
    s.filter("x >= 2").output("big")
    s.window(rows=2, slide=1, by="g").agg(ts="max(ts)", x="sum(x)").output("sums")
    return net


def numbered(first: int, count: int) -> list[Row]:
    return [{"ts": i, "g": "ab"[i % 2], "x": float(i % 5)} for i in range(first, first + count)]


def write(folder: Path, name: str, rows: list[Row], schema: pa.Schema = ARROW) -> None:
    """Put a file there in one step, as a source wants it."""
    folder.mkdir(exist_ok=True, parents=True)
    hidden = folder.parent / f".{name}"
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows, schema), hidden)
    elif name.endswith(".csv"):
        hidden.write_text("\n".join([",".join(schema.names), *(",".join(map(str, r.values())) for r in rows), ""]))
    else:
        hidden.write_text("".join(json.dumps(r) + "\n" for r in rows))
    hidden.rename(folder / name)


def values(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]
