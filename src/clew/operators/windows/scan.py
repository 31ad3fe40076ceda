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

    first_stamp: Ints
    first_pos: Ints
    last_stamp: Ints
    last_pos: Ints
    last_ident: Ints
    partials: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.first_stamp)

    def numbers(self) -> tuple[Ints, ...]:
        return self.first_stamp, self.first_pos, self.last_stamp, self.last_pos, self.last_ident

    def take(self, index: Ints) -> Carried:
        picked = (p.take(pa.array(index)) for p in self.partials)
        return Carried(*(n[index] for n in self.numbers()), tuple(picked))

    @staticmethod
    def concat(parts: Sequence[Carried]) -> Carried:
        numbers = (np.concatenate(n) for n in zip(*(p.numbers() for p in parts), strict=True))
        partials = (pa.concat_arrays(p) for p in zip(*(p.partials for p in parts), strict=True))
        return Carried(*numbers, tuple(partials))

    def then(self, other: Carried, calls: Sequence[AggregateCall]) -> Carried:
        """Row by row the rows of `self` followed by those of `other`."""
        earlier = _before(self.first_stamp, self.first_pos, other.first_stamp, other.first_pos)
        later = _before(other.last_stamp, other.last_pos, self.last_stamp, self.last_pos)
        pairs = zip(self.numbers(), other.numbers(), (earlier, earlier, later, later, later), strict=True)
        merged = (merge(c, a, b) for c, a, b in zip(calls, self.partials, other.partials, strict=True))
        return Carried(*(np.where(mine, a, b) for a, b, mine in pairs), tuple(merged))


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
    return (stamp < other_stamp) | ((stamp == other_stamp) & (pos < other_pos))
