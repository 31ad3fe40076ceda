"""The provenance wrapper: a kernel's origins and its inputs' annotations make the annotations of what it emits.

One wrapper for all boxes (Glavic et al., "Efficient Stream Provenance", §4.2). What generates and what propagates
differ in the annotations of the input alone: where a stream is asked about (PG), each of its rows is annotated with
itself; elsewhere on the path (PP), with what its own box gave it. The union that a box makes of them is the same.

The annotations of a stream are `Ranges`: of each row one range of a list that they share (`base`), a set of tids,
though not an ordered one. Windows stay ranges of their input's list where rows next to each other have sets that
slide or follow each other; else the list is written anew in the order of the windows' rows, once for all of them
("sharing TID sets", §4.2). Only sets that no such list holds, of pairs and of rows that have been in disorder twice,
are written out each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clew.model.places import Places
from clew.model.ranges import running
from clew.model.rows import Bools, Ints
from clew.model.tid_sets import Ranges, TidSets, ascends, blocks, gather, sorted_unique
from clew.operators.base import Kernel, Origin
from clew.operators.lineage import Known, Links, MissingRows, Ranged


@dataclass(frozen=True, eq=False)
class Taken:
    """Rows of one input of a kernel, in place order, and by stream asked about the annotations of each.

    `real`: the kernel's axis there is one of floats.
    """

    known: Known
    columns: Mapping[str, Ranges]
    real: bool = False


def annotated(kernel: Kernel, origin: Origin, taken: Sequence[Taken]) -> dict[str, Ranges]:
    """By stream asked about the annotations of the rows of these origins: the wrapper.

    `taken`: of each input all rows that these are made of; `MissingRows` if it lacks some that are named.
    """
    known = [t.known for t in taken]
    linked: tuple[Links, ...] = ()
    ports: dict[str, list[Ranges]] = {}
    for port, asked in enumerate(kernel.asks()):
        if not taken[port].columns:
            continue
        if asked is None:
            linked = linked or kernel.links(origin, known)
            one = _index(linked[port], known[port], len(origin))
            made = {name: take(column, one) for name, column in taken[port].columns.items()}
        else:
            found = only_inside(kernel.ranged(port, origin, known), known[port], taken[port].real)
            made = {n: unite(take(c, found.order), found.lo, found.hi) for n, c in taken[port].columns.items()}
        for name, column in made.items():
            ports.setdefault(name, []).append(column)
    return {name: _side_by_side(columns) for name, columns in ports.items()}


def _index(links: Links, known: Known, count: int) -> Ints:
    """For each emitted row the index of the one row it is made of; -1 if there is none."""
    at = locate(Places(known.stamp, known.pos), links.places)
    if (at < 0).any():
        raise MissingRows(links.places.take(at < 0))
    index = np.full(count, -1)
    index[links.owner] = at
    return index


def _side_by_side(columns: Sequence[Ranges]) -> Ranges:
    """For each row the union of what several inputs gave it."""
    if len(columns) == 1:
        return columns[0]
    ports, rows = len(columns), len(columns[0])
    woven = take(stack(columns), np.arange(ports * rows).reshape(ports, rows).T.ravel())
    lo = ports * np.arange(rows)
    return unite(woven, lo, lo + ports)


def only_inside(found: Ranged, known: Known, real: bool) -> Ranged:
    """The same with ranges that hold no row but those that count.

    What counts is told by where a row stands on the axis, and is an interval of it. So a range whose rows stand in
    that order and whose ends count is as it should be; of others each row is asked about.
    """
    some = np.flatnonzero(found.hi > found.lo)
    if found.inside is None or not len(some):
        return found
    lo, hi = found.lo[some], found.hi[some]
    on = known.on[found.order]
    axis = on.view(np.float64) if real else on
    falls = np.zeros(len(on) + 1, np.int64)
    falls[2:] = np.cumsum(axis[1:] < axis[:-1])
    doubtful = falls[hi] != falls[lo + 1]
    for end in (lo, hi - 1):
        counts = found.inside(some, found.order[end])
        if counts is None:
            return found
        doubtful |= ~counts
    if not doubtful.any():
        return found
    return _asked(found, some[doubtful])


def _asked(found: Ranged, doubtful: Ints) -> Ranged:
    """With lists of their own for these, of the rows that count."""
    order, size = [found.order], np.zeros(len(doubtful), np.int64)
    for block in blocks(found.hi[doubtful] - found.lo[doubtful]):
        owner, row = found.pairs(doubtful[block])
        size[block] = np.bincount(np.searchsorted(doubtful[block], owner), minlength=block.stop - block.start)
        order.append(row)
    ends = running(size) + len(found.order)
    lo, hi = found.lo.copy(), found.hi.copy()
    lo[doubtful], hi[doubtful] = ends[:-1], ends[1:]
    return replace(found, order=np.concatenate(order), lo=lo, hi=hi, inside=None)


# --- columns of annotations ---


def singles(tids: Ints) -> Ranges:
    """Each row is annotated with itself: what PG makes of its input."""
    return Ranges(tids, np.arange(len(tids)), np.arange(1, len(tids) + 1))


def nothing(count: int) -> Ranges:
    """Rows that no stream asked about has part in."""
    return Ranges(np.empty(0, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64))


def of_sets(sets: TidSets) -> Ranges:
    """Sets, each by itself, as a column."""
    return Ranges(sets.tids, sets.offsets[:-1], sets.offsets[1:])


def take(column: Ranges, index: Ints) -> Ranges:
    """The annotations of these rows; none where the index is -1."""
    if not len(column):
        return nothing(len(index))
    lo, hi = column.lo[index], column.hi[index]
    if (index < 0).any():
        hi = np.where(index < 0, lo, hi)
    return Ranges(column.base, lo, hi)


def stack(columns: Sequence[Ranges]) -> Ranges:
    """The columns one behind the other, each with its own list."""
    some = [c for c in columns if len(c)]
    if len(some) <= 1:
        return some[0] if some else nothing(0)
    ahead = running([len(c.base) for c in some])[:-1].tolist()
    lo, hi = ([getattr(c, end) + at for c, at in zip(some, ahead, strict=True)] for end in ("lo", "hi"))
    return Ranges(np.concatenate([c.base for c in some]), np.concatenate(lo), np.concatenate(hi))


def unite(column: Ranges, lo: Ints, hi: Ints) -> Ranges:
    """For each k the union of the annotations of rows `lo[k]` to `hi[k] - 1`: one range where it is one.

    >>> sliding = Ranges(np.array([3, 5, 8, 9]), lo=np.array([0, 1, 2]), hi=np.array([2, 3, 4]))
    >>> windows = unite(sliding, np.array([0, 1]), np.array([2, 3]))
    >>> windows.sets().lists(), windows.base is sliding.base
    ([[3, 5, 8], [5, 8, 9]], True)
    """
    some = np.flatnonzero(column.hi > column.lo)
    first, stop = np.searchsorted(some, lo), np.searchsorted(some, hi)
    made = nothing(len(lo))
    if not len(some):
        return made
    sets = Ranges(column.base, column.lo[some], column.hi[some])
    filled = np.flatnonzero(stop > first)
    left = _spanned(made, sets, filled, first, stop)
    if left is None:
        return Ranges(column.base, *_bounds(len(lo), sets, filled, first, stop))
    made, filled = left
    if len(filled):
        relisted = _relisted(sets)
        again = _spanned(made, relisted, filled, first, stop, listed=True)
        assert again is not None
        made, filled = again
        if len(filled):
            raw = Ranges(relisted.base, *(b[filled] for b in _bounds(len(lo), relisted, filled, first, stop)))
            made = _put(made, filled, of_sets(sorted_unique(raw)))
    return made


def _bounds(count: int, sets: Ranges, which: Ints, first: Ints, stop: Ints) -> tuple[Ints, Ints]:
    lo, hi = np.zeros(count, np.int64), np.zeros(count, np.int64)
    lo[which], hi[which] = sets.lo[first[which]], sets.hi[stop[which] - 1]
    return lo, hi


def _spanned(
    made: Ranges, sets: Ranges, which: Ints, first: Ints, stop: Ints, *, listed: bool = False
) -> tuple[Ranges, Ints] | None:
    """From the first to the last of its sets each union is a range of their list, where that holds nothing else.

    What was made and for which unions it could not be; None if all of them could. `listed`: the list holds nothing
    between two sets.
    """
    lo, hi = (b[which] for b in _bounds(len(made), sets, which, first, stop))
    fits = np.ones(len(which), np.bool_)
    if not listed:
        gaps = running((~_linked(sets)).astype(np.int64))
        fits = gaps[stop[which] - 1] == gaps[first[which]]
    fits &= (stop[which] - first[which] == 1) | _distinct(sets.base, lo, hi, fits)
    if fits.all() and not listed:
        return None
    done = which[fits]
    return _put(made, done, Ranges(sets.base, lo[fits], hi[fits])), which[~fits]


def _linked(sets: Ranges) -> Bools:
    """Whether a set is followed by one that slides on from it, or starts where it ends."""
    lo, hi = sets.lo, sets.hi
    linked: Bools = (lo[1:] >= lo[:-1]) & (lo[1:] <= hi[:-1]) & (hi[1:] >= hi[:-1])
    return linked


def _relisted(sets: Ranges) -> Ranges:
    """The same sets, none empty, over a list in their own order; one that slides on adds to it what is new alone."""
    start = sets.lo.copy()
    linked = _linked(sets)
    start[1:][linked] = sets.hi[:-1][linked]
    hi = np.cumsum(sets.hi - start)
    return Ranges(gather(sets.base, start, sets.hi), hi - (sets.hi - sets.lo), hi)


def _distinct(base: Ints, lo: Ints, hi: Ints, asked: Bools) -> Bools:
    """Which of the ranges asked about hold each tid once: those that ascend, and all if the list does so."""
    steady = ascends(base, lo, hi)
    if steady[asked].all():
        return steady
    low, high = int(lo[asked].min()), int(hi[asked].max())
    return np.ones(len(lo), np.bool_) if len(np.unique(base[low:high])) == high - low else steady


def _put(column: Ranges, at: Ints, other: Ranges) -> Ranges:
    """The column with the annotations of another at these rows."""
    if not len(at):
        return column
    lo, hi, ahead = column.lo.copy(), column.hi.copy(), len(column.base)
    lo[at], hi[at] = other.lo + ahead, other.hi + ahead
    return Ranges(np.concatenate([column.base, other.base]) if ahead else other.base, lo, hi)


def trimmed(column: Ranges) -> Ranges:
    """The same over a list with no more in it than the rows need: what is kept between epochs."""
    some = np.flatnonzero(column.hi > column.lo)
    return _put(nothing(len(column)), some, _relisted(Ranges(column.base, column.lo[some], column.hi[some])))


def in_order(column: Ranges) -> Ranges:
    """The same sets ascending."""
    unsorted = np.flatnonzero(~ascends(column.base, column.lo, column.hi))
    if not len(unsorted):
        return column
    return _put(column, unsorted, of_sets(sorted_unique(take(column, unsorted))))


def locate(places: Places, wanted: Places) -> Ints:
    """For each place wanted its index among places that ascend; -1 if it is not there."""
    if len(places) == len(wanted) and (places.stamp == wanted.stamp).all() and (places.pos == wanted.pos).all():
        return np.arange(len(places))
    return places.find(wanted)
