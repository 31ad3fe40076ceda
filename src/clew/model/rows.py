"""Rows in place order: what flows between boxes.

A row stands at a *place*: the stamp of the source tuple that completed it, then its position within
that step. `ident` names the row across revisions. Visible columns are an Arrow table; the rest are
NumPy arrays of the same length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STAMP, POS, IDENT = "_stamp", "_pos", "_ident"
HIDDEN = (STAMP, POS, IDENT)
NEVER = int(np.iinfo(np.int64).max)  # a stamp that no tuple will ever have


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one stream, sorted by (stamp, pos)."""

    table: pa.Table
    stamp: Ints
    pos: Ints
    ident: Ints

    def __len__(self) -> int:
        return len(self.stamp)

    @staticmethod
    def empty(schema: pa.Schema) -> Rows:
        none = np.empty(0, np.int64)
        return Rows(schema.empty_table(), none, none, none)

    def with_table(self, table: pa.Table) -> Rows:
        return Rows(table, self.stamp, self.pos, self.ident)

    def select(self, columns: Sequence[str]) -> Rows:
        return self.with_table(self.table.select(list(columns)))

    def take(self, index: Ints) -> Rows:
        return Rows(self.table.take(pa.array(index)), self.stamp[index], self.pos[index], self.ident[index])

    def filter(self, keep: Bools) -> Rows:
        if keep.all():
            return self
        return Rows(self.table.filter(pa.array(keep)), self.stamp[keep], self.pos[keep], self.ident[keep])

    def slice(self, start: int, stop: int | None = None) -> Rows:
        stop = len(self) if stop is None else stop
        cut = slice(start, stop)
        return Rows(self.table.slice(start, stop - start), self.stamp[cut], self.pos[cut], self.ident[cut])

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """The parts one behind the other; the caller answers for their order."""
        if len(parts) == 1:
            return parts[0]
        return Rows(
            pa.concat_tables([p.table for p in parts]),
            np.concatenate([p.stamp for p in parts]),
            np.concatenate([p.pos for p in parts]),
            np.concatenate([p.ident for p in parts]),
        )

    def to_table(self) -> pa.Table:
        """Visible columns, then the hidden ones: the form in which rows cross a process."""
        table = self.table
        for name, values in zip(HIDDEN, (self.stamp, self.pos, self.ident), strict=True):
            table = table.append_column(name, pa.array(values))
        return table

    @staticmethod
    def from_table(table: pa.Table) -> Rows:
        """The inverse of `to_table`."""
        stamp, pos, ident = (np.asarray(table.column(name)) for name in HIDDEN)
        return Rows(table.drop_columns(list(HIDDEN)), stamp, pos, ident)


@dataclass(frozen=True, eq=False)
class Stamps:
    """The stamps of rows in order: a whole range from `first` on, or one by one."""

    first: int
    count: int
    each: Ints | None = None

    def __len__(self) -> int:
        return self.count

    def at(self, rows: Ints) -> Ints:
        return self.first + rows if self.each is None else self.each[rows]

    def array(self) -> Ints:
        return np.arange(self.first, self.first + self.count) if self.each is None else self.each


def mix(values: Ints, seed: int) -> Ints:
    """A 64-bit hash of each value (splitmix64's finalizer), the same in every process.

    >>> int(mix(np.array([1]), 0)[0]) == int(mix(np.array([1, 2]), 0)[0])
    True
    """
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).astype(np.int64)


def mix_pair(left: Ints, right: Ints) -> Ints:
    """A 64-bit hash of each pair."""
    return mix(mix(left, 1) ^ mix(right, 2), 3)
