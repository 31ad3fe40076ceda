"""What landmark and latch carry of each group: partials of aggregates, first and last row; and their running totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clew.expressions.aggregates import AggregateCall
from clew.model.rows import Bools, Ints
from clew.operators.aggregation import merge


@dataclass(frozen=True, eq=False)
class Carried:
    """Some rows of one group, summed up: smallest and largest place, the ident at the largest, partials."""

    numbers: tuple[Ints, ...]  # first stamp and pos, last stamp and pos, last ident
    partials: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.numbers[0])

    def take(self, index: Ints) -> Carried:
        picked = (p.take(pa.array(index)) for p in self.partials)
        return Carried(tuple(n[index] for n in self.numbers), tuple(picked))

    @staticmethod
    def concat(parts: Sequence[Carried]) -> Carried:
        numbers = (np.concatenate(n) for n in zip(*(p.numbers for p in parts), strict=True))
        partials = (pa.concat_arrays(p) for p in zip(*(p.partials for p in parts), strict=True))
        return Carried(tuple(numbers), tuple(partials))

    def then(self, other: Carried, calls: Sequence[AggregateCall]) -> Carried:
        """Row by row the rows of `self` followed by those of `other`."""
        mine, theirs = self.numbers, other.numbers
        first = _before(*mine[:2], *theirs[:2])
        last = _before(*theirs[2:4], *mine[2:4])
        numbers = (
            np.where(own, a, b) for a, b, own in zip(mine, theirs, (first, first, last, last, last), strict=True)
        )
        merged = (merge(c, a, b) for c, a, b in zip(calls, self.partials, other.partials, strict=True))
        return Carried(tuple(numbers), tuple(merged))


def running(nodes: Carried, group: Ints, calls: Sequence[AggregateCall]) -> Carried:
    """Each node together with all nodes before it in its group (a parallel prefix: log rounds, exact merges).

    Assumes: nodes come group after group.
    """
    count = len(nodes)
    distance = 1
    while True:
        onto = distance + np.flatnonzero(group[distance:] == group[:-distance])
        if not len(onto):
            return nodes
        merged = nodes.take(onto - distance).then(nodes.take(onto), calls)
        place = np.arange(count)
        place[onto] = count + np.arange(len(onto))
        nodes = Carried.concat([nodes, merged]).take(place)
        distance *= 2


def _before(stamp: Ints, pos: Ints, other_stamp: Ints, other_pos: Ints) -> Bools:
    earlier: Bools = (stamp < other_stamp) | ((stamp == other_stamp) & (pos < other_pos))
    return earlier
