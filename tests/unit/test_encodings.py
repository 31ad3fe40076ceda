"""Lineage as bytes: what goes in comes out, in few bytes, and bytes that nobody wrote are refused.

`test_*_by_hand` and the documented examples show the format; `test_*_comes_back` and the like are laws over
sliding, contiguous, random, empty and huge sets; `test_*_refused` and the mutations prove that what is read
was written.
"""

from __future__ import annotations

import contextlib
import doctest
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clew.errors import ClewError, EncodingError
from clew.model import encodings, tid_sets, varints
from clew.model.encodings import Encoding, decode, decode_one, decode_ranges, encode
from clew.model.rows import Ints
from clew.model.tid_sets import Ranges, TidSets

HOWS: tuple[Encoding, ...] = get_args(Encoding)
HUGE = 2**62
TIDS = st.one_of(st.integers(0, 30), st.integers(0, 2**40), st.integers(HUGE - 9, HUGE))


@st.composite
def sliding(draw: st.DrawFn) -> list[list[int]]:
    """Windows over one list: some repeat, some overlap, some do not, some are empty."""
    start = draw(st.sampled_from([0, 1, 127, HUGE - 10_000]))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5, 130]), min_size=1, max_size=60))
    base = np.cumsum([start, *gaps]).tolist()
    size, slide = draw(st.integers(0, 20)), draw(st.integers(0, 9))
    return [base[at : at + size] for at in range(0, len(base), slide or len(base))] * (1 if slide else 3)


RANDOM = st.lists(st.sets(TIDS, max_size=12).map(sorted), max_size=12)
CONTIGUOUS = st.lists(st.tuples(TIDS, st.integers(0, 40)).map(lambda r: list(range(r[0], r[0] + r[1]))), max_size=8)
MANY = st.builds(lambda few, times: few * times, RANDOM, st.integers(1, 30))
MIXED = st.tuples(sliding(), RANDOM, CONTIGUOUS).map(lambda parts: [*parts[0], *parts[1], *parts[2]])
SETS = st.one_of(sliding(), RANDOM, CONTIGUOUS, MANY, MIXED)
ANY_HOW = st.sampled_from(HOWS)


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def values_of(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.large_binary())


def windows(count: int, size: int, share: float) -> Ranges:
    """Windows of so many tids, sliding by one, over a random share of all tids."""
    rng = np.random.default_rng(5)
    base = np.flatnonzero(rng.random(int((count + size) / share * 1.2)) < share)[: count + size]
    assert len(base) == count + size
    at = np.arange(count)
    return Ranges(base, at, at + size)


