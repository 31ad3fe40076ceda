"""Rows in files, cut into slices that tasks take: a stream of one epoch that need not fit one process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from clew.engine.arrow_files import Held, map_arrow, write_arrow
from clew.engine.plan import Stateless, plain_name
from clew.engine.stored import source_ident
from clew.expressions.parse import columns_of, parse_expression
from clew.model.rows import Ints, Rows

SLICE_ROWS = 500_000
PICKED = "_picked"


@dataclass(frozen=True)
class Numbers:
    """The numbers of a source slice's first row: its seq, and its stamp or the file that holds all stamps."""

    stream: str
    seq: int
    stamp: int
    stamps: str | None = None

    def stamps_of(self, index: Ints) -> Ints:
        """The stamps of some of the rows, counted from the first."""
        if self.stamps is None:
            return self.stamp + index
        return np.asarray(map_arrow(self.stamps).column(0).combine_chunks())[self.stamp + index]

    def index_of(self, stamps: Ints, count: int) -> Ints:
        """Which of the first `count` rows have these stamps."""
        return stamps - self.stamp if self.stamps is None else np.searchsorted(self.stamps_of(np.arange(count)), stamps)


@dataclass(frozen=True)
class Slice:
    """Rows `start` to `stop` of a file: visible columns of a source, or rows with their hidden columns.

    `picked`: those of the source's rows that steps have left; a column says which, in place of the hidden ones.
    """

    held: Held
    start: int
    stop: int
    numbers: Numbers | None = None
    picked: bool = False

    def __len__(self) -> int:
        return self.stop - self.start

    def load(self, encoded: Collection[str] | None = ()) -> Rows:
        """The rows; columns of text `encoded` where `Held` can."""
        if self.numbers is None:
            return Rows.from_table(self.table(encoded).combine_chunks())
        table, index = self.table(encoded), np.arange(len(self))
        if self.picked:
            table, index = table.drop_columns([PICKED]), np.asarray(table.column(PICKED).combine_chunks())
        ident = source_ident(self.numbers.stream, self.numbers.seq + index)
        return Rows(table, self.numbers.stamps_of(index), np.zeros(len(self), np.int64), ident)

    def table(self, encoded: Collection[str] | None = ()) -> pa.Table:
        return self.held.table(encoded).slice(self.start, len(self))

    def picking(self, rows: Rows, folder: str) -> Slice:
        """A new slice of those of this one's rows that steps have left, and what they made of them."""
        if self.numbers is None or self.picked:
            return Slice(Held(write_arrow(folder, rows.to_table().combine_chunks())), 0, len(rows))
        index = self.numbers.index_of(rows.stamp, len(self))
        table = rows.table.append_column(PICKED, pa.array(index.astype(np.int32)))
        return Slice(Held(write_arrow(folder, table.combine_chunks())), 0, len(rows), self.numbers, picked=True)

    def cut(self, rows: int) -> list[Slice]:
        """The same rows as slices of at most `rows`; whole if they would have to be decoded for each."""
        if self.held.schema is not None or self.picked:
            return [self]
        parts = []
        for start in range(self.start, self.stop, rows):
            offset = start - self.start
            numbers = self.numbers
            if numbers is not None:
                numbers = replace(numbers, seq=numbers.seq + offset, stamp=numbers.stamp + offset)
            parts.append(Slice(self.held, start, min(start + rows, self.stop), numbers))
        return parts


def handed_on(steps: Sequence[Stateless]) -> tuple[str, ...]:
    """The columns of text that these steps, one behind the other, hand on or leave out without a look."""
    found = {f.name for f in steps[0].input_schema if pa.types.is_string(f.type)}
    here = {name: name for name in found}  # by the name that a column has before the step
    for step in steps:
        looked = {n.lower() for sql in step.expressions if plain_name(sql) not in here for n in _columns(sql)}
        found -= {first for name, first in here.items() if name.lower() in looked}
        if step.columns is not None:
            here = {out: here[plain_name(sql)] for out, sql in step.columns if plain_name(sql) in here}
    return tuple(sorted(found))


@lru_cache(maxsize=4096)
def _columns(sql: str) -> tuple[str, ...]:
    return tuple(columns_of(parse_expression(sql)))


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
