"""The wrapper, over every kernel: an annotation is the union of those of the rows that `links` names.

Whatever the inputs' annotations are: each row itself (PG), sets that slide, repeat or stand in disorder (PP). And
each kernel names with `ranged` the rows that it names with `links`.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.kernels import KERNELS
from tests.contract.replays import Case
from tests.contract.test_lineage import links_of, taken

from clew.engine.annotating import Taken, annotated, in_order, of_sets, singles, stack, trimmed, unite
from clew.engine.annotator import Held, Line, packed, unpacked
from clew.model.axis import is_float_axis
from clew.model.places import Places
from clew.model.tid_sets import Ranges, TidSets, ascends
from clew.operators.base import Emission
from clew.operators.lineage import Known

EXAMPLES = int(os.environ.get("CLEW_EXAMPLES", "40"))
sets_of_tids = st.lists(st.sets(st.integers(0, 12), max_size=4), max_size=8)


@st.composite
def columns(draw: st.DrawFn, count: int) -> Ranges:
    """Annotations of so many rows: themselves, ranges of a list that need not ascend, or any sets."""
    kind = draw(st.sampled_from(["singles", "ranges", "sets"]))
    if kind == "singles":
        return singles(np.arange(count) * 3)
    if kind == "sets":
        return of_sets(
            TidSets.of(draw(st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=count, max_size=count)))
        )
    base = np.array(draw(st.permutations(range(10))))
    lo = np.array([draw(st.integers(0, 10)) for _ in range(count)], np.int64)
    hi = np.array([draw(st.integers(low, 10)) for low in lo.tolist()], np.int64)
    if draw(st.booleans()):
        lo, hi = np.sort(lo), np.sort(hi)
    return Ranges(base, lo, hi)


def sets(column: Ranges) -> list[list[int]]:
    made = in_order(column)
    assert ascends(made.base, made.lo, made.hi).all()
    return made.sets().lists()


def known(case: Case, made: Emission, port: int) -> Known:
    asked, rows = case.kernel.asks()[port], taken(case, made, port)
    return Known.of(rows, asked) if asked else Known.of_places(rows)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data())
def test_an_annotation_is_the_union_of_those_of_the_rows_it_is_made_of(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    inputs, expected = [], [set[int]() for _ in range(len(made.origin))]
    for port, links in enumerate(links_of(case, made)):
        rows, asked = known(case, made, port), case.kernel.asks()[port]
        column = data.draw(columns(len(rows)))
        schema = case.inputs[port].table.schema
        real = asked is not None and asked.on is not None and is_float_axis(schema.field(asked.on).type)
        inputs.append(Taken(rows, {"tids": column}, real))
        of_row = sets(column)
        for owner, row in zip(
            links.owner.tolist(), Places(rows.stamp, rows.pos).find(links.places).tolist(), strict=True
        ):
            expected[owner].update(of_row[row])
    if len(made.origin):
        found = annotated(case.kernel, made.origin, inputs)["tids"]
        assert sets(found) == [sorted(e) for e in expected]


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_ranges_name_the_rows_that_links_name(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    inputs = [known(case, made, port) for port in range(len(case.inputs))]
    for port, links in enumerate(links_of(case, made)):
        if case.kernel.asks()[port] is None or not len(made.origin):
            continue
        owner, row = case.kernel.ranged(port, made.origin, inputs).pairs()
        places = Places(inputs[port].stamp[row], inputs[port].pos[row])
        named = zip(owner.tolist(), places.stamp.tolist(), places.pos.tolist(), strict=True)
        told = zip(links.owner.tolist(), links.places.stamp.tolist(), links.places.pos.tolist(), strict=True)
        assert sorted(named) == sorted(told)


@settings(max_examples=20 * EXAMPLES)
@given(data=st.data())
def test_the_union_of_neighbours_is_that_of_their_sets(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 8))
    column = data.draw(columns(count))
    lo = np.array(data.draw(st.lists(st.integers(0, count), max_size=6)), np.int64)
    hi = np.array([data.draw(st.integers(low, count)) for low in lo.tolist()], np.int64)
    each = sets(column)
    expected = [sorted({tid for s in each[a:b] for tid in s}) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    found = unite(column, lo, hi)
    assert sets(found) == expected
    assert (found.hi - found.lo).tolist() == [len(e) for e in expected]  # none is there twice, or sets would grow
    assert sets(trimmed(column)) == each
    twice = stack([column, column])
    assert sets(twice) == each + each


def test_windows_over_windows_stay_ranges_of_one_list() -> None:
    """What sliding windows share is there once: a list as long as the tuples, whatever the windows hold."""
    tids = np.arange(0, 40_000, 4)
    lo = np.arange(len(tids) - 5_000 + 1)
    first = unite(singles(tids), lo, lo + 5_000)
    assert first.base is tids
    kept = np.flatnonzero(lo % 3 == 0)  # a filter between them
    second = unite(Ranges(first.base, first.lo[kept], first.hi[kept]), np.array([0]), np.array([len(kept)]))
    assert second.base is tids
    assert second[0].tolist() == tids[: lo[kept[-1]] + 5_000].tolist()


def test_groups_that_come_mixed_are_listed_anew_once_for_all_windows() -> None:
    tids = np.arange(1, 2_001)
    by_group = np.concatenate([np.arange(0, 2_000, 2), np.arange(1, 2_000, 2)])
    mixed = Ranges(tids, by_group, by_group + 1)
    lo = np.concatenate([np.arange(901), 1_000 + np.arange(901)])
    found = unite(mixed, lo, lo + 100)
    assert len(found.base) == 2_000
    assert found[1].tolist() == list(range(3, 203, 2))


@given(values=st.lists(st.integers(0, 5), max_size=6), line=st.booleans())
def test_what_is_packed_is_what_it_was(values: list[int], line: bool) -> None:
    given_ = np.arange(4, 4 + 3 * len(values), 3) if line else np.array(values, np.int64)
    made = packed(given_)
    assert unpacked(made).tolist() == given_.tolist()
    assert not line or isinstance(made, Line)


def test_a_window_holds_sixteen_bytes_a_row_of_its_filtered_input() -> None:
    """A stamp and a tid each: 320,000 bytes of 20,000 rows, where the paper has 384 kB (§6.4)."""
    stamp = np.cumsum(np.arange(20_000) % 3 + 1)
    zero = np.zeros(len(stamp), np.int64)
    held = Held.of(1, Known(stamp, zero, zero, zero), {"readings": singles(stamp + 7)})
    assert held.nbytes == 320_000
    assert held.columns["readings"].sets().tids.tolist() == (stamp + 7).tolist()
