"""Spark DataFrames as Arrow pieces: scanned once, in parallel, each task's rows in one file.

A task checks its rows' types and whether they stand in order already; what it wrote comes back as a
manifest. Files have names of their own per attempt; those that no manifest names are swept.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clew.engine.admission import ascends
from clew.engine.batches import Reject, row_json
from clew.errors import BatchError, nearest
from clew.model.types import type_name
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STREAM = "_stream"
CORRUPT = "_corrupt"  # where a reader leaves the text of a row that it cannot read


def is_frame(value: object) -> bool:
    """Whether this is a Spark DataFrame, classic or Connect, without importing Spark."""
    return any(c.__name__ == "DataFrame" and c.__module__.startswith("pyspark.sql") for c in type(value).__mro__)


@dataclass(frozen=True)
class Piece:
    """Rows of one task: an Arrow file of the stream's columns, in order or not."""

    path: str
    rows: int
    ordered: bool

    def table(self) -> pa.Table:
        with pa.memory_map(self.path) as source:
            return pa.ipc.open_file(source).read_all()


@dataclass(frozen=True)
class Scan:
    """What a scan found of one stream."""

    pieces: tuple[Piece, ...]
    rejects: tuple[Reject, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.pieces)

    def table(self, schema: pa.Schema) -> pa.Table:
        """All pieces, one behind the other, over their files' pages."""
        tables = [p.table() for p in self.pieces]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def ordered(self, source: Source) -> bool:
        """Whether the pieces together stand strictly by (order, key): each does, and no seam breaks it."""
        if not all(p.ordered for p in self.pieces):
            return False
        keys = tuple(k for k in source.key if k != source.order)
        tables = [p.table() for p in self.pieces]
        seams = [pa.concat_tables([a.slice(len(a) - 1), b.slice(0, 1)]) for a, b in pairwise(tables)]
        return all(ascends(seam, source.order, keys) for seam in seams)


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
    if CORRUPT in frame.columns:
        marks.append(f.col(CORRUPT))
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
    folder.mkdir(parents=True, exist_ok=True)
    schemas = {s.name: (s.schema, s.order, tuple(k for k in s.key if k != s.order)) for s in sources}
    task = scanner(str(folder), schemas)
    found: dict[str, list[tuple[int, Piece]]] = {s.name: [] for s in sources}
    rejects: dict[str, list[Reject]] = {s.name: [] for s in sources}
    for row in frame.mapInArrow(task, "manifest string").collect():
        told = json.loads(row.manifest)
        if told["rows"]:
            found[told["stream"]].append((told["task"], Piece(told["path"], told["rows"], told["ordered"])))
        rejects[told["stream"]] += [Reject(r, why) for r, why in told["rejects"]]
    return {
        name: Scan(tuple(p for _, p in sorted(pieces, key=lambda x: x[0])), tuple(rejects[name]))
        for name, pieces in found.items()
    }


Schemas = dict[str, tuple[pa.Schema, str, tuple[str, ...]]]


def scanner(folder: str, schemas: Schemas) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each task of a scan runs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context else 0
        gathered = [b for b in batches if b.num_rows]
        table = pa.Table.from_batches(gathered) if gathered else None
        told = [_write_piece(folder, number, *part) for part in _by_stream(table, schemas)] if table is not None else []
        yield pa.RecordBatch.from_arrays([pa.array([json.dumps(t) for t in told], pa.string())], ["manifest"])

    return task


def _by_stream(table: pa.Table, schemas: Schemas) -> Iterator[tuple[str, pa.Table, Any]]:
    if STREAM not in table.column_names:
        (name,) = schemas
        yield name, table, schemas[name]
        return
    import pyarrow.compute as pc

    for name, facts in schemas.items():
        mine = table.filter(pc.equal(table.column(STREAM), name))
        if len(mine):
            struct = mine.column(name).combine_chunks()
            struct = struct.combine_chunks() if isinstance(struct, pa.ChunkedArray) else struct
            yield name, pa.Table.from_arrays(struct.flatten(), names=[f.name for f in struct.type]), facts


def _write_piece(folder: str, number: int, name: str, table: pa.Table, facts: Any) -> dict[str, Any]:
    schema, order, keys = facts
    marks = [c for c in table.column_names if c.startswith("_bad_")]
    rejects = []
    if CORRUPT in table.column_names:
        broken = np.asarray(table.column(CORRUPT).is_valid())
        rejects += [(text, "malformed row") for text in table.column(CORRUPT).filter(pa.array(broken)).to_pylist()]
        table = table.filter(pa.array(~broken)).drop_columns([CORRUPT])
    if marks:
        bad = np.logical_or.reduce([np.asarray(table.column(c).fill_null(False)) for c in marks])
        for row in table.filter(pa.array(bad)).to_pylist():
            columns = [schema.names[int(c[5:])] for c in marks if row[c]]
            plain = {k: v for k, v in row.items() if not k.startswith("_bad_")}
            rejects.append((row_json(plain), f"column '{columns[0]}' does not fit its type"))
        table = table.filter(pa.array(~bad))
    table = table.select(schema.names).cast(schema)
    path = str(Path(folder) / f"piece-{uuid.uuid4().hex}.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.combine_chunks())
    ordered = ascends(table, order, keys)
    return {"stream": name, "task": number, "path": path, "rows": len(table), "ordered": ordered, "rejects": rejects}


__all__ = ["CORRUPT", "STREAM", "Piece", "Scan", "conform", "is_frame", "scan"]
