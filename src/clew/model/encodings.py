"""Sets of tuple ids as bytes, one value for each set: the encodings of Stream Provenance, §5.

A value is a tag byte and a body, so a column may mix them. Except in the plain form all numbers are varints.

| form | body |
|---|---|
| plain | the count, then each tid, eight bytes each |
| list | the count, then for each tid how many are left out before it |
| intervals | how many, then for each how many tids are left out before it, and how many follow its first |

Between two intervals one tid at least is left out, and is not counted.

With `DELTA` a value is relative to the one before: how many of that one's first tids to skip, then what to
append, in one of the last two forms, as if it went on behind the last tid. A set written whole stands at least
at every 64th place. So `delta` and `adaptive` values keep their meaning only beside their neighbours: a column
of them is not to be filtered or reordered before it is decoded.

With `LZ` all behind the tag is compressed: Snappy, of the LZ77 family, which says and checks how much comes out.

    {1, 2, 3, 4, 6, 7, 8}                  intervals 2: 1 3, 0 2
    {1, 3, 5, 7, 9}, {3, 5, 7, 9, 11}      list 5: 1 1 1 1 1; delta, skip 1, list 1: 1
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.errors import EncodingError, nearest
from clew.model import varints
from clew.model.encoded import (
    CHAIN,
    CODEC,
    DELTA,
    FORM,
    INTERVALS,
    LIST,
    LZ,
    MOST_TIDS,
    PLAIN,
    PLAIN_HEAD,
    read,
    read_one,
    words,
)
from clew.model.ranges import each_in, running
from clew.model.rows import Bools, Ints
from clew.model.tid_sets import Ranges, TidSets, blocks

Encoding = Literal["single", "interval", "delta", "lz", "adaptive"]

LZ_FROM = 256  # bytes from which a value is worth an attempt at compression


def encode(sets: TidSets | Ranges, how: Encoding = "adaptive") -> pa.Array:
    """One binary value for each set.

    - `single`: the plain form, the paper's baseline.
    - `interval`: intervals throughout.
    - `delta`: a set that slides on from the one before as skip and append, any other as a list.
    - `lz`: the plain form compressed, where that makes it smaller.
    - `adaptive`: the paper's heuristic. The smallest of the three forms; relative to the set before, if at
      least half of the set was in that one and it is smaller so; compressed, if it is still long and
      becomes smaller. Never larger than `single`.

    Of `Ranges` no set is ever materialised, unless its encoding is as long as that: slides are seen from the
    bounds alone.

    >>> [len(value.as_py()) for value in encode(TidSets.of([{1, 3, 5, 7, 9}, {3, 5, 7, 9, 11}]), "delta")]
    [7, 4]
    """
    if how not in get_args(Encoding):
        raise EncodingError(
            f"no encoding is called {how!r}",
            details=[f"encodings: {', '.join(get_args(Encoding))}"],
            hint=nearest(how, get_args(Encoding)),
        )
    ranges = sets if isinstance(sets, Ranges) else Ranges(sets.tids, sets.offsets[:-1], sets.offsets[1:])
    ranges.check()
    if isinstance(sets, TidSets) and how in ("delta", "adaptive"):
        ranges = Ranges.shared(sets)
    plan = _planned(ranges, how)
    parts, sizes = [], [np.zeros(1, np.int64)]
    for block in blocks(plan.numbers()):
        data, size = _written(plan, block)
        if how in ("lz", "adaptive"):
            data, size = _compressed(data, size, LZ_FROM if how == "adaptive" else 0)
        parts.append(data)
        sizes.append(size)
    offsets = np.cumsum(np.concatenate(sizes))
    joined = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ranges), [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )


def decode(values: pa.Array, most_tids: int = MOST_TIDS) -> TidSets:
    """The sets that were encoded. Bytes that `encode` cannot have written raise `EncodingError`.

    Few bytes can stand for very many tids; no more than `most_tids` are made of them.
    """
    return decode_ranges(values, most_tids, whole=True).sets()


def decode_ranges(values: pa.Array, most_tids: int = MOST_TIDS, *, whole: bool = False) -> Ranges:
    """The sets as ranges of a shared list, in which a delta takes only the place of what it appends.

    `most_tids` bounds the list, or with `whole` all sets together.
    """
    return read(values, most_tids, whole)


def decode_one(values: pa.Array, i: int, most_tids: int = MOST_TIDS) -> Ints:
    """The i-th set alone: reads its value and those that it is relative to, at most 64 (lazy retrieval, §5).

    >>> decode_one(encode(TidSets.of([{1, 3, 5}, {3, 5, 7}])), 1).tolist()
    [3, 5, 7]
    """
    return read_one(values, i, most_tids)


@dataclass(frozen=True, eq=False)
class _Base:
    """A list of tids as gaps and as runs, and what ranges of it cost in bytes."""

    tids: Ints

    @cached_property
    def _gap_or_fall(self) -> Ints:
        return np.diff(self.tids, prepend=np.int64(-1)) - 1

    @cached_property
    def gap(self) -> Ints:
        """How many tids are left out before each one; 0 where the list falls, which is never inside a set."""
        return np.maximum(self._gap_or_fall, 0)

    @cached_property
    def run_at(self) -> Ints:
        """Where the runs of neighbouring tids start, and the end of the last."""
        starts = self._gap_or_fall != 0
        starts[:1] = True
        return np.append(np.flatnonzero(starts), len(self.tids))

    @cached_property
    def run_gap(self) -> Ints:
        """How many tids are left out before each run, less the one that must be."""
        return np.maximum(self.gap[self.run_at[:-1]] - 1, 0)

    def runs(self, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """The first run that each range has a part in, and one behind the last. An empty range has none."""
        first = np.searchsorted(self.run_at, lo, side="right") - 1
        return first, np.where(hi > lo, np.searchsorted(self.run_at, hi, side="left"), first)

    def first_gap(self, at: Ints, whole: Bools) -> Ints:
        """The gap before the first tid of a set that is written whole, or of what is appended."""
        return np.where(whole, self.tids[at], self.gap[at])

    @cached_property
    def _list_bytes(self) -> Ints:
        return running(varints.size(self.gap))

    @cached_property
    def _run_bytes(self) -> Ints:
        return running(varints.size(self.run_gap) + varints.size(np.diff(self.run_at) - 1))

    def list_size(self, lo: Ints, hi: Ints, whole: Bools) -> Ints:
        """The bytes of the body of a list."""
        size = varints.size(hi - lo)
        some = np.flatnonzero(hi > lo)
        lo, hi = lo[some], hi[some]
        size[some] += varints.size(self.first_gap(lo, whole[some])) + self._list_bytes[hi] - self._list_bytes[lo + 1]
        return size

    def intervals_size(self, lo: Ints, hi: Ints, whole: Bools) -> Ints:
        """The bytes of the body of intervals; the first and last run may be cut."""
        first, until = self.runs(lo, hi)
        size = varints.size(until - first)
        some = np.flatnonzero(hi > lo)
        lo, hi, first, last = lo[some], hi[some], first[some], until[some] - 1
        head = varints.size(self.first_gap(lo, whole[some])) + varints.size(
            np.minimum(self.run_at[first + 1], hi) - lo - 1
        )
        tail = self._run_bytes[last] - self._run_bytes[np.minimum(first + 1, last)]
        tail += varints.size(self.run_gap[last]) + varints.size(hi - 1 - np.minimum(self.run_at[last], hi - 1))
        size[some] += head + np.where(last > first, tail, 0)
        return size


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is written of each set: its tag, how much of the one before it skips, and which tids of the base."""

    base: _Base
    tag: NDArray[np.uint8]
    skip: Ints
    lo: Ints
    hi: Ints

    def numbers(self) -> Ints:
        """About how many numbers each value is made of."""
        return self.hi - self.lo + 3


