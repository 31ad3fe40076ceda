"""Encoded sets of tuple ids, read back: every value is checked before anything is made of it.

What the bytes mean stands in `clew.model.encodings`. Nothing here trusts them: a count must agree with the
bytes that are there, and memory is taken only for what has been checked.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.errors import EncodingError
from clew.model import varints
from clew.model.ranges import each_in, running
from clew.model.rows import Bools, Ints
from clew.model.tid_sets import Ranges, blocks

PLAIN, LIST, INTERVALS = 1, 2, 3
DELTA, LZ = 16, 32
FORM = 15  # the bits of a tag that hold one of the three forms
TAGS = [PLAIN, LIST, INTERVALS, LIST | DELTA, INTERVALS | DELTA]
KNOWN = np.isin(np.arange(256), [*TAGS, *(tag | LZ for tag in TAGS)])
PLAIN_HEAD = 9  # bytes before the tids of a plain value: tag and count

CHAIN = 64  # no value is relative to more than 63 before it
TOO_DEEP = f"is relative to more than {CHAIN - 1} before it"
MOST_TIDS = 1 << 27  # 1 GiB of tids
CODEC = "snappy"
EXPANDS = 22  # Snappy's densest element makes 64 bytes of 3


@dataclass(frozen=True, eq=False)
class _Values:
    """Bytes of values, the first of which is the `first` of its column."""

    data: varints.Bytes
    offsets: Ints
    first: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        return np.diff(self.offsets)

    def part(self, block: slice) -> _Values:
        offsets = self.offsets[block.start : block.stop + 1]
        return _Values(self.data[offsets[0] : offsets[-1]], offsets - offsets[0], self.first + block.start)

    def tags(self) -> NDArray[np.uint8]:
        return self.data[self.offsets[:-1]]

    def refuse(self, bad: Bools, what: str, hint: str | None = None) -> None:
        """Refuse the first value that is bad."""
        if bad.any():
            raise EncodingError(f"value {self.first + int(bad.argmax())} {what}", hint=hint)


@dataclass(frozen=True)
class _Limit:
    """How many tids may be made of values: those of the shared list, or with `whole` of all sets together."""

    most: int
    whole: bool
    made: int = 0

    @property
    def left(self) -> int:
        # Sums of numbers up to this stay within 64 bits
        return min(self.most, 1 << 40) - self.made

    def after(self, made: Ranges) -> _Limit:
        count = int((made.hi - made.lo).sum()) if self.whole else len(made.base)
        return replace(self, made=self.made + count)

    def hold(self, values: _Values, beyond: Bools) -> None:
        hint = "decode fewer values at once, or raise most_tids"
        values.refuse(beyond, f"brings the sets to more than {self.most} tids", hint)


@dataclass(frozen=True, eq=False)
class _Runs:
    """Runs of tids of all values: the step from the last tid to the first of the run, and how many follow that."""

    of_value: Ints  # where the runs of each value start, and where they end
    step: Ints
    follow: Ints | None  # None: no run is longer than one

    @property
    def counts(self) -> Ints:
        return np.diff(self.of_value)


def read(array: pa.Array, most_tids: int, whole: bool) -> Ranges:
    """All values; see `decode` and `decode_ranges`."""
    values, limit = _values(array, 0, len(array)), _Limit(most_tids, whole)
    nothing = np.empty(0, np.int64)
    parts, length = [Ranges(nothing, nothing, nothing)], 0
    for block in _blocks(values):
        part = _ranges(values.part(block), limit)
        limit = limit.after(part)
        parts.append(Ranges(part.base, part.lo + length, part.hi + length))
        length += len(part.base)
    return Ranges(*(np.concatenate(each) for each in zip(*((p.base, p.lo, p.hi) for p in parts), strict=True)))


def read_one(array: pa.Array, i: int, most_tids: int) -> Ints:
    """One value; see `decode_one`."""
    i = operator.index(i)
    if not 0 <= i < len(array):
        raise EncodingError(f"value {i} is not there: there are {len(array)}")
    window = max(0, i + 1 - CHAIN)
    offsets, size = _offsets(array, window, i + 1)
    data = _data(array)
    some = np.flatnonzero((np.diff(offsets) > 0) & (offsets[:-1] >= 0) & (offsets[:-1] < min(size, len(data))))
    relative = np.zeros(len(offsets) - 1, np.bool_)
    relative[some] = (data[offsets[:-1][some]] & DELTA) != 0
    if relative.all() and window:
        raise EncodingError(f"value {i} {TOO_DEEP}")
    start = window if relative.all() else window + int(np.flatnonzero(~relative)[-1])
    return _ranges(_values(array, start, i + 1), _Limit(most_tids, False))[-1]


def words(data: varints.Bytes) -> Ints:
    """The eight bytes from each byte on, as numbers, without a copy. Assumes: at least eight bytes."""
    return np.ndarray((len(data) - 7,), np.dtype("<i8"), data, strides=(1,))


def _data(array: pa.Array) -> varints.Bytes:
    buffer = array.buffers()[2]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _offsets(array: pa.Array, start: int, stop: int) -> tuple[Ints, int]:
    """Where the values lie in the data, and how long that is."""
    if array.type not in (pa.large_binary(), pa.binary()):
        raise EncodingError(f"encoded sets are large_binary, not {array.type}")
    buffer = array.buffers()[1]
    wide = np.int64 if array.type == pa.large_binary() else np.int32
    each = np.empty(0, wide) if buffer is None else np.frombuffer(buffer, wide, buffer.size // np.dtype(wide).itemsize)
    offsets = each[array.offset + start : array.offset + stop + 1].astype(np.int64)
    if start == stop:
        offsets = np.zeros(1, np.int64)
    if len(offsets) != stop - start + 1:
        raise EncodingError(f"value {start + max(0, len(offsets) - 1)} lies nowhere: the offsets end before it")
    return offsets, len(_data(array))


def _values(array: pa.Array, start: int, stop: int) -> _Values:
    """The values of a part of a column, each of at least one byte that lies within the data."""
    offsets, size = _offsets(array, start, stop)
    values = _Values(_data(array), offsets, start)
    part = array.slice(start, stop - start)
    if part.null_count:
        values.refuse(np.asarray(part.is_null().to_numpy(zero_copy_only=False), np.bool_), "is null")
    values.refuse((offsets[:-1] < 0) | (values.sizes < 0) | (offsets[1:] > size), "does not lie within the data")
    values.refuse(values.sizes == 0, "is empty: not even a tag")
    return _Values(values.data[offsets[0] : offsets[-1]], offsets - offsets[0], start)


def _blocks(values: _Values) -> Iterator[slice]:
    """The values in parts that can be read by themselves: each starts with one that is not relative."""
    alone = (values.tags() & DELTA) == 0
    alone[:1] = True
    chains = np.append(np.flatnonzero(alone), len(values))
    for block in blocks(np.diff(values.offsets[chains])):
        yield slice(int(chains[block.start]), int(chains[block.stop]))


def _ranges(values: _Values, limit: _Limit) -> Ranges:
    tags = values.tags()
    if not KNOWN[tags].all():
        bad = ~KNOWN[tags]
        values.refuse(bad, f"has the unknown tag {int(tags[bad.argmax()])}")
    relative = (tags & DELTA) != 0
    at = np.arange(len(values))
    origin = np.maximum.accumulate(np.where(relative, -1, at))
    values.refuse(origin < 0, "is relative to the one before, and there is none")
    values.refuse(at - origin >= CHAIN, TOO_DEEP)
    values = _expanded(values, (tags & LZ) != 0)
    runs, skip = _runs(values, tags & np.uint8(FORM), relative)
    return _placed(values, runs, skip, origin, limit)


def _expanded(values: _Values, compressed: Bools) -> _Values:
    """The values without their compression; each keeps the place of its tag."""
    if not compressed.any():
        return values
    sizes = values.sizes.copy()
    pieces: list[memoryview | bytes] = []
    whole, done = values.data.data, 0
    for i in np.flatnonzero(compressed).tolist():
        start, stop = int(values.offsets[i]), int(values.offsets[i + 1])
        body = _decompressed(whole[start + 1 : stop], values.first + i)
        pieces += [whole[done : start + 1], body]
        sizes[i], done = 1 + len(body), stop
    data = np.frombuffer(b"".join([*pieces, whole[done:]]), np.uint8)
    return _Values(data, np.append(0, np.cumsum(sizes)), values.first)


def _decompressed(body: memoryview, i: int) -> bytes:
    # Asked for more than there is, the codec would leave memory as it found it: the size must be its own
    size = 0
    for at, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < varints.MORE:
            break
    else:
        raise EncodingError(f"value {i} is compressed, but does not say how much comes out")
    if size > EXPANDS * len(body):
        raise EncodingError(f"value {i} claims to expand from {len(body)} bytes to {size}: too many")
    try:
        expanded: bytes = pa.decompress(pa.py_buffer(body), decompressed_size=size, codec=CODEC, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise EncodingError(f"value {i} cannot be decompressed", details=[str(error)]) from error
    return expanded


def _runs(values: _Values, form: NDArray[np.uint8], relative: Bools) -> tuple[_Runs, Ints]:
    """The runs of all values, whatever their form, and what each relative value skips."""
    plain, intervals = form == PLAIN, form == INTERVALS
    skip = np.zeros(len(values), np.int64)
    if plain.all():
        counts = _plain_counts(values, plain)
        return _Runs(np.append(0, np.cumsum(counts)), _plain_steps(values, plain, counts), None), skip

    numbers, of_value = _numbers(values, ~plain)
    body = of_value[:-1] + 2 + relative
    values.refuse(~plain & (of_value[1:] < body), "is cut short: its count is missing")
    packed = np.flatnonzero(~plain)
    skip[relative] = numbers[of_value[:-1][relative] + 1]
    counts = np.zeros(len(values), np.int64)
    counts[packed] = numbers[body[packed] - 1]
    there = of_value[1:] - body
    lies = ~plain & np.where(intervals, (there % 2 != 0) | (counts != there // 2), counts != there)
    if lies.any():
        i = int(lies.argmax())
        what = "intervals" if intervals[i] else "tids"
        values.refuse(lies, f"announces {int(counts[i])} {what}, but has {int(there[i])} numbers")
    if plain.any():
        counts[plain] = _plain_counts(values, plain)

    runs_of = np.append(0, np.cumsum(counts))
    step = np.empty(int(runs_of[-1]), np.int64)
    follow = np.zeros(len(step), np.int64) if intervals.any() else None
    lists = np.flatnonzero(~plain & ~intervals)
    step[each_in(runs_of[lists], runs_of[lists + 1])] = numbers[each_in(body[lists], of_value[lists + 1])] + 1
    if plain.any():
        step[np.repeat(plain, counts)] = _plain_steps(values, plain, counts[plain])
    if follow is not None:
        some = np.flatnonzero(intervals)
        run, number = each_in(runs_of[some], runs_of[some + 1]), each_in(body[some], of_value[some + 1])
        left_out, follow[run] = numbers[number[::2]], numbers[number[1::2]]
        later = np.ones(len(step), np.bool_)
        later[runs_of[some[counts[some] > 0]]] = False
        over = later[run] & (left_out > np.iinfo(np.int64).max - 2)
        values.refuse(_holding(runs_of, run[over]), "has a tid beyond 64 bits")
        step[run] = left_out + 1 + later[run]
    return _Runs(runs_of, step, follow), skip


def _plain_counts(values: _Values, plain: Bools) -> Ints:
    """How many tids the plain values have."""
    sizes = values.sizes
    values.refuse(plain & (sizes < PLAIN_HEAD), "is cut short: its count is missing")
    counts = np.zeros(len(values), np.int64)
    counts[plain] = words(values.data)[values.offsets[:-1][plain] + 1] if plain.any() else 0
    room = sizes - PLAIN_HEAD
    lies = plain & ((counts != room // 8) | (room % 8 != 0))
    if lies.any():
        i = int(lies.argmax())
        values.refuse(lies, f"announces {int(counts[i])} tids, but has {int(room[i])} bytes of them")
    return counts[plain]


def _plain_steps(values: _Values, plain: Bools, counts: Ints) -> Ints:
    """From tid to tid of the plain values, from -1 to the first of each."""
    if not len(values) or not counts.any():
        return np.empty(0, np.int64)
    first = np.cumsum(counts) - counts
    start = values.offsets[:-1][plain] + PLAIN_HEAD
    tids = words(values.data)[8 * np.arange(int(counts.sum())) + np.repeat(start - 8 * first, counts)]
    of_value = np.zeros(len(values) + 1, np.int64)
    of_value[1:][plain] = counts
    of_value = np.cumsum(of_value)
    values.refuse(_holding(of_value, np.flatnonzero(tids < 0)), "has a tid below zero")
    step: Ints = np.diff(tids, prepend=np.int64(-1))
    heads = first[counts > 0]
    step[heads] = tids[heads] + 1
    falls = step <= 0
    falls[heads] = False
    values.refuse(_holding(of_value, np.flatnonzero(falls)), "does not ascend")
    return step


def _numbers(values: _Values, packed: Bools) -> tuple[Ints, Ints]:
    """All numbers of the values that are varints, and where each value's start; the others have none."""
    data, sizes = values.data, np.where(packed, values.sizes, 0)
    if not packed.all():
        data = data[np.repeat(packed, values.sizes)]
    limits = np.append(0, np.cumsum(sizes))
    cut = np.zeros(len(values), np.bool_)
    cut[packed] = data[limits[1:][packed] - 1] >= varints.MORE
    values.refuse(cut, "is cut short within a number")
    ends = varints.ends(data)
    starts = np.append(0, ends[:-1])[: len(ends)]
    of_value = np.searchsorted(ends, limits, side="right")
    lengths = ends - starts
    long = np.flatnonzero(lengths > varints.LONGEST)
    values.refuse(_holding(of_value, long), "has a number of more than 63 bits")
    padded = np.flatnonzero((lengths > 1) & (data[ends - 1] == 0))
    values.refuse(_holding(of_value, padded), "has a number written longer than it is")
    return varints.read(data, starts, lengths), of_value


