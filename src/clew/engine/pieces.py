"""A batch of a stream's rows, in memory or in pieces: files that the tasks which read the batch leave or point to.

A task cuts its rows where their order falls, so that each piece ascends; the pieces of all tasks, put in order,
mostly make one ascending sequence. Of such a batch admission looks at the runs of its orders and leaves the rows
where they are. Names are new in every attempt; a file that no result names is swept with its folder.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.archive.disk import writing
from clew.archive.store import Store
from clew.engine.arrow_files import Held, map_arrow, write_arrow
from clew.engine.batches import NOT_TEXT, Reject, row_json
from clew.model.axis import Axis, Number, axis_of
from clew.model.groups import codes_of
from clew.model.runs import Runs
from clew.model.values import broken_text, holds_text, python_rows
from clew.network.boxes import Source

MOST_RUNS = 64  # a task whose order falls more often than that leaves its rows as they came


@dataclass(frozen=True)
class Form:
    """What a task must know of a stream; plain values, to cross processes."""

    stream: str
    schema: pa.Schema
    order: str
    keys: tuple[str, ...]  # the key columns beside the order

    @staticmethod
    def of(source: Source) -> Form:
        return Form(source.name, source.schema, source.order, tuple(k for k in source.key if k != source.order))


@dataclass(frozen=True)
class Piece:
    """Rows in one file: between which orders they stand, and the file of their runs if strictly by (order, key)."""

    path: str
    rows: int
    low: Number | None = None
    high: Number | None = None
    runs: str | None = None
    groups: tuple[int, ...] | None = None  # of a Parquet file; None: an Arrow file

    def held(self, schema: pa.Schema) -> Held:
        return Held(self.path) if self.groups is None else Held(self.path, tuple(self.groups), schema)


@dataclass(frozen=True, eq=False)
class Batch:
    """The first `rows` rows of pieces that lie one behind the other, or a table in memory."""

    form: Form
    rows: int
    pieces: tuple[Piece, ...] = ()
    memory: pa.Table | None = None

    @staticmethod
    def of(source: Source, table: pa.Table) -> Batch:
        return Batch(Form.of(source), len(table), (), table)

    def __len__(self) -> int:
        return self.rows

    @cached_property
    def table(self) -> pa.Table:
        return self.slice(0, self.rows)

    def slice(self, start: int, stop: int) -> pa.Table:
        """Some of the rows; only the files that hold them are opened."""
        if self.memory is not None:
            return self.memory.slice(start, stop - start)
        found, done = [self.form.schema.empty_table()], 0
        for piece in self.pieces:
            low, high = max(start - done, 0), min(stop - done, piece.rows)
            if high > low:
                found.append(piece.held(self.form.schema).table().slice(low, high - low))
            done += piece.rows
        return pa.concat_tables(found[1:] or found)

    def first(self, rows: int) -> Batch:
        if self.memory is not None:
            return Batch(self.form, rows, (), self.memory.slice(0, rows))
        return Batch(self.form, rows, self.pieces)

    def cut_behind(self, row: int) -> int:
        """The first place at or behind a row where the batch can be cut: anywhere in memory, else between pieces."""
        ends = np.cumsum([0, *(p.rows for p in self.pieces)])
        return row if self.memory is not None else int(ends[np.searchsorted(ends, row)])

    def from_row(self, start: int, head: pa.Table) -> Batch:
        """The rows from a cut on, behind others; of a batch in pieces these too become a file."""
        rows = len(head) + self.rows - start
        if self.memory is not None:
            return Batch(self.form, rows, (), pa.concat_tables([head, self.memory.slice(start)]))
        ends = np.cumsum([p.rows for p in self.pieces])
        rest = self.pieces[int(np.searchsorted(ends, start, side="right")) :]
        if len(head):
            folder = next(str(Path(p.runs).parent) for p in self.pieces if p.runs is not None)
            order = axis_of(head.column(self.form.order))[0]
            rest = (_piece(folder, self.form, head, order, write_arrow(folder, head)), *rest)
        return Batch(self.form, rows, rest)

    @cached_property
    def runs(self) -> Runs | None:
        """The runs of the orders if all rows stand strictly by (order, key) and none lacks a part of either."""
        if self.memory is not None:
            order, valid = axis_of(self.memory.column(self.form.order))
            return Runs.of(order) if valid.all() and ascends(self.memory, order, self.form.keys) else None
        if any(p.runs is None for p in self.pieces) or not self._seams_ascend():
            return None
        whole = Runs.concat([_read_runs(p.runs) for p in self.pieces if p.runs is not None])
        return whole.first(self.rows)

    def _seams_ascend(self) -> bool:
        start = 0
        for before, after in pairwise(self.pieces):
            start += before.rows
            if before.high is None or after.low is None or before.high > after.low:
                return False
            if before.high == after.low:
                seam = self.slice(start - 1, start + 1)
                if not ascends(seam, axis_of(seam.column(self.form.order))[0], self.form.keys):
                    return False
        return True


@contextmanager
def scratch(store: Store) -> Iterator[Path]:
    """A folder for the files of one batch, gone with the epoch."""
    folder = store.layout.cache / "scans" / uuid.uuid4().hex
    with writing("rows of this epoch", folder):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Scan:
    """What tasks made of one stream's part of a batch."""

    batch: Batch
    rejects: tuple[Reject, ...] = ()

    @staticmethod
    def of(form: Form, told: Iterable[dict[str, Any]]) -> Scan:
        """What the tasks tell, their pieces in order."""
        told = list(told)
        pieces = [Piece(**p) for t in told for p in t["pieces"]]
        known = sorted((p for p in pieces if p.low is not None), key=lambda p: (p.low, p.high))
        rejects = tuple(Reject(row, why) for t in told for row, why in t["rejects"])
        ordered = (*known, *(p for p in pieces if p.low is None))
        return Scan(Batch(form, sum(p.rows for p in pieces), ordered), rejects)