def _planned(ranges: Ranges, how: Encoding) -> _Plan:
    base, lo, hi = _Base(ranges.base), ranges.lo, ranges.hi
    whole = np.ones(len(ranges), np.bool_)
    if how in ("single", "lz"):
        tag = np.full(len(ranges), PLAIN, np.uint8)
    elif how == "interval":
        tag = np.full(len(ranges), INTERVALS, np.uint8)
    elif how == "delta":
        tag = np.full(len(ranges), LIST, np.uint8)
    else:
        sizes = np.stack(
            [8 * (hi - lo) + PLAIN_HEAD - 1, base.list_size(lo, hi, whole), base.intervals_size(lo, hi, whole)]
        )
        tag = np.array([PLAIN, LIST, INTERVALS], np.uint8)[_smallest(sizes)]
    skip = np.zeros(len(ranges), np.int64)
    if how not in ("delta", "adaptive") or len(ranges) < 2:
        return _Plan(base, tag, skip, lo, hi)

    slides = np.zeros(len(ranges), np.bool_)
    slides[1:] = (lo[:-1] <= lo[1:]) & (lo[1:] < hi[:-1]) & (hi[:-1] <= hi[1:])
    skip[1:] = np.where(slides[1:], lo[1:] - lo[:-1], 0)
    new = lo.copy()
    new[slides] = hi[np.flatnonzero(slides) - 1]
    appended = np.full(len(ranges), LIST, np.uint8)
    if how == "adaptive":
        options = np.stack([base.list_size(new, hi, ~slides), base.intervals_size(new, hi, ~slides)])
        appended = np.array([LIST, INTERVALS], np.uint8)[_smallest(options)]
        slides &= 2 * (new - lo) >= hi - lo
        slides &= options.min(axis=0) + varints.size(skip) < sizes.min(axis=0)
    slides &= _depth(slides) % CHAIN != 0
    return _Plan(
        base,
        np.where(slides, appended | DELTA, tag).astype(np.uint8),
        np.where(slides, skip, 0),
        np.where(slides, new, lo),
        hi,
    )


