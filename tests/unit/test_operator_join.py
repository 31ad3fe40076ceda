"""Join: against its reference, under any cut and any partitioning by key, and its rules one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import Ran, cuts, listed, progress_of, rows_of, run_cut, stamps, told_steps

from clew.errors import TypeProblem
from clew.expressions.compile import compile_expression
from clew.model.axis import INFINITE
from clew.model.rows import Bools, Rows, mix_pair
from clew.model.steps import Steps
from clew.operators import band
from clew.operators.join import BEHIND, JoinKernel, join_schema, reference

WHOLE = st.one_of(st.none(), st.integers(-4, 12))
FLOATS = st.one_of(st.none(), st.just(math.nan), st.integers(-4, 12).map(lambda n: n * 0.1))
KEYS = {
    pa.string(): st.sampled_from([None, "a", "b", "c"]),
    pa.float64(): st.sampled_from([None, math.nan, 0.0, -0.0, 1.0]),
    pa.int64(): st.sampled_from([None, -1, 0, 100]),
}
WIDTHS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
DROPPED = st.lists(st.tuples(st.integers(1, 30), st.integers(-4, 12)), max_size=3)
How = Literal["inner", "left"]


def stream(
    stamp: list[int], ts: list[Any], k: list[Any], kinds: tuple[pa.DataType, pa.DataType], seed: int = 0
) -> Rows:
    table = pa.table(
        {"ts": pa.array(ts, kinds[0]), "k": pa.array(k, kinds[1]), "n": pa.array(range(len(ts)), pa.int64())}
    )
    return rows_of(table, stamp, seed)


@dataclass(frozen=True)
class Evaluation:
    failed: Bools | None

    def reason(self, row: int) -> str:
        assert self.failed is not None
        return "division by zero" if self.failed[row] else ""


class Divides:
    """`n_right % (n % 3) = 0`, which fails where n % 3 is 0."""

    sql = "n_right % (n % 3) = 0"

    def keep(self, table: pa.Table) -> tuple[Bools, Evaluation]:
        n, m = (np.asarray(table.column(c)) for c in ("n", "n_right"))
        failed = n % 3 == 0
        return ~failed & (m % np.where(failed, 1, n % 3) == 0), Evaluation(failed)

    @staticmethod
    def holds(left: dict[str, Any], right: dict[str, Any]) -> bool:
        return left["n"] % 3 != 0 and right["n"] % (left["n"] % 3) == 0


@dataclass(frozen=True)
class Case:
    left: Rows
    right: Rows
    finish: int | None
    low: float
    high: float
    keyed: bool
    how: How
    where: bool
    dropped: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [("k", "k")] if self.keyed else []

    def steps(self) -> list[Steps]:
        sides = zip((self.left, self.right), self.dropped, strict=True)
        return [progress_of(rows, "ts", self.finish, dropped) for rows, dropped in sides]

    def kernel(self) -> JoinKernel:
        schemas = self.left.table.schema, self.right.table.schema
        where = Divides() if self.where else None
        return JoinKernel(("ts", "ts"), self.low, self.high, self.keys, where, self.how, schemas)

    def run(self, cuts: list[int] = [], parts: int = 1) -> Ran:  # noqa: B006
        return run_cut(self.kernel(), [self.left, self.right], self.steps(), cuts, parts)

    def expected(self) -> list[tuple[int, Any, Any]]:
        progress = [told_steps(s) for s in self.steps()]
        where = Divides.holds if self.where else None
        return reference(
            listed(self.left),
            listed(self.right),
            progress,
            ("ts", "ts"),
            self.low,
            self.high,
            self.keys,
            self.how,
            where,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    floats = draw(st.booleans())
    key = draw(st.sampled_from(list(KEYS)))
    tidy = draw(st.booleans())

    def rows(seed: int) -> Rows:
        stamp = draw(stamps(20))
        ts = draw(st.lists(FLOATS if floats else WHOLE, min_size=len(stamp), max_size=len(stamp)))
        if tidy:
            ts = sorted(t for t in ts if t is not None and t == t) + [t for t in ts if t is None or t != t]
        k = draw(st.lists(KEYS[key], min_size=len(stamp), max_size=len(stamp)))
        order = pa.float64() if floats else draw(st.sampled_from(WIDTHS))
        return stream(stamp, ts, k, (order, draw(st.sampled_from(WIDTHS)) if pa.types.is_integer(key) else key), seed)

    left = rows(1)
    right = left if draw(st.integers(0, 3)) == 0 else rows(2)
    low, width = draw(st.integers(-3, 3)), draw(st.integers(0, 4))
    scale = 0.1 if floats else 1
    finish = draw(st.sampled_from([None, 60]))
    how: How = draw(st.sampled_from(["inner", "left"]))
    dropped = draw(st.tuples(DROPPED, DROPPED)) if draw(st.booleans()) else ([], [])
    return Case(
        left, right, finish, low * scale, (low + width) * scale, draw(st.booleans()), how, draw(st.booleans()), dropped
    )


@settings(max_examples=120)
@given(case=cases(), cuts=cuts, parts=st.integers(1, 3))
def test_join_equals_its_reference_under_any_cut_and_partitioning(case: Case, cuts: list[int], parts: int) -> None:
    whole = case.run()
    expected = case.expected()
    assert whole.stamped("n", "n_right") == [(s, x["n"], y["n"] if y else None) for s, x, y in expected]
    assert whole.origins() == [
        (x["_stamp"], x["_pos"], y["_stamp"] if y else -1, y["_pos"] if y else -1, 0) for _, x, y in expected
    ]
    idents = np.array([[x["_ident"], y["_ident"] if y else 0] for _, x, y in expected], np.int64).reshape(-1, 2)
    assert whole.rows.ident.tolist() == mix_pair(idents[:, 0], idents[:, 1]).tolist()
    assert case.run(cuts).told() == whole.told()
    if case.keyed:
        assert case.run(cuts, parts).told() == whole.told()


@settings(max_examples=40)
@given(case=cases(), cuts=cuts)
def test_state_holds_only_rows_that_can_still_be_met(case: Case, cuts: list[int]) -> None:
    whole = case.run()
    for cut, at_once in zip(case.run(cuts).state.values(), whole.state.values(), strict=True):
        assert sorted(cut.column("n").to_pylist()) == sorted(at_once.column("n").to_pylist())
    if case.finish is not None:
        assert [len(t) for t in whole.state.values()] == [0, 0]


def simple(
    left: list[tuple[int, int]], right: list[tuple[int, int]], low: int, high: int, how: How, **more: Any
) -> Case:
    """A case from (stamp, ts) pairs, all of one key."""
    kinds = pa.int64(), pa.string()
    sides = [
        stream([s for s, _ in r], [t for _, t in r], ["a"] * len(r), kinds, i) for i, r in enumerate((left, right))
    ]
    return Case(sides[0], sides[1], more.get("finish"), low, high, True, how, False)


def test_a_pair_is_emitted_when_its_later_row_arrives() -> None:
    whole = simple([(1, 10), (4, 20)], [(2, 12), (3, 18)], -3, 3, "inner").run()
    assert whole.stamped("ts", "ts_right") == [(2, 10, 12), (4, 20, 18)]


def test_an_outer_row_appears_in_the_step_in_which_no_partner_can_come_any_more() -> None:
    whole = simple([(1, 10), (2, 30)], [(3, 13), (4, 14), (5, 30)], 0, 3, "left").run()
    assert whole.stamped("ts", "ts_right") == [(3, 10, 13), (5, 30, 30)]
    whole = simple([(1, 10), (6, 11)], [(3, 14), (4, 15)], 0, 3, "left").run()
    assert whole.stamped("ts", "ts_right") == [(3, 10, None), (6, 11, 14)]
    whole = simple([(1, 10), (6, 10)], [(3, 14), (4, 15)], 0, 3, "left").run()
    assert whole.stamped("ts", "ts_right") == [(3, 10, None), (6, 10, None)]  # its own step: nothing can come


def test_finish_brings_out_all_that_waits() -> None:
    case = simple([(1, 10), (2, INFINITE - 2)], [], 0, INFINITE, "left", finish=9)
    assert case.run([1, 5]).stamped("ts", "ts_right") == [(9, 10, None), (9, INFINITE - 2, None)]


def test_spans_beyond_the_axis_do_not_wrap_around() -> None:
    case = simple([(1, -(2**63)), (2, 10)], [(3, -(2**63) + 1), (4, 2**63 - 2)], -INFINITE, INFINITE, "inner")
    assert case.run().stamped("n", "n_right") == [(3, 0, 0), (4, 1, 1)]


def test_null_keys_never_match_and_come_as_outer_rows() -> None:
    left = stream([1, 2], [5, 5], [None, "a"], (pa.int64(), pa.string()))
    right = stream([1, 2], [5, 5], [None, "a"], (pa.int64(), pa.string()))
    case = Case(left, right, 9, 0, 0, True, "left", False)
    assert case.run([1]).stamped("n", "n_right") == [(2, 1, 1), (9, 0, None)]
    assert len(case.run([8]).state["left"]) == 0


def test_a_row_with_nothing_left_to_meet_is_late_and_one_that_can_still_meet_something_is_not() -> None:
    # left progress is 20: right rows below 20 - 1 are gone; right progress is at 20, so none below comes
    case = simple([(1, 20), (3, 17)], [(2, 20)], -1, 1, "inner")
    assert case.run().late == [(0, 3, 0, BEHIND)]
    # as far behind its own stream, but the other stream has not come there yet
    case = simple([(1, 20), (3, 17)], [(2, 16), (4, 17)], -1, 1, "inner")
    assert (case.run().late, case.run().stamped("ts", "ts_right")) == ([], [(4, 17, 17)])


def test_pairs_on_which_the_condition_fails_are_rejected_and_do_not_match() -> None:
    case = simple([(1, 5), (1, 5)], [(2, 5)], 0, 0, "left", finish=9)
    case = Case(case.left, case.right, 9, 0, 0, True, "left", True)
    whole = case.run()
    assert whole.stamped("n", "n_right") == [(2, 1, 0), (9, 0, None)]
    assert [(port, why) for port, _, why in whole.rejected] == [(0, "division by zero in 'n_right % (n % 3) = 0'")]


def test_a_condition_in_spark_sql_sees_the_output_columns() -> None:
    rows = stream([1, 1, 1], [5, 5, 5], ["a", "b", None], (pa.int64(), pa.string()))
    schemas = rows.table.schema, rows.table.schema
    names = join_schema(schemas, [], "_right")
    where = compile_expression("6 / n_right > n AND k = k_right", names)
    kernel = JoinKernel(("ts", "ts"), 0, 0, [], where, "inner", schemas)
    whole = run_cut(kernel, [rows, rows], [progress_of(rows, "ts")] * 2)
    assert whole.stamped("n", "n_right") == [(1, 1, 1)]
    assert {why for _, _, why in whole.rejected} == {"DIVIDE_BY_ZERO in '6 / n_right > n AND k = k_right'"}


def test_candidates_come_in_portions_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = simple([(i, i) for i in range(30)], [(i, i) for i in range(30)], -4, 4, "inner")
    whole = case.run().told()
    monkeypatch.setattr(band, "PAIRS_AT_ONCE", 5)
    assert case.run([7, 9]).told() == whole


def test_the_output_has_the_left_columns_then_the_rights_without_its_keys() -> None:
    left = pa.schema({"ts": pa.int64(), "sym": pa.string(), "Price": pa.float64()})
    right = pa.schema({"ts": pa.int64(), "symbol": pa.string(), "price": pa.float64(), "venue": pa.string()})
    schema = join_schema((left, right), [("sym", "symbol")], "_r")
    assert schema.names == ["ts", "sym", "Price", "ts_r", "price_r", "venue"]


def test_columns_that_cannot_be_compared_are_refused_by_name() -> None:
    left = pa.schema({"ts": pa.int64(), "k": pa.string()})
    right = pa.schema({"ts": pa.timestamp("us", tz="UTC"), "k": pa.int32()})
    with pytest.raises(TypeProblem, match=r"^compares 'ts' \(BIGINT\) with 'ts' \(TIMESTAMP\)\n"):
        JoinKernel(("ts", "ts"), 0, 0, [], None, "inner", (left, right))
    with pytest.raises(TypeProblem, match=r"^compares 'k' \(STRING\) with 'k' \(INT\)\n"):
        JoinKernel(("ts", "ts"), 0, 0, [("k", "k")], None, "inner", (left, right.set(0, left.field(0))))
