"""B-sort: against its reference, under any cut, and the cases a user would try first."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import cuts, listed, progress_of, rows_of, run_cut, stamps

from clew.model.axis import INFINITE
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators.sort import SortKernel, bsort, reference

NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
FLOATS = st.sampled_from([None, math.nan, -math.inf, -0.0, 0.0, 1.5, 2.0, 7.0])
WORDS = st.sampled_from([None, "", "a", "b", "ba", "é"])
TYPES = {
    pa.int32(): NUMBERS,
    pa.float64(): FLOATS,
    pa.string(): WORDS,
    pa.bool_(): st.sampled_from([None, True, False]),
}


@st.composite
def streams(draw: st.DrawFn) -> Rows:
    kind = draw(st.sampled_from(list(TYPES)))
    stamp = draw(stamps())
    values = draw(st.lists(TYPES[kind], min_size=len(stamp), max_size=len(stamp)))
    return rows_of(pa.table({"a": pa.array(values, kind), "n": pa.array(range(len(stamp)), pa.int64())}), stamp)


def ended(rows: Rows, end: int | None) -> Steps:
    kind = rows.table.schema.field("a").type
    none = np.array([] if end is None else [end], np.int64)
    return Steps(None, none, np.full(len(none), math.inf if pa.types.is_floating(kind) else INFINITE))


@settings(max_examples=120)
@given(rows=streams(), slack=st.integers(0, 6), end=st.one_of(st.none(), st.integers(0, 40)), cuts=cuts)
def test_sort_equals_its_reference_under_any_cut(rows: Rows, slack: int, end: int | None, cuts: list[int]) -> None:
    kernel = SortKernel("a", slack, rows.table.schema)
    whole = run_cut(kernel, [rows], [ended(rows, end)])
    expected = reference(listed(rows), "a", slack, end)
    assert whole.stamped("n") == [(stamp, row["n"]) for stamp, row in expected]
    assert whole.rows.ident.tolist() == [row["_ident"] for _, row in expected]
    assert [o[:2] for o in whole.origins()] == [o[2:4] for o in whole.origins()]
    assert [o[:2] for o in whole.origins()] == [(row["_stamp"], row["_pos"]) for _, row in expected]
    assert run_cut(kernel, [rows], [ended(rows, end)], cuts).told() == whole.told()


def test_each_arrival_beyond_the_slack_emits_the_smallest() -> None:
    # Figure 3 of the paper: b-sort on time, slack 1, over the union of two aggregated streams
    rows = rows_of(pa.table({"ti": [2, 2, 3, 5, 4]}), [1, 2, 3, 4, 5])
    whole = run_cut(SortKernel("ti", 1, rows.table.schema), [rows], [Steps.none()])
    assert whole.stamped() == [(2, 2), (3, 2), (4, 3), (5, 4)]
    assert whole.state["buffer"].column("ti").to_pylist() == [5]


def test_a_row_that_comes_too_late_is_emitted_at_once_and_out_of_order() -> None:
    rows = rows_of(pa.table({"ti": [5, 6, 7, 1, 8]}), [1, 2, 3, 4, 5])
    whole = run_cut(SortKernel("ti", 1, rows.table.schema), [rows], [Steps.none()])
    assert whole.stamped() == [(2, 5), (3, 6), (4, 1), (5, 7)]


def test_finish_flushes_the_buffer_in_order_and_a_second_call_has_nothing_left() -> None:
    rows = rows_of(pa.table({"ti": [3, 1, 2]}), [1, 2, 3])
    whole = run_cut(SortKernel("ti", 5, rows.table.schema), [rows], [progress_of(rows, "ti", finish=9)], [3, 9])
    assert whole.stamped() == [(9, 1), (9, 2), (9, 3)]
    assert whole.rows.pos.tolist() == [0, 1, 2]
    assert len(whole.state["buffer"]) == 0


def test_rows_without_a_value_to_sort_by_are_late_with_a_reason() -> None:
    rows = rows_of(pa.table({"x": pa.array([1.0, None, math.nan])}), [1, 2, 2])
    whole = run_cut(SortKernel("x", 0, rows.table.schema), [rows], [Steps.none()])
    reason = "null or NaN in the ordering column 'x'"
    assert (whole.stamped(), whole.late) == ([(1, 1.0)], [(0, 2, 0, reason), (0, 2, 1, reason)])


@pytest.mark.parametrize(
    "kind", [pa.decimal128(30, 2), pa.date32(), pa.timestamp("us", tz="UTC"), pa.int8(), pa.binary()]
)
def test_every_type_with_an_order_can_be_sorted(kind: pa.DataType) -> None:
    if pa.types.is_binary(kind):
        values = pa.array([b"A", b"C", b"B"])
    else:
        values = pa.array([65, 67, 66], pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    rows = rows_of(pa.table({"v": values, "n": pa.array([0, 2, 1])}), [1, 2, 3])
    done = Steps(None, np.array([9]), np.array([INFINITE]))
    assert run_cut(SortKernel("v", 9, rows.table.schema), [rows], [done]).stamped("n") == [(9, 0), (9, 1), (9, 2)]


@given(st.lists(st.integers(0, 20), max_size=40), st.integers(0, 5))
def test_the_fully_sorted_short_cut_and_the_heap_agree(values: list[int], slack: int) -> None:
    out, rest = bsort(np.array(values, np.int64), slack)
    buffer: list[tuple[int, int]] = []
    expected = []
    for i, value in enumerate(values):
        buffer.append((value, i))
        if len(buffer) > slack:
            expected.append(min(buffer)[1])
            buffer.remove(min(buffer))
    assert (out.tolist(), rest.tolist()) == (expected, [i for _, i in sorted(buffer)])