@contextlib.contextmanager
def memory_below(most: float) -> Iterator[None]:
    """Fails if what is inside takes more bytes at its peak."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def byte_count(values: pa.Array) -> int:
    return sum(len(value.as_py()) for value in values)


def test_intervals_by_hand() -> None:
    [value] = encode(TidSets.of([{1, 2, 3, 4, 6, 7, 8}]), "interval").to_pylist()
    assert list(value) == [
        3,
        2,
        1,
        3,
        0,
        2,
    ]  # two: 1 left out, 1 and 3 more; 5 left out, 6 and 2 more


def test_delta_by_hand() -> None:
    first, second = encode(TidSets.of([{1, 3, 5, 7, 9}, {3, 5, 7, 9, 11}]), "delta").to_pylist()
    assert list(first) == [2, 5, 1, 1, 1, 1, 1]
    assert list(second) == [16 | 2, 1, 1, 1]  # skip 1, append one: leave out 10


def test_single_by_hand() -> None:
    [value] = encode(TidSets.of([{5, HUGE}]), "single").to_pylist()
    assert value == bytes([1]) + b"".join(number.to_bytes(8, "little") for number in (2, 5, HUGE))


def test_a_set_that_is_no_slide_is_written_whole_by_delta() -> None:
    sets = TidSets.of([{1, 3, 5}, {3, 7}, {8, 9}, set(), {1}])
    assert [value[0] for value in encode(sets, "delta").to_pylist()] == [2, 2, 2, 2, 2]


def test_adaptive_takes_of_each_set_what_suits_it() -> None:
    far_apart = list(range(0, HUGE, 2**58))  # gaps that need nine bytes
    scattered = list(range(0, 20_000, 40))
    sets = [list(range(10, 90)), [1, 5, 9, 20], [5, 9, 20, 21], [5, 9, 20, 21, *range(25, 60)], scattered, far_apart]
    tags = [value[0] for value in encode(TidSets.of(sets)).to_pylist()]
    assert tags == [3, 2, 16 | 2, 3, 32 | 2, 1]


def test_adaptive_appends_contiguous_tids_as_an_interval() -> None:
    sets = TidSets.of([range(1, 2000, 3), [*range(1, 2000, 3), *range(3000, 3500)]])
    assert encode(sets)[1].as_py()[0] == 16 | 3


@given(SETS, ANY_HOW)
@example([], "adaptive")
@example([[]], "delta")
@example([[0], [0, 2**63 - 1], [2**63 - 1]], "adaptive")
@example([[0], [0, 2**63 - 1], [2**63 - 1]], "interval")
@example([[2**63 - 2, 2**63 - 1]], "interval")
def test_every_encoding_comes_back(lists: list[list[int]], how: Encoding) -> None:
    values = encode(TidSets.of(lists), how)
    values.validate(full=True)
    assert values.type == pa.large_binary()
    assert decode(values).lists() == lists
    assert decode_ranges(values).sets().lists() == lists


@given(SETS, ANY_HOW)
def test_one_alone_is_what_it_is_among_all(lists: list[list[int]], how: Encoding) -> None:
    values = encode(TidSets.of(lists), how)
    assert [decode_one(values, i).tolist() for i in range(len(values))] == lists


@given(SETS, ANY_HOW)
def test_binary_with_narrow_offsets_reads_the_same(lists: list[list[int]], how: Encoding) -> None:
    values = encode(TidSets.of(lists), how).cast(pa.binary())
    assert decode(values).lists() == lists
    assert [decode_one(values, i).tolist() for i in range(len(values))] == lists


@given(SETS)
def test_adaptive_is_never_larger_than_single(lists: list[list[int]]) -> None:
    sets = TidSets.of(lists)
    single, adaptive = encode(sets, "single"), encode(sets)
    assert all(len(a) <= len(s) for a, s in zip(adaptive.to_pylist(), single.to_pylist(), strict=True))


@given(st.one_of(CONTIGUOUS, sliding(), RANDOM).filter(any), st.data())
def test_adaptive_writes_one_set_in_its_smallest_form(lists: list[list[int]], data: st.DataObject) -> None:
    tids = data.draw(st.sampled_from([tids for tids in [sorted(set().union(*lists)), *lists] if tids]))
    lo, hi = sorted(data.draw(st.tuples(st.integers(0, len(tids)), st.integers(0, len(tids)))))
    part = Ranges(ints(*tids), ints(lo), ints(hi))
    forms = [byte_count(encode(part, how)) for how in ("single", "interval", "delta")]
    assert byte_count(encode(part)) <= min(forms)


@given(SETS, ANY_HOW, st.data())
def test_ranges_of_a_list_come_back(lists: list[list[int]], how: Encoding, data: st.DataObject) -> None:
    sets = TidSets.of(lists)
    owner = st.integers(0, max(0, len(sets) - 1))
    picks = data.draw(st.lists(st.tuples(owner, st.integers(0, 20), st.integers(0, 20)), max_size=15 if lists else 0))
    lo = [int(sets.offsets[s]) + min(a, b, len(sets[s])) for s, a, b in picks]
    hi = [int(sets.offsets[s]) + min(max(a, b), len(sets[s])) for s, a, b in picks]
    ranges = Ranges(sets.tids, ints(*lo), ints(*hi))
    assert decode(encode(ranges, how)).lists() == [sets.tids[a:b].tolist() for a, b in zip(lo, hi, strict=True)]


@given(sliding(), ANY_HOW)
def test_sets_and_ranges_of_the_same_windows_are_the_same_bytes(lists: list[list[int]], how: Encoding) -> None:
    sets = TidSets.of(lists)
    assert encode(Ranges.shared(sets), how).equals(encode(sets, how))


@given(SETS)
def test_shared_ranges_are_the_sets_and_no_longer(lists: list[list[int]]) -> None:
    sets = TidSets.of(lists)
    shared = Ranges.shared(sets)
    assert shared.sets().lists() == lists
    assert [shared[i].tolist() for i in range(len(shared))] == lists
    assert len(shared.base) <= len(sets.tids)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    lists = [np.unique(rng.integers(0, top, 30)).tolist() for top in rng.choice([40, 10**6, HUGE], 50)]
    lists += windows(100, 20, 0.3).sets().lists()
    sets, lo, hi = TidSets.of(lists), np.arange(140), np.arange(140) + 10
    at_once = [encode(sets, how) for how in HOWS]
    union = sets.union_ranges(lo, hi).lists()
    monkeypatch.setattr(tid_sets, "BLOCK", 50)
    assert all(encode(sets, how).equals(values) for how, values in zip(HOWS, at_once, strict=True))
    assert all(decode(values).lists() == lists for values in at_once)
    assert all(decode_ranges(values).sets().lists() == lists for values in at_once)
    assert sets.union_ranges(lo, hi).lists() == union


def test_a_chain_of_deltas_starts_anew_within_64() -> None:
    values = encode(windows(1000, 100, 0.25), "delta").to_pylist()
    whole = [i for i, value in enumerate(values) if value[0] == 2]
    assert whole == list(range(0, 1000, 64))


def test_one_is_read_without_the_others() -> None:
    lists = windows(300, 50, 0.25).sets().lists()
    values = encode(TidSets.of(lists)).to_pylist()
    for i in (0, 63, 64, 150, 299):
        start = i - i % 64
        others = values_of(*(value if start <= k <= i else b"\xff" for k, value in enumerate(values)))
        assert decode_one(others, i).tolist() == lists[i]
        with pytest.raises(EncodingError, match="unknown tag 255"):
            decode(others)


def test_a_part_of_a_column_reads_as_that_part() -> None:
    lists = [[1], [2, 3], [], [9, 11], [7]]
    part = encode(TidSets.of(lists), "single").slice(1, 3)
    assert decode(part).lists() == lists[1:4]
    assert decode_one(part, 2).tolist() == [9, 11]


def test_windows_over_a_list_are_encoded_without_making_the_sets() -> None:
    ranges = windows(5_000, 20_000, 0.25)
    with memory_below(100e6):  # the sets would be 800 MB
        values = encode(ranges)
    assert decode_one(values, 4_321).tolist() == ranges[4_321].tolist()
    shared = decode_ranges(values)
    assert all((shared[i] == ranges[i]).all() for i in range(0, 5_000, 499))


def test_sliding_windows_take_a_few_bytes_each() -> None:
    ranges = windows(2_000, 100, 0.25)
    assert byte_count(encode(ranges, "single")) == 809 * 2_000
    assert byte_count(encode(ranges)) < 6 * 2_000


def test_compression_makes_plain_sets_smaller() -> None:
    ranges = windows(50, 500, 0.25)
    assert byte_count(encode(ranges, "lz")) < 0.7 * byte_count(encode(ranges, "single"))


@given(SETS, st.data())
def test_union_of_ranges_as_of_plain_sets(lists: list[list[int]], data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(lists)), st.integers(0, len(lists))).map(sorted)
    ranges = data.draw(st.lists(bounds, max_size=12))
    union = TidSets.of(lists).union_ranges(ints(*(lo for lo, _ in ranges)), ints(*(hi for _, hi in ranges)))
    assert union.lists() == [sorted(set().union(*lists[lo:hi])) for lo, hi in ranges]


def test_union_of_overlapping_windows_of_overlapping_sets_stays_small() -> None:
    sets = windows(20_000, 100, 0.25).sets()
    lo = np.arange(19_900)
    with memory_below(300e6):  # all tids of all sets of all windows would be 1.6 GB
        union = sets.union_ranges(lo, lo + 100)
    assert np.diff(union.offsets).tolist() == [199] * 19_900
    assert union[7].tolist() == sorted(set(sets.tids[sets.offsets[7] : sets.offsets[107]].tolist()))


@given(SETS, SETS, st.data())
def test_take_and_concat_as_of_lists(left: list[list[int]], right: list[list[int]], data: st.DataObject) -> None:
    both = TidSets.concat([TidSets.of(left), TidSets.of(right)])
    assert both.lists() == left + right
    index = data.draw(st.lists(st.integers(0, len(both) - 1), max_size=9)) if len(both) else []
    assert both.take(ints(*index)).lists() == [(left + right)[i] for i in index]


def test_no_parts_are_no_sets() -> None:
    assert TidSets.concat([]).lists() == []
    assert len(decode(encode(TidSets.of([])))) == 0


PLAIN_2 = bytes([1]) + (2).to_bytes(8, "little")
TOO_LONG = b"\xff" * 8 + b"\x7f"  # 2**63 - 1
REFUSED: dict[str, tuple[list[bytes | None], str]] = {
    "null": ([b"\x02\x00", None], "value 1 is null"),
    "nothing": ([b"\x02\x00", b""], "value 1 is empty: not even a tag"),
    "tag": ([b"\x02\x00", b"\x07\x00"], "value 1 has the unknown tag 7"),
    "plain delta": ([b"\x02\x00", b"\x11\x00"], "value 1 has the unknown tag 17"),
    "no count": ([b"\x02"], "value 0 is cut short: its count is missing"),
    "delta without count": ([b"\x02\x00", b"\x12\x00"], "value 1 is cut short: its count is missing"),
    "plain without count": ([b"\x01\x02\x00"], "value 0 is cut short: its count is missing"),
    "number cut": ([b"\x02\x01\x80"], "value 0 is cut short within a number"),
    "list cut": ([b"\x02\x03\x01\x01"], "value 0 announces 3 tids, but has 2 numbers"),
    "list too long": ([b"\x02\x01\x01\x01"], "value 0 announces 1 tids, but has 2 numbers"),
    "lying count": ([b"\x02" + TOO_LONG + b"\x01"], f"value 0 announces {2**63 - 1} tids, but has 1 numbers"),
    "intervals cut": ([b"\x03\x02\x01\x01\x01"], "value 0 announces 2 intervals, but has 3 numbers"),
    "plain cut": ([PLAIN_2 + bytes(8)], "value 0 announces 2 tids, but has 8 bytes of them"),
    "plain falls": ([PLAIN_2 + b"\x05" + bytes(7) + b"\x05" + bytes(7)], "value 0 does not ascend"),
    "plain negative": ([PLAIN_2 + b"\xff" * 8 + bytes(8)], "value 0 has a tid below zero"),
    "plain count negative": ([b"\x01" + b"\xff" * 8], "value 0 announces -1 tids, but has 0 bytes of them"),
    "first is delta": ([b"\x12\x00\x00"], "value 0 is relative to the one before, and there is none"),
    "skips all": ([b"\x02\x01\x05", b"\x12\x02\x01\x00"], "value 1 skips more than the set before it has"),
    "skips twice": (
        [b"\x02\x02\x05\x00", b"\x12\x02\x00", b"\x12\x01\x00"],
        "value 2 skips more than the set before it has",
    ),
    "huge skip": ([b"\x02\x01\x05", b"\x12" + TOO_LONG + b"\x00"], "value 1 skips more than the set before it has"),
    "long chain": ([b"\x02\x00"] + [b"\x12\x00\x00"] * 64, "value 64 is relative to more than 63 before it"),
    "long number": ([b"\x02\x01" + b"\xff" * 9 + b"\x01"], "value 0 has a number of more than 63 bits"),
    "padded number": ([b"\x02\x01\x80\x00"], "value 0 has a number written longer than it is"),
    "list overflows": ([b"\x02\x00", b"\x02\x02" + TOO_LONG + b"\x00"], "value 1 has a tid beyond 64 bits"),
    "delta overflows": ([b"\x02\x01" + TOO_LONG, b"\x12\x00\x01\x00"], "value 1 has a tid beyond 64 bits"),
    "gap overflows": ([b"\x03\x02\x00\x00" + TOO_LONG + b"\x00"], "value 0 has a tid beyond 64 bits"),
    "gap wraps to nothing": (
        [b"\x03\x02" + TOO_LONG + b"\x00" + TOO_LONG + b"\x00"],
        "value 0 has a tid beyond 64 bits",
    ),
    "interval overflows": ([b"\x03\x01" + TOO_LONG + b"\x01"], "value 0 has a tid beyond 64 bits"),
    "endless interval": ([b"\x03\x01\x00" + TOO_LONG], f"value 0 brings the sets to more than {2**27} tids"),
    "many intervals": (
        [b"\x03\x01\x00" + b"\xff\xff\xff\x1f"] * 3,  # 2**26 tids each
        f"value 2 brings the sets to more than {2**27} tids",
    ),
    "no compressed size": ([b"\x21"], "value 0 is compressed, but does not say how much comes out"),
    "bomb": (
        [b"\x21\xff\xff\xff\xff\x0f\x00"],
        "value 0 claims to expand from 6 bytes to 4294967295: too many",
    ),
    "garbage": ([b"\x02\x00", b"\x22\x05abcdef"], "value 1 cannot be decompressed"),
    "compressed nothing": ([b"\x22\x00"], "value 0 is cut short: its count is missing"),
}


ONE_BAD_VALUE = [case for case in REFUSED if case != "many intervals"]  # each of those alone is small enough


@pytest.mark.parametrize("case", REFUSED)
def test_what_nobody_wrote_is_refused(case: str) -> None:
    values, message = REFUSED[case]
    with memory_below(1e6), pytest.raises(EncodingError) as refused:
        decode(values_of(*values))
    assert refused.value.message == message
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, ClewError)


@pytest.mark.parametrize("case", ONE_BAD_VALUE)
def test_what_nobody_wrote_is_refused_in_whichever_block(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(tid_sets, "BLOCK", 1)
    values, message = REFUSED[case]
    with pytest.raises(EncodingError) as refused:
        decode(values_of(*values))
    assert refused.value.message == message


@pytest.mark.parametrize("case", ONE_BAD_VALUE)
def test_what_nobody_wrote_is_refused_alone(case: str) -> None:
    values, message = REFUSED[case]
    with pytest.raises(EncodingError) as refused:
        decode_one(values_of(*values), len(values) - 1)
    assert refused.value.message == message


@pytest.mark.parametrize("block", [1, tid_sets.BLOCK])
def test_most_tids_is_the_callers_to_raise(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(tid_sets, "BLOCK", block)
    values = encode(TidSets.of([range(100), range(50, 120)]), "interval")
    with pytest.raises(EncodingError, match=r"value 1 brings the sets to more than 169 tids") as refused:
        decode(values, most_tids=169)
    assert refused.value.hint == "decode fewer values at once, or raise most_tids"
    assert len(decode(values, most_tids=170)) == 2
    assert len(decode_one(values, 1, most_tids=70)) == 70
    shared = encode(TidSets.of([range(100), range(50, 120)]), "delta")
    assert len(decode_ranges(shared, most_tids=120).base) == 120
    with pytest.raises(EncodingError, match=r"value 1 brings the sets to more than 119 tids"):
        decode_ranges(shared, most_tids=119)


@pytest.mark.parametrize("i", [-1, 2])
def test_a_value_that_is_not_there_is_refused(i: int) -> None:
    with pytest.raises(EncodingError, match=f"value {i} is not there: there are 2"):
        decode_one(values_of(b"\x02\x00", b"\x02\x00"), i)


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, -3, 2], [0, 2**62, 2], [0, -(2**63), 2]])
def test_offsets_that_lead_elsewhere_are_refused(offsets: list[int]) -> None:
    buffers = [None, pa.py_buffer(ints(*offsets)), pa.py_buffer(b"\x02\x00")]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2, buffers)
    with pytest.raises(EncodingError, match=r"does not lie within the data"):
        decode(values)
    with pytest.raises(EncodingError, match=r"does not lie within the data"):
        decode_one(values, 1)


def test_another_type_is_refused() -> None:
    with pytest.raises(EncodingError, match="encoded sets are large_binary, not int64"):
        decode(pa.array([1]))


def test_sets_that_are_none_are_refused() -> None:
    for offsets, tids, message in (
        (ints(0, 1, 3), ints(1, 5, 5), "set 1 does not ascend"),
        (ints(0, 1, 3), ints(1, -5, 5), "set 1 holds a tid below zero"),
        (ints(0, 1, 4), ints(1, 3, 5), "set 1 does not lie in its list"),
        (ints(0, 2, 1), ints(1, 3, 5), "set 1 does not lie in its list"),
    ):
        for how in HOWS:
            with pytest.raises(EncodingError, match=message):
                encode(TidSets(offsets, tids), how)


def test_an_unknown_encoding_is_refused_with_a_hint() -> None:
    with pytest.raises(EncodingError, match=r"no encoding is called 'intervall'") as refused:
        encode(TidSets.of([]), "intervall")  # type: ignore[arg-type]
    assert refused.value.hint == "did you mean 'interval'?"


def accepted(values: pa.Array) -> TidSets | None:
    """The sets, if the bytes are taken for some; fails on any other error and on sets that are none."""
    try:
        sets = decode(values, most_tids=100_000)
    except EncodingError:
        return None
    assert len(sets) == len(values)
    Ranges(sets.tids, sets.offsets[:-1], sets.offsets[1:]).check()
    return sets


CHANGE = st.tuples(st.integers(0), st.sampled_from(["set", "flip", "cut", "insert", "drop"]), st.binary(min_size=1))


def changed(value: bytes, change: tuple[int, str, bytes]) -> bytes:
    at, what, new = change[0] % (len(value) + 1), change[1], change[2]
    if what == "set":
        return value[:at] + new + value[at + len(new) :]
    if what == "flip":
        return value[:at] + bytes([value[at] ^ new[0]]) + value[at + 1 :] if at < len(value) else value
    if what == "cut":
        return value[:at]
    return value[:at] + new + value[at:] if what == "insert" else value[:at] + value[at + 1 :]


@given(SETS.filter(bool), ANY_HOW, st.lists(st.tuples(st.integers(0), CHANGE), min_size=1, max_size=3))
def test_changed_bytes_are_refused_or_are_sets(
    lists: list[list[int]], how: Encoding, changes: list[tuple[int, tuple[int, str, bytes]]]
) -> None:
    mutated = encode(TidSets.of(lists), how).to_pylist()
    for which, change in changes:
        mutated[which % len(mutated)] = changed(mutated[which % len(mutated)], change)
    values = values_of(*mutated)
    sets = accepted(values)
    for i in range(len(values)):
        try:
            one = decode_one(values, i, most_tids=100_000).tolist()
        except EncodingError:
            assert sets is None
        else:
            assert sets is None or one == sets[i].tolist()


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 18, 19, 33, 34, 35, 50, 51]), st.binary(max_size=12)), max_size=6))
def test_any_bytes_are_refused_or_are_sets(values: list[tuple[int, bytes]]) -> None:
    accepted(values_of(*(bytes([tag]) + body for tag, body in values)))


@given(SETS.filter(bool), ANY_HOW, st.integers(0), st.integers(0))
def test_a_value_cut_short_is_refused(lists: list[list[int]], how: Encoding, which: int, at: int) -> None:
    values = encode(TidSets.of(lists), how).to_pylist()
    i = which % len(values)
    values[i] = values[i][: at % len(values[i])]
    with pytest.raises(EncodingError, match=f"^value {i} "):
        decode(values_of(*values))


@given(st.lists(st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 63).map(lambda bits: 2**bits - 1))))
def test_varints_come_back(numbers: list[int]) -> None:
    data, sizes = varints.write(ints(*numbers))
    assert sizes.tolist() == [max(1, -(-number.bit_length() // 7)) for number in numbers]
    assert varints.ends(data).tolist() == np.cumsum(sizes).tolist()
    assert varints.read(data, np.cumsum(sizes) - sizes, sizes).tolist() == numbers


@pytest.mark.parametrize("module", [encodings, tid_sets, varints], ids=lambda module: module.__name__)
def test_documented_examples(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