def write_pieces(folder: str, form: Form, table: pa.Table, rejects: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Write a task's rows, those left out in which a string is no text; what it tells."""
    table = table.combine_chunks()
    if broken := broken_text(table):
        rows = python_rows(table.take(pa.array(list(broken))))
        whys = (NOT_TEXT.format(name) for name in broken.values())
        rejects = [*rejects, *((row_json(row), why) for row, why in zip(rows, whys, strict=True))]
        table = table.filter(pa.array([i not in broken for i in range(len(table))]))
    order, valid = axis_of(table.column(form.order))
    falls = np.flatnonzero(order[1:] < order[:-1]) + 1
    if not valid.all() or len(falls) > MOST_RUNS:
        pieces = [Piece(write_arrow(folder, table), len(table))] if len(table) else []
    else:
        edges = [0, *falls.tolist(), len(table)]
        parts = [(table.slice(lo, hi - lo), order[lo:hi]) for lo, hi in pairwise(edges) if hi > lo]
        pieces = [_piece(folder, form, part, axis, write_arrow(folder, part)) for part, axis in parts]
    return told(form, pieces, rejects)


def point_to(folder: str, form: Form, held: Held) -> dict[str, Any] | None:
    """What a task tells of rows that can stay where they lie, since they ascend and are whole; None if they do not."""
    texts = [f.name for f in form.schema if holds_text(f.type)]
    keys = held.columns(list(dict.fromkeys((form.order, *form.keys, *texts))), texts)
    order, valid = axis_of(keys.column(form.order))
    if not len(keys) or not valid.all() or not ascends(keys, order, form.keys) or broken_text(keys):
        return None
    return told(form, [_piece(folder, form, keys, order, held.path, held.groups)])


def told(form: Form, pieces: Sequence[Piece], rejects: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    return {"stream": form.stream, "pieces": [asdict(p) for p in pieces], "rejects": list(rejects)}


def _piece(
    folder: str, form: Form, rows: pa.Table, order: Axis, path: str, groups: tuple[int, ...] | None = None
) -> Piece:
    low, high = order[0].item(), order[-1].item()
    if groups is None and not ascends(rows, order, form.keys):
        return Piece(path, len(rows), low, high)
    runs = Runs.of(order)
    file = write_arrow(folder, pa.table({"value": pa.array(runs.value), "until": pa.array(runs.until)}))
    return Piece(path, len(rows), low, high, file, groups)


def _read_runs(path: str) -> Runs:
    table = map_arrow(path).combine_chunks()
    return Runs(np.asarray(table.column("value")), np.asarray(table.column("until")))


def comparable(column: pa.ChunkedArray) -> pa.Array:
    """The values, or the ranks of those that a dictionary holds."""
    return pa.array(codes_of(column)) if pa.types.is_dictionary(column.type) else column.combine_chunks()


def ascends(rows: pa.Table, order: Axis, keys: Sequence[str]) -> bool:
    """Whether rows stand strictly by (order, key), none without a part of its key: the usual case, cheap to see."""
    if any(rows.column(k).null_count for k in keys):
        return False
    if len(order) < 2:
        return True
    step = order[1:] > order[:-1]
    if not (step | (order[1:] == order[:-1])).all():
        return False
    undecided = ~step
    for key in keys:
        if not undecided.any():
            return True
        column = comparable(rows.column(key))
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            return False
        left, right = column.slice(0, len(column) - 1), column.slice(1)
        undecided = undecided & ~np.asarray(pc.less(left, right))
        if undecided.any() and not (np.asarray(pc.equal(left, right)) | ~undecided).all():
            return False
    return not undecided.any()
