"""Spark DataFrames as pieces: read once, in parallel, in the stream's types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.engine.batches import check_columns, declared, in_zone, row_json
from clew.engine.pieces import Form, Scan, write_pieces
from clew.errors import BatchError
from clew.model.types import type_name
from clew.model.values import python_rows
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = "_stream"
TASK_ROWS = 1_000_000  # of a partition that a task holds at a time


def is_frame(value: object) -> bool:
    """Whether this is a Spark DataFrame, classic or Connect, without importing Spark."""
    return any(c.__name__ == "DataFrame" and c.__module__.startswith("pyspark.sql") for c in type(value).__mro__)


def conform(frame: DataFrame, source: Source) -> DataFrame:
    """The frame with the stream's columns in the stream's types, and in `_bad_N` the values that did not fit.

    Times with and without a zone are left as they are: Spark would convert them in its session's zone.
    """
    from pyspark.sql import functions as f

    names = [declared(name, source.schema) for name in frame.columns]
    check_columns(names, source.schema, source.name)
    found = dict(zip(names, frame.dtypes, strict=True))
    columns, marks = [], []
    for i, field in enumerate(source.schema):
        wanted = type_name(field.type)
        name, kind = found[field.name]
        column = f.col(f"`{name}`")
        if kind == wanted or {kind, wanted} == {"timestamp", "timestamp_ntz"}:
            columns.append(column.alias(field.name))
            continue
        if not _castable(kind, wanted):
            raise BatchError(
                f"batch for stream '{source.name}' has column '{name}' as {kind.upper()}, not {wanted.upper()}",
                hint="cast it before feeding",
            )
        fitted = column.try_cast(wanted)
        columns.append(fitted.alias(field.name))
        if kind != "void":
            changed = column != fitted if _is_exact(wanted) else f.lit(False)  # a cast cuts fractions off in silence
            marks.append(f.when(fitted.isNull() | changed, column).alias(f"_bad_{i}"))
    return frame.select(*columns, *marks)


def _castable(kind: str, wanted: str) -> bool:
    numbers = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
    return (kind.startswith(numbers) and wanted.startswith(numbers)) or kind == "void"


def _is_exact(kind: str) -> bool:
    return kind.startswith(("tinyint", "smallint", "int", "bigint", "decimal"))


def scan(frame: DataFrame, sources: Sequence[Source], folder: Path, zone: str) -> dict[str, Scan]:
    """Write a frame's rows as pieces. A frame of several streams has a column `_stream` and a struct per stream.

    A time without a zone, where the stream has one, is taken in `zone`.
    """
    forms = {s.name: Form.of(s) for s in sources}
    rows = frame.mapInArrow(scanner(str(folder), list(forms.values()), zone), "told string").collect()
    told = [t for row in rows for t in json.loads(row.told)]
    return {name: Scan.of(form, (t for t in told if t["stream"] == name)) for name, form in forms.items()}


def scanner(
    folder: str, forms: list[Form], zone: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each task of a scan runs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _gathered(batches):
            told = [_fitted(folder, form, part, zone) for form, part in _by_stream(table, forms)]
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


def _fitted(folder: str, form: Form, table: pa.Table, zone: str) -> dict[str, object]:
    """Set the rows aside that a cast could not take, with what they held; write the others."""
    names = form.schema.names
    rejects: list[tuple[str, str]] = []
    marks = {names[int(c[5:])]: table.column(c) for c in table.column_names if c.startswith("_bad_")}
    table = table.select(names)
    if marks:
        bad = np.logical_or.reduce([np.asarray(held.is_valid()) for held in marks.values()])
        held = pa.table(marks).filter(pa.array(bad))
        for row, misfits in zip(python_rows(table.filter(pa.array(bad))), python_rows(held), strict=True):
            misfits = {name: value for name, value in misfits.items() if value is not None}
            rejects.append((row_json(row | misfits), f"column '{next(iter(misfits))}' does not fit its type"))
        table = table.filter(pa.array(~bad))
    columns = [in_zone(table.column(field.name), field, zone) for field in form.schema]
    return write_pieces(folder, form, pa.table(columns, table.column_names).cast(form.schema), rejects)
