"""Resample: against its reference, under any cut and any partitioning, and its rules one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import Ran, cuts, listed, progress_of, rows_of, run_cut, stamps, told_steps

from clew.errors import DuplicateName
from clew.expressions.aggregates import AggregateCall
from clew.model.axis import INFINITE
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators import band
from clew.operators.resample import BEHIND, ResampleKernel, reference

CALLS = (
    AggregateCall("rows", "count"),
    AggregateCall("seen", "collect", ("n",)),
    AggregateCall("total", "sum", ("x",)),
)
WHOLE = st.one_of(st.none(), st.integers(-4, 12))
FLOATS = st.one_of(st.none(), st.just(math.nan), st.integers(-4, 12).map(lambda n: n * 0.1))
DROPPED = st.lists(st.tuples(st.integers(1, 30), st.integers(-4, 12)), max_size=3)
KEYS = st.sampled_from([None, "a", "b", "c"])


def stream(stamp: Sequence[int], ts: Sequence[Any], k: Sequence[Any], kind: pa.DataType, seed: int = 0) -> Rows:
    n = pa.array(range(len(ts)), pa.int64())
    return rows_of(pa.table({"ts": pa.array(ts, kind), "k": pa.array(k, pa.string()), "n": n, "x": n}), stamp, seed)


@dataclass(frozen=True)
class Case:
    first: Rows
    second: Rows
    finish: int | None
    within: float
    by: list[tuple[str, str]]
    dropped: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])

    def steps(self) -> list[Steps]:
        sides = zip((self.first, self.second), self.dropped, strict=True)
        return [progress_of(rows, "ts", self.finish, dropped) for rows, dropped in sides]

    def kernel(self) -> ResampleKernel:
        ticks = self.second.table.select(["ts", "k", "n"]).schema
        return ResampleKernel(("ts", "ts"), self.within, self.by, CALLS, (self.first.table.schema, ticks))

    def run(self, cuts: Sequence[int] = (), parts: int = 1) -> Ran:
        second = self.second.select(["ts", "k", "n"])
        return run_cut(self.kernel(), [self.first, second], self.steps(), cuts, parts)

    def expected(self) -> list[tuple[int, Any, list[Any]]]:
        progress = [told_steps(s) for s in self.steps()]
        return reference(listed(self.first), listed(self.second), progress, ("ts", "ts"), self.within, self.by)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from([pa.int64(), pa.float64()]))
    tidy = draw(st.booleans())

    def rows(seed: int) -> Rows:
        stamp = draw(stamps(20))
        ts = draw(st.lists(FLOATS if kind == pa.float64() else WHOLE, min_size=len(stamp), max_size=len(stamp)))
        if tidy:
            ts = sorted(t for t in ts if t is not None and t == t) + [t for t in ts if t is None or t != t]
        k = draw(st.lists(KEYS, min_size=len(stamp), max_size=len(stamp)))
        return stream(stamp, ts, k, kind, seed)

    within = draw(st.integers(0, 3)) * (0.1 if kind == pa.float64() else 1)
    by = [("k", "k")] if draw(st.booleans()) else []
    dropped = draw(st.tuples(DROPPED, DROPPED)) if draw(st.booleans()) else ([], [])
    return Case(rows(1), rows(2), draw(st.sampled_from([None, 60])), within, by, dropped)


@settings(max_examples=120)
@given(case=cases(), cuts=cuts, parts=st.integers(1, 3))
def test_resample_equals_its_reference_under_any_cut_and_partitioning(case: Case, cuts: list[int], parts: int) -> None:
    whole = case.run()
    expected = case.expected()
    assert whole.stamped("n", "rows", "total") == [
        (s, y["n"], len(near), sum(x["n"] for x in near) if near else None) for s, y, near in expected
    ]
    assert [v or [] for v in whole.rows.table.column("seen").to_pylist()] == [
        [x["n"] for x in near] for _, _, near in expected
    ]
    assert whole.rows.ident.tolist() == [y["_ident"] for _, y, _ in expected]
    for (_, y, near), origin in zip(expected, whole.origins(), strict=True):
        last = (near[-1]["_stamp"], near[-1]["_pos"], near[0]["_stamp"]) if near else (-1, -1, -1)
        assert origin == (y["_stamp"], y["_pos"], *last)
    assert case.run(cuts).told() == whole.told()
    if case.by:
        assert case.run(cuts, parts).told() == whole.told()


@settings(max_examples=40)
@given(case=cases(), cuts=cuts)
def test_nothing_is_held_once_both_inputs_have_ended(case: Case, cuts: list[int]) -> None:
    ended = Case(case.first, case.second, 60, case.within, case.by)
    assert [len(t) for t in ended.run(cuts).state.values()] == [0, 0]


def simple(first: list[tuple[int, int]], second: list[tuple[int, int]], within: int, finish: int | None = None) -> Case:
    """A case from (stamp, ts) pairs, all of one key."""
    sides = [
        stream([s for s, _ in r], [t for _, t in r], ["a"] * len(r), pa.int64(), i)
        for i, r in enumerate((first, second))
    ]
    return Case(sides[0], sides[1], finish, within, [("k", "k")])


def test_a_row_waits_until_the_first_input_has_passed_its_window() -> None:
    case = simple([(1, 8), (2, 9), (4, 12), (5, 13)], [(3, 10)], 2)
    assert case.run().stamped("ts", "seen") == [(5, 10, [0, 1, 2])]
    assert [len(t) for t in case.run().state.values()] == [4, 0]  # ticks from 10 on may come: 8 and later are held


def test_a_row_that_nothing_is_near_to_gets_the_aggregates_of_nothing() -> None:
    whole = simple([(1, 1), (4, 90)], [(3, 10)], 2).run([2, 3])
    assert whole.stamped("ts", "rows", "total") == [(4, 10, 0, None)]
    assert whole.origins() == [(3, 0, -1, -1, -1)]


def test_rows_closing_in_one_step_come_by_the_end_of_their_windows() -> None:
    whole = simple([(5, 90)], [(1, 12), (2, 10), (3, 11), (3, 10)], 1).run([1, 2])
    assert whole.stamped("ts", "n") == [(5, 10, 1), (5, 10, 3), (5, 11, 2), (5, 12, 0)]


def test_finish_brings_out_all_that_waits() -> None:
    case = simple([(1, 5)], [(2, 5), (3, INFINITE - 2)], 3, finish=9)
    assert case.run([1, 4]).stamped("n", "rows") == [(9, 0, 1), (9, 1, 0)]


def test_null_is_a_group() -> None:
    first = stream([1, 1], [5, 5], [None, "a"], pa.int64())
    second = stream([2, 2, 2], [5, 5, 5], [None, "a", "b"], pa.int64(), 1)
    whole = Case(first, second, 9, 0, [("k", "k")]).run([1], parts=2)
    assert whole.stamped("k", "rows") == [(9, None, 1), (9, "a", 1), (9, "b", 0)]


def test_a_row_whose_window_is_wholly_gone_is_late() -> None:
    case = simple([(1, 5), (2, 20)], [(3, 20), (4, 15)], 2)
    assert case.run().late == [(1, 4, 0, BEHIND)]


def test_windows_out_of_order_come_in_portions_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = simple([(i, i ^ 3) for i in range(30)], [(i, i) for i in range(30)], 4, finish=99)
    whole = case.run().told()
    monkeypatch.setattr(band, "PAIRS_AT_ONCE", 5)
    assert case.run([7, 9]).told() == whole


def test_an_aggregate_that_fails_gives_null_and_a_rejected_row() -> None:
    case = simple([(1, 5), (1, 6)], [(2, 5)], 3, finish=9)
    huge = case.first.with_table(case.first.table.set_column(3, "x", pa.array([2**62, 2**62])))
    whole = Case(huge, case.second, 9, 3, []).run()
    assert whole.stamped("rows", "total") == [(9, 2, None)]
    assert [port for port, _, _ in whole.rejected] == [1]


def test_an_aggregate_cannot_take_the_name_of_a_column() -> None:
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    with pytest.raises(DuplicateName, match="the output of a resample has two columns named 'X'"):
        ResampleKernel(("ts", "ts"), 0, [], [AggregateCall("X", "sum", ("x",))], (schema, schema))
