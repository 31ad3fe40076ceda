"""Pieces: the rows of a batch as Arrow files, written by the tasks that read them.

A task cuts its rows where their order falls, so that each piece ascends; the pieces of all tasks, put in
order, mostly make one ascending sequence that admission need not sort. Names are new in every attempt; a file
that no result names is swept with its folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clew.engine.admission import ascends
from clew.engine.batches import Reject
from clew.model.axis import Number, axis_of
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
    """Rows in one Arrow file: whether they stand strictly by (order, key), and between which orders."""

    path: str
    rows: int
    ordered: bool
    low: Number | None
    high: Number | None

    def table(self) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(self.path)).read_all()


@dataclass(frozen=True)
class Scan:
    """The rows of one stream in a batch."""

    form: Form
    pieces: tuple[Piece, ...]
    rejects: tuple[Reject, ...] = ()

    @staticmethod
    def of(form: Form, told: Iterable[dict[str, Any]]) -> Scan:
        """What the tasks tell, their pieces in order."""
        told = list(told)
        pieces = [Piece(**p) for t in told for p in t["pieces"]]
        known = sorted((p for p in pieces if p.low is not None), key=lambda p: (p.low, p.high))
        rejects = tuple(Reject(row, why) for t in told for row, why in t["rejects"])
        return Scan(form, (*known, *(p for p in pieces if p.low is None)), rejects)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.pieces)

    def table(self) -> pa.Table:
        """All pieces, one behind the other, over their files' pages."""
        tables = [p.table() for p in self.pieces]
        return pa.concat_tables(tables) if tables else self.form.schema.empty_table()

    @property
    def ordered(self) -> bool:
        """Whether the pieces together stand strictly by (order, key): each does, and no seam breaks it."""
        if not all(p.ordered for p in self.pieces):
            return False
        tables = [p.table() for p in self.pieces]
        seams = [pa.concat_tables([a.slice(len(a) - 1), b.slice(0, 1)]) for a, b in pairwise(tables)]
        return all(ascends(seam, self.form.order, self.form.keys) for seam in seams)


def write_pieces(folder: str, form: Form, table: pa.Table, rejects: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Write a task's rows; what it tells."""
    table = table.combine_chunks()
    order, valid = axis_of(table.column(form.order))
    falls = np.flatnonzero(order[1:] < order[:-1]) + 1 if valid.all() else np.empty(0, np.int64)
    whole = not valid.all() or len(falls) > MOST_RUNS
    edges = [0, len(table)] if whole else [0, *falls.tolist(), len(table)]
    pieces = [
        asdict(_write_piece(folder, form, table.slice(lo, hi - lo), order[lo], order[hi - 1], whole))
        for lo, hi in pairwise(edges)
        if hi > lo
    ]
    return {"stream": form.stream, "pieces": pieces, "rejects": list(rejects)}


def _write_piece(folder: str, form: Form, table: pa.Table, low: Any, high: Any, whole: bool) -> Piece:
    path = str(Path(folder) / f"{uuid.uuid4().hex}.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    if whole:
        return Piece(path, len(table), False, None, None)
    return Piece(path, len(table), ascends(table, form.order, form.keys), low.item(), high.item())