def _smallest(sizes: Ints) -> NDArray[np.intp]:
    """Of each column the row of its least number."""
    return np.asarray(np.argmin(sizes, axis=0))


def _depth(slides: Bools) -> Ints:
    """How many steps back the last set lies that is no slide."""
    at = np.arange(len(slides))
    return at - np.maximum.accumulate(np.where(slides, 0, at))


def _written(plan: _Plan, block: slice) -> tuple[varints.Bytes, Ints]:
    """The values of a block one behind the other, and their sizes."""
    tag = plan.tag[block]
    plain = tag == PLAIN
    if plain.all():
        return _plain(plan.base.tids, plan.lo[block], plan.hi[block])
    if not plain.any():
        return _varints(plan, np.arange(block.start, block.stop))
    sizes = np.empty(len(tag), np.int64)
    at = np.arange(block.start, block.stop)
    packed, sizes[~plain] = _varints(plan, at[~plain])
    loose, sizes[plain] = _plain(plan.base.tids, plan.lo[at[plain]], plan.hi[at[plain]])
    data = np.empty(int(sizes.sum()), np.uint8)
    in_plain = np.repeat(plain, sizes)
    data[in_plain], data[~in_plain] = loose, packed
    return data, sizes


def _plain(tids: Ints, lo: Ints, hi: Ints) -> tuple[varints.Bytes, Ints]:
    count = hi - lo
    sizes = 8 * count + PLAIN_HEAD
    at = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    data[at] = PLAIN
    word = words(data)
    word[at + 1] = count
    first = np.cumsum(count) - count
    place = 8 * np.arange(int(count.sum())) + np.repeat(at + PLAIN_HEAD - 8 * first, count)
    word[place] = tids[each_in(lo, hi)]
    return data, sizes


def _varints(plan: _Plan, index: Ints) -> tuple[varints.Bytes, Ints]:
    """The values of these sets, none of which is plain: all their numbers, tags among them, then as bytes."""
    tag, lo, hi = plan.tag[index], plan.lo[index], plan.hi[index]
    delta = (tag & DELTA) != 0
    intervals = (tag & FORM) == INTERVALS
    first, until = plan.base.runs(lo, hi) if intervals.any() else (lo, hi)
    count = np.where(intervals, until - first, hi - lo)
    numbers_of = 2 + delta + np.where(intervals, 2 * count, count)
    at = np.cumsum(numbers_of) - numbers_of
    body = at + 2 + delta
    numbers = np.empty(int(numbers_of.sum()), np.int64)
    numbers[at] = tag
    numbers[at[delta] + 1] = plan.skip[index[delta]]
    numbers[body - 1] = count

    lists = np.flatnonzero(~intervals)
    numbers[each_in(body[lists], body[lists] + count[lists])] = plan.base.gap[each_in(lo[lists], hi[lists])]
    if intervals.any():
        _put_runs(numbers, body[intervals], plan.base, lo[intervals], hi[intervals])
    some = np.flatnonzero(hi > lo)
    numbers[body[some]] = plan.base.first_gap(lo[some], ~delta[some])
    data, sizes = varints.write(numbers)
    return data, np.add.reduceat(sizes, at) if len(at) else sizes


def _put_runs(numbers: Ints, body: Ints, base: _Base, lo: Ints, hi: Ints) -> None:
    """Gap and length of each run of each range; the first gap is the caller's."""
    first, until = base.runs(lo, hi)
    run = each_in(first, until)
    place = np.repeat(body - 2 * (np.cumsum(until - first) - (until - first)), until - first) + 2 * np.arange(len(run))
    start = np.maximum(base.run_at[run], np.repeat(lo, until - first))
    stop = np.minimum(base.run_at[run + 1], np.repeat(hi, until - first))
    numbers[place] = base.run_gap[run]
    numbers[place + 1] = stop - start - 1


def _compressed(data: varints.Bytes, sizes: Ints, longer_than: int) -> tuple[varints.Bytes, Ints]:
    """The values, each compressed that is longer than this and becomes smaller."""
    ends = np.cumsum(sizes)
    long = np.flatnonzero(sizes > longer_than)
    if not len(long):
        return data, sizes
    sizes = sizes.copy()
    pieces, done = [], 0
    whole = data.data
    for i in long.tolist():
        stop = int(ends[i])
        start = stop - int(sizes[i])
        smaller = pa.compress(whole[start + 1 : stop], codec=CODEC, asbytes=True)
        if 1 + len(smaller) < stop - start:
            pieces += [whole[done:start], bytes([data[start] | LZ]), smaller]
            sizes[i], done = 1 + len(smaller), stop
    return np.frombuffer(b"".join([*pieces, whole[done:]]), np.uint8), sizes
