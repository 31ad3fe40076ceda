"""Rows in files, cut into slices that tasks take: a stream of one epoch that need not fit one process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from clew.engine.arrow_files import Held, map_arrow
from clew.engine.plan import Stateless
from clew.engine.stored import source_ident
from clew.model.rows import Rows

SLICE_ROWS = 500_000


@dataclass(frozen=True)
class Numbers:
    """The numbers of a source slice's first row: its seq, and its stamp or the file that holds all stamps."""

    stream: str
    seq: int
    stamp: int
    stamps: str | None = None


@dataclass(frozen=True)
class Slice:
    """Rows `start` to `stop` of a file: visible columns of a source, or rows with their hidden columns."""

    held: Held
    start: int
    stop: int
    numbers: Numbers | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def load(self) -> Rows:
        table = self.held.table().slice(self.start, len(self))
        if self.numbers is None:
            return Rows.from_table(table.combine_chunks())
        given = self.numbers
        count = len(self)
        if given.stamps is None:
            stamps = np.arange(given.stamp, given.stamp + count, dtype=np.int64)
        else:
            stamps = np.asarray(map_arrow(given.stamps).column(0).slice(given.stamp, count).combine_chunks())
        seq = np.arange(given.seq, given.seq + count, dtype=np.int64)
        return Rows(table, stamps, np.zeros(count, np.int64), source_ident(given.stream, seq))

    def cut(self, rows: int) -> list[Slice]:
        """The same rows as slices of at most `rows`; whole if they would have to be decoded for each."""
        if self.held.schema is not None:
            return [self]
        parts = []
        for start in range(self.start, self.stop, rows):
            offset = start - self.start
            numbers = self.numbers
            if numbers is not None:
                numbers = replace(numbers, seq=numbers.seq + offset, stamp=numbers.stamp + offset)
            parts.append(Slice(self.held, start, min(start + rows, self.stop), numbers))
        return parts


@dataclass(frozen=True, eq=False)
class Slices:
    """A flow of the Spark lane: rows in memory, or slices of files with stateless steps still to be run on them."""

    schema: pa.Schema
    parts: tuple[Slice, ...] = ()
    pending: tuple[Stateless, ...] = ()
    memory: Rows | None = None

    @property
    def stored_rows(self) -> int:
        """Rows before the pending steps."""
        return len(self.memory) if self.memory is not None else sum(len(p) for p in self.parts)
