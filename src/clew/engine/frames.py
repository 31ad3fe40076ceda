"""Spark DataFrames as pieces: read once, in parallel, in the stream's types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.engine.batches import row_json
from clew.engine.pieces import Form, Scan, write_pieces
from clew.errors import BatchError, nearest
from clew.model.types import type_name
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = "_stream"
TASK_ROWS = 1_000_000  # of a partition that a task holds at a time


def is_frame(value: object) -> bool:
    """Whether this is a Spark DataFrame, classic or Connect, without importing Spark."""
    return any(c.__name__ == "DataFrame" and c.__module__.startswith("pyspark.sql") for c in type(value).__mro__)


def conform(frame: DataFrame, source: Source) -> DataFrame:
    """The frame with the stream's columns in the stream's types, and `_bad_N` marks where a value did not fit."""
    from pyspark.sql import functions as f

    found = {c.lower(): (c, t) for c, t in frame.dtypes}
    columns, marks = [], []
    for i, field in enumerate(source.schema):
        wanted = type_name(field.type)
        if field.name.lower() not in found:
            raise BatchError(
                f"batch for stream '{source.name}' lacks column '{field.name}'",
                details=[f"it has: {', '.join(frame.columns)}", f"the stream has: {', '.join(source.schema.names)}"],
                hint=nearest(field.name, frame.columns),
            )
        name, kind = found[field.name.lower()]
        column = f.col(f"`{name}`")
        if kind == wanted:
            columns.append(column.alias(field.name))
            continue
        if not _castable(kind, wanted):
            raise BatchError(
                f"batch for stream '{source.name}' has column '{name}' as {kind.upper()}, not {wanted.upper()}",
                hint="cast it before feeding",
            )
        fitted = column.try_cast(wanted)
        columns.append(fitted.alias(field.name))
        marks.append((column.isNotNull() & fitted.isNull()).alias(f"_bad_{i}"))
    return frame.select(*columns, *marks)


def _castable(kind: str, wanted: str) -> bool:
    numbers = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
    return (
        (kind.startswith(numbers) and wanted.startswith(numbers))
        or kind == "void"
        or {kind, wanted} == {"timestamp", "timestamp_ntz"}
    )


def scan(frame: DataFrame, sources: Sequence[Source], folder: Path) -> dict[str, Scan]:
    """Write a frame's rows as pieces. A frame of several streams has a column `_stream` and a struct per stream."""
    forms = {s.name: Form.of(s) for s in sources}
    rows = frame.mapInArrow(scanner(str(folder), list(forms.values())), "told string").collect()
    told = [t for row in rows for t in json.loads(row.told)]
    return {name: Scan.of(form, (t for t in told if t["stream"] == name)) for name, form in forms.items()}


def scanner(folder: str, forms: list[Form]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each task of a scan runs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _gathered(batches):
            told = [_fitted(folder, form, part) for form, part in _by_stream(table, forms)]
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(told)], pa.string())], ["told"])

    return task


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a partition, about `TASK_ROWS` at a time."""
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            found.append(batch)
            rows += batch.num_rows
        if rows >= TASK_ROWS:
            yield pa.Table.from_batches(found)
            found, rows = [], 0
    if found:
        yield pa.Table.from_batches(found)


def _by_stream(table: pa.Table, forms: list[Form]) -> Iterator[tuple[Form, pa.Table]]:
    if STREAM not in table.column_names:
        yield forms[0], table
        return
    for form in forms:
        mine = table.filter(pc.equal(table.column(STREAM), form.stream))
        if len(mine):
            struct = mine.column(form.stream).combine_chunks()
            yield form, pa.Table.from_arrays(struct.flatten(), names=[f.name for f in struct.type])


def _fitted(folder: str, form: Form, table: pa.Table) -> dict[str, object]:
    """Set the rows aside that a cast could not take; write the others."""
    rejects: list[tuple[str, str]] = []
    marks = [c for c in table.column_names if c.startswith("_bad_")]
    if marks:
        bad = np.logical_or.reduce([np.asarray(table.column(c).fill_null(False)) for c in marks])
        for row in table.filter(pa.array(bad)).to_pylist():
            columns = [form.schema.names[int(c[5:])] for c in marks if row[c]]
            plain = {k: v for k, v in row.items() if not k.startswith("_bad_")}
            rejects.append((row_json(plain), f"column '{columns[0]}' does not fit its type"))
        table = table.filter(pa.array(~bad))
    return write_pieces(folder, form, table.select(form.schema.names).cast(form.schema), rejects)
