"""Apply: what user code is given, what it may give back, and what happens when it fails."""

# ruff: noqa: ARG005

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import Ran, cuts, listed, rows_of, run_cut, stamps

from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators.apply import ApplyKernel, reference

SCHEMA = pa.schema({"n": pa.int64(), "x": pa.int64()})
OUT = pa.schema({"y": pa.int64()})


def stream(stamp: list[int], x: list[int | None]) -> Rows:
    return rows_of(pa.table({"n": pa.array(range(len(x)), pa.int64()), "x": pa.array(x, pa.int64())}), stamp)


@st.composite
def streams(draw: st.DrawFn) -> Rows:
    stamp = draw(stamps())
    values = st.one_of(st.none(), st.integers(-2, 2))
    return stream(stamp, draw(st.lists(values, min_size=len(stamp), max_size=len(stamp))))


def run(function: Callable[..., Any], how: Any, rows: Rows, cuts: list[int] | None = None, out: pa.Schema = OUT) -> Ran:
    return run_cut(ApplyKernel(function, out, how, SCHEMA), [rows], [Steps.none()], cuts or ())


def table(y: Any, **more: Any) -> pa.Table:
    return pa.table({"y": pa.array(y, pa.int64()), **{k: pa.array(v, pa.int64()) for k, v in more.items()}})


# The same three operators, over Arrow and over lists


def inverse(rows: pa.Table) -> pa.Table:
    return table(pc.divide_checked(6, rows.column("x")))


def inverse_of_row(row: dict[str, Any]) -> int | None:
    return None if row["x"] is None else int(6 / row["x"])


