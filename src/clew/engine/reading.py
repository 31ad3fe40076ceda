"""Stored streams and tables as Spark DataFrames and pandas frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from clew.archive.layout import Kind
from clew.archive.store import Store
from clew.engine.stored import EPOCH, SEQ
from clew.model.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    spark: SparkSession,
    store: Store,
    name: str,
    *,
    as_of: int | None = None,
    tids: bool = False,
    kind: Kind = "streams",
    empty: pa.Schema | None = None,
) -> DataFrame:
    """The rows of a stored stream or table, in seq order, hidden columns left out."""
    from pyspark.sql import functions as f

    if empty is not None and name not in store.state.folders(kind):
        return empty_frame(spark, empty, tids)
    folder = store.state.folder(kind, name)
    assert folder.schema is not None
    entries = store.files(name, as_of, kind=kind)
    if not entries:
        return empty_frame(spark, folder.schema, tids)
    for entry in entries:  # Spark would tell of it later, and in its own words
        store.check_there(name, entry, kind=kind)
    files = [str(store.path_of(name, entry, kind=kind)) for entry in entries]
    reader = spark.read.schema(spark_schema(folder.schema)).option("parquet.page.verify-checksum.enabled", "true")
    frame = reader.parquet(*files)
    if as_of is not None:
        frame = frame.where(f.col(EPOCH) <= as_of)
    if SEQ in folder.schema.names:
        frame = frame.orderBy(SEQ)
    tid = [f.concat(f.lit(f"{name}:"), f.col(SEQ)).alias("tid")] if tids else []
    return frame.select(*tid, *(f.col(f"`{c}`") for c in _visible(folder.schema)))


def empty_frame(spark: SparkSession, schema: pa.Schema, tids: bool) -> DataFrame:
    fields = [pa.field("tid", pa.string())] if tids else []
    visible = [schema.field(c) for c in _visible(schema)]
    return spark.createDataFrame([], spark_schema(pa.schema([*fields, *visible])))


def _visible(schema: pa.Schema) -> list[str]:
    return [n for n in schema.names if not n.startswith("_") or n == "_reason"]


def progress_frame(store: Store, epochs: int) -> pd.DataFrame:
    """One row per epoch and box, the newest epochs last."""
    rows: list[dict[str, Any]] = []
    for record in store.state.recent[-epochs:]:
        whole = record["boxes"].get("*", {})
        for box, seen in record["boxes"].items():
            if box != "*":
                rows.append({"epoch": record["epoch"], "box": box, **seen, "lag_ms": whole.get("lag_ms")})
    columns = [
        "epoch",
        "box",
        "rows_in",
        "rows_out",
        "ms",
        "state_rows",
        "state_bytes",
        "waiting",
        "lag",
        "lag_ms",
        "lane",
    ]
    return pd.DataFrame(rows, columns=columns)
