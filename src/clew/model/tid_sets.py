"""Sets of tuple ids, many at once: the lineage of rows, before it is written.

`TidSets` holds each set by itself. `Ranges` holds sets that are ranges of one list: the windows over a
stream share almost all their tuples, and so does what is kept of them ("Adaptive compression uses an
improved approach that shares provenance information whenever possible", Stream Provenance, §6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clew.errors import EncodingError
from clew.model.ranges import each_in, running
from clew.model.rows import Bools, Ints

BLOCK = 1 << 20  # how many numbers are worked on at once, so that what lies between stays small


@dataclass(frozen=True, eq=False)
class TidSets:
    """Set i is `tids[offsets[i]:offsets[i + 1]]`, strictly ascending, nothing below zero.

    >>> sets = TidSets.of([{3, 1}, [], [7]])
    >>> sets.lists(), sets[0].tolist(), len(sets)
    ([[1, 3], [], [7]], [1, 3], 3)
    """

    offsets: Ints
    tids: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Ints:
        i = range(len(self))[i]
        return self.tids[self.offsets[i] : self.offsets[i + 1]]

    def lists(self) -> list[list[int]]:
        return [self[i].tolist() for i in range(len(self))]

    @staticmethod
    def of(lists: Iterable[Iterable[int]]) -> TidSets:
        """From any collections of tids; the order within one and duplicates do not matter."""
        each = [np.unique(np.array(list(tids), np.int64)) for tids in lists]
        return TidSets(running([len(tids) for tids in each]), np.concatenate([np.empty(0, np.int64), *each]))

    @staticmethod
    def concat(parts: Sequence[TidSets]) -> TidSets:
        """The sets of all parts, one part behind the other."""
        sizes = np.concatenate([np.empty(0, np.int64), *(np.diff(p.offsets) for p in parts)])
        tids = [p.tids[p.offsets[0] : p.offsets[-1]] for p in parts]
        return TidSets(running(sizes), np.concatenate([np.empty(0, np.int64), *tids]))

    def take(self, index: Ints) -> TidSets:
        """The sets of these numbers, in this order."""
        return Ranges(self.tids, self.offsets[:-1][index], self.offsets[1:][index]).sets()

    def union_ranges(self, lo: Ints, hi: Ints) -> TidSets:
        """For each k the union of the sets `lo[k]` to `hi[k] - 1`: the lineage of a window over such rows.

        Sets that ascend from one to the next, and sets that slide over a list, are copied as they stand.
        Only what then does not ascend is sorted, and a set counts there by what it adds to the one before.

        >>> TidSets.of([{1, 2}, {2, 3}, {0}]).union_ranges(np.array([0, 1]), np.array([2, 3])).lists()
        [[1, 2, 3], [0, 2, 3]]
        """
        raw = Ranges(self.tids, self.offsets[lo], self.offsets[hi])
        if ascends(raw.base, raw.lo, raw.hi).all():
            return raw.sets()
        # A shared list holds nothing between two of its sets' ends that is not in one of the sets
        shared = Ranges.shared(self)
        some = np.flatnonzero(hi > lo)
        start, stop = np.zeros(len(lo), np.int64), np.zeros(len(lo), np.int64)
        start[some], stop[some] = shared.lo[lo[some]], shared.hi[hi[some] - 1]
        return sorted_unique(Ranges(shared.base, start, stop))


@dataclass(frozen=True, eq=False)
class Ranges:
    """Set i is `base[lo[i]:hi[i]]`, strictly ascending; the base need not be so between two sets.

    >>> windows = Ranges(np.array([10, 20, 30, 40]), lo=np.array([0, 1]), hi=np.array([3, 4]))
    >>> windows.sets().lists()
    [[10, 20, 30], [20, 30, 40]]
    """

    base: Ints
    lo: Ints
    hi: Ints

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, i: int) -> Ints:
        return self.base[self.lo[i] : self.hi[i]]

    def sets(self) -> TidSets:
        """Each set by itself."""
        return TidSets(running(self.hi - self.lo), gather(self.base, self.lo, self.hi))

    def check(self) -> None:
        """Refuse what are not sets of tids."""
        inside = (self.lo >= 0) & (self.lo <= self.hi) & (self.hi <= len(self.base))
        _refuse(~inside, "does not lie in its list")
        some = np.flatnonzero(self.hi > self.lo)
        negative = np.zeros(len(self), np.bool_)
        negative[some] = self.base[self.lo[some]] < 0
        _refuse(negative, "holds a tid below zero")
        _refuse(~ascends(self.base, self.lo, self.hi), "does not ascend")

    @staticmethod
    def shared(sets: TidSets) -> Ranges:
        """The same sets over one list in which a set that slides on from the one before adds only what is new."""
        kept = _kept(sets)
        start, stop = sets.offsets[:-1], sets.offsets[1:]
        if not kept.any():
            return Ranges(sets.tids, start, stop)
        base = gather(sets.tids, start + kept, stop)
        hi = np.cumsum(stop - start - kept)
        return Ranges(base, hi - (stop - start), hi)


def blocks(sizes: Ints) -> Iterator[slice]:
    """Neighbours put together up to a size of `BLOCK`, or one alone that is larger."""
    ends = np.cumsum(sizes)
    start, done = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, done + BLOCK, side="right")))
        yield slice(start, stop)
        start, done = stop, int(ends[stop - 1])


def gather(base: Ints, lo: Ints, hi: Ints) -> Ints:
    """The elements of all ranges of the base, one range behind the other; no copy where they lie so."""
    if len(lo) and (lo[1:] == hi[:-1]).all():
        return base[lo[0] : hi[-1]]
    sizes = hi - lo
    gathered, at = np.empty(int(sizes.sum()), base.dtype), 0
    for block in blocks(sizes):
        part = base[each_in(lo[block], hi[block])]
        gathered[at : at + len(part)] = part
        at += len(part)
    return gathered


def ascends(base: Ints, lo: Ints, hi: Ints) -> Bools:
    """Whether each range of the base ascends strictly."""
    falls = np.zeros(len(base) + 1, np.int64)
    falls[2:] = np.cumsum(base[1:] <= base[:-1])
    steady: Bools = falls[hi] == falls[np.minimum(lo + 1, hi)]
    return steady


def _refuse(bad: Bools, what: str) -> None:
    if bad.any():
        raise EncodingError(f"set {int(bad.argmax())} {what}")


def _kept(sets: TidSets) -> Ints:
    """With how many of its first tids a set repeats the last ones of the set before; 0 if it is no slide of that."""
    kept = np.zeros(len(sets), np.int64)
    tids, start, stop = sets.tids, sets.offsets[:-1], sets.offsets[1:]
    later = 1 + np.flatnonzero((stop[1:] > start[1:]) & (stop[:-1] > start[:-1]))
    since = _first_not_below(tids, start[later - 1], stop[later - 1], tids[start[later]])
    common = stop[later - 1] - since
    ends_meet = (common > 0) & (common <= stop[later] - start[later])
    later, since, common = later[ends_meet], since[ends_meet], common[ends_meet]
    ends_meet = tids[start[later] + common - 1] == tids[stop[later - 1] - 1]
    later, since, common = later[ends_meet], since[ends_meet], common[ends_meet]
    for block in blocks(common):
        old = each_in(since[block], stop[later[block] - 1])
        new = old + np.repeat(start[later[block]] - since[block], common[block])
        first = np.cumsum(common[block]) - common[block]
        same = np.logical_and.reduceat(tids[old] == tids[new], first)
        kept[later[block][same]] = common[block][same]
    return kept


def _first_not_below(tids: Ints, lo: Ints, hi: Ints, bound: Ints) -> Ints:
    """In each ascending range the place of the first tid that is not below its bound: binary search, all at once."""
    lo, hi = lo.copy(), hi.copy()
    open_ = np.flatnonzero(lo < hi)
    while len(open_):
        middle = (lo[open_] + hi[open_]) // 2
        below = tids[middle] < bound[open_]
        lo[open_[below]] = middle[below] + 1
        hi[open_[~below]] = middle[~below]
        open_ = open_[lo[open_] < hi[open_]]
    return lo


def sorted_unique(ranges: Ranges) -> TidSets:
    """The ranges as sets, whatever the order of their elements."""
    sizes = ranges.hi - ranges.lo
    unsorted = ~ascends(ranges.base, ranges.lo, ranges.hi)
    parts = []
    for block in blocks(sizes):
        owner = np.repeat(np.arange(block.stop - block.start), sizes[block])
        tids = ranges.base[each_in(ranges.lo[block], ranges.hi[block])]
        if unsorted[block].any():
            order = np.lexsort((tids, owner))
            tids = tids[order]
            new = np.ones(len(tids), np.bool_)
            new[1:] = (tids[1:] != tids[:-1]) | (owner[1:] != owner[:-1])
            tids, owner = tids[new], owner[new]
        parts.append(TidSets(running(np.bincount(owner, minlength=block.stop - block.start)), tids))
    return TidSets.concat(parts)
