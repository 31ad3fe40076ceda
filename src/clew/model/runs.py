"""Ascending orders, each value once: what admission must know of rows that stand in order already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clew.model.axis import Axis, Number
from clew.model.rows import Ints


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows whose orders ascend: row i has the order `value[k]` for the first k with `i < until[k]`.

    >>> runs = Runs.of(np.array([3, 3, 5]))
    >>> runs.value.tolist(), runs.until.tolist(), len(runs)
    ([3, 5], [2, 3], 3)
    """

    value: Axis
    until: Ints

    def __len__(self) -> int:
        return int(self.until[-1]) if len(self.until) else 0

    @property
    def starts(self) -> Ints:
        """The first row of each run."""
        return np.append(0, self.until[:-1])[: len(self.until)]

    @staticmethod
    def of(order: Axis) -> Runs:
        """Assumes: the orders ascend."""
        last = np.flatnonzero(np.append(order[1:] != order[:-1], True)[: len(order)])
        return Runs(order[last], last + 1)

    @staticmethod
    def concat(parts: list[Runs]) -> Runs:
        """One behind the other. Assumes: the orders ascend over all of them."""
        offsets = np.cumsum([0, *(len(p) for p in parts)])
        value = np.concatenate([p.value for p in parts])
        until = np.concatenate([p.until + offset for p, offset in zip(parts, offsets[:-1], strict=True)])
        last = np.append(value[1:] != value[:-1], True)[: len(value)]
        return Runs(value[last], until[last])

    def orders(self) -> Axis:
        """The order of each row."""
        return self.value[np.repeat(np.arange(len(self.value)), np.diff(self.until, prepend=0))]

    def rows_to(self, bound: Number) -> int:
        """How many rows have an order of at most `bound`."""
        return int(np.append(0, self.until)[np.searchsorted(self.value, bound, side="right")])

    def first(self, rows: int) -> Runs:
        """The runs of the first so many rows."""
        if rows >= len(self):
            return self
        count = int(np.searchsorted(self.until, rows, side="left")) + 1 if rows else 0
        return Runs(self.value[:count], np.minimum(self.until[:count], rows))

    def from_row(self, row: int) -> Runs:
        """The runs of the rows from this one on."""
        skipped = int(np.searchsorted(self.until, row, side="right"))
        return Runs(self.value[skipped:], self.until[skipped:] - row)