def _placed(values: _Values, runs: _Runs, skip: Ints, origin: Ints, limit: _Limit) -> Ranges:
    """The tids of all runs one behind the other, and of each set the range of them that it is."""
    if runs.follow is not None:
        limit.hold(values, _holding(runs.of_value, np.flatnonzero(runs.follow >= limit.left)))
    length = 0 if runs.follow is None else runs.follow
    tids_before = runs.of_value if runs.follow is None else running(runs.follow + 1)[runs.of_value]
    limit.hold(values, tids_before[1:] > limit.left)

    sums = running(runs.step + length)
    last = sums[1:] - np.repeat(sums[runs.of_value[:-1][origin]] + 1, runs.counts)
    first = last - length
    # A sum beyond 63 bits has wrapped once, to below zero
    values.refuse(_holding(runs.of_value, np.flatnonzero((last < 0) | (first < 0))), "has a tid beyond 64 bits")

    hi = tids_before[1:]
    chain_at = tids_before[:-1][origin]
    values.refuse(skip > tids_before[:-1] - chain_at, "skips more than the set before it has")
    skipped = np.cumsum(skip)
    lo = chain_at + skipped - skipped[origin]
    values.refuse(lo > tids_before[:-1], "skips more than the set before it has")
    if limit.whole:
        limit.hold(values, np.cumsum(hi - lo) > limit.left)
    return Ranges(last if runs.follow is None else each_in(first, last + 1), lo, hi)


def _holding(of_value: Ints, at: Ints) -> Bools:
    """Which values hold one of these places."""
    held = np.zeros(len(of_value) - 1, np.bool_)
    held[np.searchsorted(of_value, at, side="right") - 1] = True
    return held
