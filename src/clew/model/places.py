"""Places of rows: compared, and found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clew.model.groups import sort_by
from clew.model.rows import Bools, Ints, Rows


def place_codes(*places: tuple[Ints, Ints]) -> list[Ints]:
    """Whole numbers for several lists of (stamp, pos) that compare as the places do.

    >>> [c.tolist() for c in place_codes((np.array([7, 7]), np.array([0, 3])), (np.array([7]), np.array([3])))]
    [[0, 1], [1]]
    """
    stamp, pos = (np.concatenate([p[i] for p in places]) for i in range(2))
    order = sort_by(stamp, pos)
    step = np.zeros(len(order), np.int64)
    step[1:] = np.cumsum((np.diff(stamp[order]) != 0) | (np.diff(pos[order]) != 0))
    codes = np.empty(len(order), np.int64)
    codes[order] = step
    return np.split(codes, np.cumsum([len(p[0]) for p in places])[:-1])


def among(rows: Rows, stamp: Ints, pos: Ints) -> Bools:
    """Which rows stand at one of these places."""
    return among_places((rows.stamp, rows.pos), (stamp, pos))


def among_places(mine: tuple[Ints, Ints], theirs: tuple[Ints, Ints]) -> Bools:
    """Which of my places are among theirs."""
    left, right = place_codes(mine, theirs)
    return np.isin(left, right)


@dataclass(frozen=True, eq=False)
class Places:
    """Places of one stream, or ends of ranges of them."""

    stamp: Ints
    pos: Ints

    def __len__(self) -> int:
        return len(self.stamp)

    @staticmethod
    def none() -> Places:
        return Places(np.empty(0, np.int64), np.empty(0, np.int64))

    def take(self, index: Ints | Bools) -> Places:
        return Places(self.stamp[index], self.pos[index])

    @staticmethod
    def concat(parts: Sequence[Places]) -> Places:
        if not parts:
            return Places.none()
        return Places(np.concatenate([p.stamp for p in parts]), np.concatenate([p.pos for p in parts]))

    def distinct(self) -> tuple[Places, Ints]:
        """Each place once, ascending; and for each of these the number it has there."""
        if len(self.stamp) and (self.pos == self.pos[0]).all():
            low = int(self.stamp.min())
            span = int(self.stamp.max()) - low + 1
            if span <= 4 * len(self.stamp):  # ticking them off is ten times faster than sorting them
                there = np.zeros(span, np.bool_)
                there[self.stamp - low] = True
                stamp = np.flatnonzero(there) + low
                return Places(stamp, np.full(len(stamp), self.pos[0])), (np.cumsum(there) - 1)[self.stamp - low]
        order = sort_by(self.stamp, self.pos)
        stamp, pos = self.stamp[order], self.pos[order]
        new = np.append(True, (stamp[1:] != stamp[:-1]) | (pos[1:] != pos[:-1]))[: len(stamp)]
        number = np.empty(len(order), np.int64)
        number[order] = np.cumsum(new) - 1
        return Places(stamp[new], pos[new]), number

    def find(self, other: Places) -> Ints:
        """For each place of the other its index here, -1 if it is not here. Assumes: each is here once at most."""
        mine, theirs = place_codes((self.stamp, self.pos), (other.stamp, other.pos))
        order = np.argsort(mine, kind="stable")
        at = np.searchsorted(mine[order], theirs)
        found = order[np.minimum(at, max(len(order) - 1, 0))] if len(order) else np.full(len(theirs), -1)
        hit = mine[found] == theirs if len(order) else np.zeros(len(theirs), np.bool_)
        return np.where(hit, found, -1)