def runs(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Sums up to each null, which ends a run and gives it out; a sum of 2 is an error."""
    values = [None if state is None else state.column("sum")[0].as_py(), rows.column("x").to_pylist()]
    total, out = runs_of(values[0], [{"x": x} for x in values[1]])
    ends = table([y for _, _, y in out], _row=[last for _, last, _ in out], _from=[first for first, _, _ in out])
    return pa.table({"sum": pa.array([total], pa.int64())}), ends


def runs_of(state: int | None, rows: list[dict[str, Any]]) -> tuple[int, list[tuple[int, int, int]]]:
    total, first, out = state or 0, 0, []
    for i, row in enumerate(rows):
        if row["x"] is None:
            out += [(first, i, total), (i, i, -total)]
            total, first = 0, i + 1
        else:
            total += row["x"]
        if total == 2:
            raise ValueError(f"sum is 2 at {i}")
    return total, out


def distinct(rows: pa.Table) -> pa.Table:
    values = distinct_of([{"x": x} for x in rows.column("x").to_pylist()])
    return table(values)


def distinct_of(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({abs(row["x"]) for row in rows})  # fails on null


@pytest.mark.parametrize(
    ("how", "over_arrow", "over_lists"),
    [("rows", inverse, inverse_of_row), ("stateful", runs, runs_of), ("opaque", distinct, distinct_of)],
)
@settings(max_examples=60)
@given(rows=streams(), cuts=cuts)
def test_apply_equals_its_reference_under_any_cut(
    how: str, over_arrow: Callable[..., Any], over_lists: Callable[..., Any], rows: Rows, cuts: list[int]
) -> None:
    whole = run(over_arrow, how, rows)
    expected = reference(listed(rows), how, over_lists)
    assert whole.stamped("y") == [(stamp, y) for stamp, y, _, _ in expected]
    places = list(zip(rows.stamp.tolist(), rows.pos.tolist(), strict=True))
    assert whole.origins() == [(*places[first], *places[last], 0) for _, _, first, last in expected]
    assert len(set(whole.rows.ident.tolist())) == len(whole.rows)
    assert run(over_arrow, how, rows, cuts).told() == whole.told()
    if how == "rows":
        bad = [row for row in listed(rows) if row["x"] == 0]
        assert len(whole.rejected) == len(bad)
        assert {why for _, _, why in whole.rejected} <= {"ArrowInvalid: divide by zero"}


def test_one_bad_row_among_many_is_found_by_halves() -> None:
    calls = []

    def picky(rows: pa.Table) -> pa.Table:
        calls.append(len(rows))
        return inverse(rows)

    whole = run(picky, "rows", stream(list(range(1000)), [1] * 700 + [0] + [1] * 299))
    assert len(whole.rows) == 999
    assert len(calls) <= 2 * 10 + 1
    assert [why for _, _, why in whole.rejected] == ["ArrowInvalid: divide by zero"]


def test_a_function_that_gives_fewer_rows_has_all_rows_of_the_call_rejected() -> None:
    """It gave one row for each when it was tried with them one by one."""
    rows = stream([1] * 6, list(range(6)))
    whole = run(lambda rows: table([len(rows)]), "rows", rows)
    assert len(whole.rows) == 0
    assert [why for _, _, why in whole.rejected] == ["the function gives one row for each row, but gave 1 for 6"] * 6


def test_a_function_that_leaves_out_a_row_has_that_row_rejected() -> None:
    whole = run(lambda rows: table([y for y in rows["x"].to_pylist() if y != 3]), "rows", stream([1] * 6, [*range(6)]))
    assert whole.stamped("y") == [(1, y) for y in (0, 1, 2, 4, 5)]
    assert [why for _, _, why in whole.rejected] == ["the function gives one row for each row, but gave 0 for 1"]


def test_positions_of_kept_rows_are_dense_and_their_idents_their_own() -> None:
    rows = stream([1, 1, 1], [1, 0, 2])
    whole = run(inverse, "rows", rows)
    assert whole.rows.pos.tolist() == [0, 1]
    assert whole.origins() == [(1, 0, 1, 0, 0), (1, 2, 1, 2, 0)]
    assert whole.rows.ident.tolist() == rows.ident[[0, 2]].tolist()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda rows: [1], "the function gives an Arrow table, not list"),
        (lambda rows: table([1, 2]), "the function gives one row for each row, but gave 2 for 1"),
        (lambda rows: rows.select(["x"]), "the function gives columns y, but gave x"),
        (lambda rows: pa.table({"y": ["1"]}), "the function gives column 'y' as BIGINT, but gave STRING"),
        (lambda rows: pa.table({"y": [0.5]}), "ArrowInvalid: Float value 0.5"),
        (lambda rows: {}["z"], "KeyError: 'z'"),
    ],
)
def test_a_function_that_gives_something_else_has_its_rows_rejected(answer: Callable[..., Any], reason: str) -> None:
    whole = run(answer, "rows", stream([1], [1]))
    assert (len(whole.rows), len(whole.rejected)) == (0, 1)
    assert whole.rejected[0][2].startswith(reason)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda s, r: table([1], _row=[0]), "a stateful function gives (state, rows), not Table"),
        (lambda s, r: ({}, table([1], _row=[0])), "the state is an Arrow table or None, not dict"),
        (lambda s, r: (s, table([1])), "the rows that a stateful function gives have a column '_row'"),
        (lambda s, r: (s, table([1], _row=[None])), "column '_row' holds the number of a row, in every row"),
        (lambda s, r: (s, table([1], _row=[2])), "column '_row' holds numbers of rows, from 0 to 1"),
        (lambda s, r: (s, table([1], _row=[0], _from=[-1])), "column '_from' holds numbers of rows, from 0 to 1"),
        (lambda s, r: (s, table([1], _row=[0], _from=[1])), "column '_from' lies behind '_row'"),
    ],
)
def test_a_stateful_function_that_breaks_the_rules_has_its_step_rejected(
    answer: Callable[..., Any], reason: str
) -> None:
    whole = run(answer, "stateful", stream([1, 1], [1, 2]))
    assert (len(whole.rows), [why for _, _, why in whole.rejected]) == (0, [reason] * 2)


def test_a_failing_step_leaves_the_state_as_it_was() -> None:
    whole = run(runs, "stateful", stream([1, 2, 2, 3], [1, 4, -3, None]))  # the sum of the second step passes 2
    assert whole.stamped("y") == [(3, 1), (3, -1)]
    assert [why for _, _, why in whole.rejected] == ["ValueError: sum is 2 at 1"] * 2


def test_a_stateful_function_is_called_once_a_step_and_begins_with_none() -> None:
    seen: list[tuple[int | None, int]] = []

    def count(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        before = None if state is None else state.column("rows")[0].as_py()
        seen.append((before, len(rows)))
        return pa.table({"rows": [(before or 0) + len(rows)]}), table([len(rows)], _row=[len(rows) - 1])

    whole = run(count, "stateful", stream([1, 1, 2, 5], [1, 1, 1, 1]), [1, 3])
    assert seen == [(None, 2), (2, 1), (3, 1)]
    assert whole.origins() == [(1, 1, 1, 1, 0), (2, 0, 2, 0, 0), (5, 0, 5, 0, 0)]


def test_an_empty_user_table_is_not_none() -> None:
    seen = []

    def function(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        seen.append(state)
        return rows.slice(0, 0), table([], _row=[])

    run(function, "stateful", stream([1, 2], [1, 1]), [1])
    assert seen == [None, SCHEMA.empty_table()]


def test_an_opaque_function_is_made_of_everything_so_far() -> None:
    whole = run(distinct, "opaque", stream([3, 3, 4], [1, 1, 2]), [3])
    assert whole.stamped("y") == [(3, 1), (4, 2)]
    assert whole.origins() == [(3, 0, 3, 1, 0), (3, 0, 4, 0, 0)]


def test_output_columns_may_come_in_any_order_and_in_a_kindred_type() -> None:
    out = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.date32(), "d": pa.list_(pa.float64())})
    given = pa.table(
        {
            "b": pa.array(["w"], pa.large_string()),
            "a": pa.array([3], pa.int8()),
            "d": [[1, 2]],
            "c": pa.nulls(1),
        }
    )
    whole = run(lambda rows: given, "rows", stream([1], [1]), out=out)
    assert (whole.rejected, whole.values()) == ([], [{"a": 3, "b": "w", "c": None, "d": [1.0, 2.0]}])
