"""Windows a user can follow by hand, what they refuse, and what they keep."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.kernels import progress_of, rows_of, run_cut

from clew.errors import BoxFailed, TypeProblem, WindowError
from clew.expressions.aggregates import AggregateCall, UserFunction
from clew.model.axis import INFINITE
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.network.boxes import CountWindow, Landmark, Latch, ValueWindow, WindowKind
from clew.operators.windows import window_kernel

COUNT = AggregateCall("n", "count")
ALL = AggregateCall("all", "collect", ("t",))
UTC = dt.UTC


def ints(values: list[Any], stamp: list[int] | None = None, **more: Any) -> Rows:
    table = pa.table({"t": pa.array(values, pa.int64()), **more})
    return rows_of(table, stamp or list(range(1, len(values) + 1)))


def ran(
    window: WindowKind, rows: Rows, steps: Steps | None = None, by: tuple[str, ...] = (), calls: Any = (ALL,)
) -> Any:
    kernel = window_kernel(window, by, calls, rows.table.schema)
    return run_cut(kernel, [rows], [progress_of(rows, "t") if steps is None else steps])


# --- count ---


def test_count_window_slides_row_by_row() -> None:
    assert ran(CountWindow(3, 1), ints([1, 2, 3, 4])).stamped() == [(3, [1, 2, 3]), (4, [2, 3, 4])]


def test_count_window_with_a_slide_above_its_size_leaves_rows_out() -> None:
    # the paper's #(1, 2)
    whole = ran(CountWindow(1, 2), ints([1, 2, 3, 4, 5]))
    assert whole.stamped() == [(1, [1]), (3, [3]), (5, [5])]
    assert whole.origins() == [(1, 0, 1, 0, 0), (3, 0, 3, 0, 0), (5, 0, 5, 0, 0)]


def test_partial_count_window_is_rows_n_preceding() -> None:
    assert ran(CountWindow(2, 1, True), ints([1, 2, 3])).stamped() == [(1, [1]), (2, [1, 2]), (3, [2, 3])]


def test_count_window_stays_silent_at_the_end_and_keeps_only_what_it_needs() -> None:
    rows = ints(list(range(1000)))
    whole = ran(CountWindow(10, 4), rows, progress_of(rows, "t", 2000))
    assert len(whole.rows) == 248
    assert len(whole.state["rows"]) == 8  # ordinals 992 to 999


def test_windows_of_one_step_come_by_group_nulls_first_nan_last() -> None:
    g = pa.array([1.0, math.nan, None, -0.0, 0.0], pa.float64())
    whole = ran(CountWindow(1, 1), ints([1, 2, 3, 4, 5], [7] * 5, g=g), by=("g",))
    assert [repr(v) for v in whole.rows.table.column("g").to_pylist()] == ["None", "0.0", "0.0", "1.0", "nan"]
    assert whole.rows.pos.tolist() == [0, 1, 2, 3, 4]


def test_groups_of_several_columns() -> None:
    rows = ints([1, 2, 3, 4], a=pa.array(["x", "x", None, "x"]), b=pa.array([1, 2, 1, 1]))
    assert ran(CountWindow(2, 2), rows, by=("a", "b")).stamped() == [(4, "x", 1, [1, 4])]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, None, False]),
        (pa.binary(), [b"\xff\xfe", None, b""]),
        (pa.date32(), [dt.date(2020, 1, 1), None, dt.date(1900, 1, 1)]),
        (pa.decimal128(10, 2), [Decimal("1.10"), None, Decimal("-2")]),
        (pa.float32(), [math.nan, -0.0, 1.5]),
    ],
)
def test_groups_of_every_type_stay_apart_over_calls_and_partitions(kind: pa.DataType, values: list[Any]) -> None:
    rows = ints(list(range(12)), g=pa.array(values * 4, kind))
    kernel = window_kernel(CountWindow(4, 4), ("g",), (COUNT,), rows.table.schema)
    whole = run_cut(kernel, [rows], [Steps.none()])
    assert [row[0::2] for row in whole.stamped()] == [(10, 4), (11, 4), (12, 4)]
    assert run_cut(kernel, [rows], [Steps.none()], [1, 5, 6], 3).told() == whole.told()


# --- value windows on the clock ---


def test_tumbling_minutes_close_when_progress_reaches_their_end() -> None:
    at = [dt.datetime(2024, 1, 1, 9, minute, tzinfo=UTC) for minute in (0, 4, 5, 11)]
    rows = rows_of(pa.table({"t": pa.array(at, pa.timestamp("us", "UTC"))}), [1, 2, 3, 4])
    whole = ran(ValueWindow("5 minutes", "5 minutes", "t"), rows, progress_of(rows, "t", 9))
    assert whole.stamped() == [(3, at[:2]), (4, at[2:3]), (9, at[3:])]
    starts = [dt.datetime(2024, 1, 1, 9, m, tzinfo=UTC) for m in (0, 5, 10)]
    assert [o[4] for o in whole.origins()] == [int(s.timestamp()) * 1_000_000 for s in starts]
    assert len(whole.state["rows"]) == len(whole.state["groups"]) == 0


def test_clock_windows_below_zero_and_with_gaps() -> None:
    rows = ints([-7, -5, -1, 0, 4])
    assert ran(ValueWindow(2, 5, "t"), rows, progress_of(rows, "t", 9)).stamped() == [(3, [-5]), (5, [0])]
    assert not ran(ValueWindow(2, 5, "t"), rows).late  # a row between two windows is in none, and not late


def test_clock_windows_over_dates_and_decimals() -> None:
    days = rows_of(pa.table({"t": pa.array([0, 6, 7], pa.int32()).cast(pa.date32())}), [1, 2, 3])
    assert ran(ValueWindow("7 days", "7 days", "t"), days, calls=(COUNT,)).stamped() == [(3, 2)]
    money = rows_of(pa.table({"t": pa.array([Decimal("0.10"), Decimal("0.29"), Decimal("0.30")])}), [1, 2, 3])
    assert ran(ValueWindow(Decimal("0.3"), Decimal("0.3"), "t"), money, calls=(COUNT,)).stamped() == [(3, 2)]


def test_a_row_enters_only_the_windows_still_open() -> None:
    # [0, 10) has closed when the second 6 comes, [5, 15) has not
    rows = ints([6, 10, 6, 15])
    whole = ran(ValueWindow(10, 5, "t"), rows)
    assert whole.stamped() == [(2, [6]), (4, [6, 6, 10])]
    assert whole.origins()[1][:4] == (1, 0, 3, 0)
    assert not whole.late


def test_a_row_behind_every_open_window_is_late_and_kept_whole() -> None:
    rows = ints([6, 20, 6, None], note=pa.array(["a", "b", "c", "d"]))
    whole = ran(ValueWindow(10, 5, "t"), rows)
    assert whole.late == [(0, 3, 0, "every window that holds its 't' has closed"), (0, 4, 0, "'t' is null")]
    kernel = window_kernel(ValueWindow(10, 5, "t"), (), (ALL,), rows.table.schema)
    (late,) = kernel.run(kernel.empty(), [rows], [progress_of(rows, "t")]).late
    assert late.rows.table.to_pylist() == [{"t": 6, "note": "c"}, {"t": None, "note": "d"}]


@pytest.mark.parametrize(
    "window", [ValueWindow(3, 3, "t"), ValueWindow(3, 3, "t", "tuple"), Latch(3, "t"), Landmark(0, 3, "t")]
)
def test_values_that_no_arithmetic_reaches_are_late_not_wrong(window: WindowKind) -> None:
    rows = ints([1, INFINITE - 1, -INFINITE, 2])
    whole = ran(window, rows, Steps(None, np.array([9]), np.array([INFINITE])))
    assert whole.stamped() == [(9, [1, 2])]
    assert [place[1] for place in whole.late] == [2, 3]
    assert all("too far" in place[3] for place in whole.late)


def test_the_state_of_a_clock_window_holds_open_windows_only() -> None:
    whole = ran(ValueWindow(10, 5, "t"), ints(list(range(1000))))
    assert whole.state["rows"].column("t").to_pylist() == list(range(990, 1000))


# --- value windows at tuples ---


def test_tuple_windows_begin_at_rows() -> None:
    # the paper's val(2, 1, t): head 2 holds 2 to 4, the next head is the first row beyond 3
    rows = ints([2, 3, 3, 4, 5, 8])
    whole = ran(ValueWindow(2, 1, "t", "tuple"), rows)
    assert whole.stamped() == [(5, [2, 3, 3, 4]), (6, [4, 5])]
    assert whole.origins()[1][:4] == (4, 0, 5, 0)


def test_a_tuple_window_takes_a_row_that_comes_behind() -> None:
    rows = ints([5, 8, 6, 20])
    steps = Steps(None, np.array([1, 4]), np.array([5, 20]))
    assert ran(ValueWindow(2, 2, "t", "tuple"), rows, steps).stamped() == [(4, [5, 6]), (4, [8])]


def test_a_row_for_a_closed_tuple_window_is_late() -> None:
    rows = ints([5, 20, 6, 21])
    whole = ran(ValueWindow(2, 2, "t", "tuple"), rows, progress_of(rows, "t", 9))
    assert whole.stamped() == [(2, [5]), (9, [20, 21])]
    assert [(place[1], place[3]) for place in whole.late] == [(3, "every window that could hold its 't' has closed")]


# --- landmark and latch ---


def test_landmark_emits_all_rows_since_the_landmark_each_time() -> None:
    rows = ints([1, 5, 12, 36])
    whole = ran(Landmark(2, 10, "t"), rows, progress_of(rows, "t", 9))
    # ends 12, then 22 and 32 in one step, then at the end what no window holds yet
    assert whole.stamped() == [(3, [5]), (4, [5, 12]), (4, [5, 12]), (9, [5, 12, 36])]
    assert len(set(whole.rows.ident.tolist())) == 4


def test_landmark_by_rows_skips_its_start() -> None:
    assert ran(Landmark(1, 2), ints([1, 2, 3, 4, 5])).stamped() == [(3, [2, 3]), (5, [2, 3, 4, 5])]


def test_latch_holds_its_value_from_window_to_window() -> None:
    rows = ints([1, 5, 12, 36])
    whole = ran(Latch(10, "t"), rows, progress_of(rows, "t", 9), calls=(AggregateCall("top", "max", ("t",)), COUNT))
    assert whole.stamped() == [(3, 5, 2), (4, 12, 3), (9, 36, 4)]


def test_latch_by_rows_stays_silent_at_the_end() -> None:
    rows = ints([4, 1, 7])
    assert ran(Latch(2), rows, calls=(AggregateCall("s", "sum", ("t",)),)).stamped() == [(2, 5)]


def test_what_a_landmark_carries_does_not_grow_with_its_rows() -> None:
    calls = (AggregateCall("s", "sum", ("t",)), AggregateCall("k", "count", ("m",), distinct=True))
    m = pa.array(np.arange(1000) % 3)
    assert len(ran(Latch(10, "t"), ints(list(range(1000)), m=m), calls=calls[:1]).state["rows"]) == 10
    whole = ran(Latch(10, "t"), ints(list(range(1000)), m=m), calls=calls)
    assert len(whole.state["rows"]) == 10 + 3  # one row for each distinct value
    assert whole.rows.table.column("k").to_pylist() == [3] * 99


def test_a_jump_over_millions_of_landmark_windows_is_named() -> None:
    rows = ints([1, 10**12])
    with pytest.raises(BoxFailed) as caught:
        ran(Landmark(0, 1, "t"), rows)
    assert str(caught.value) == (
        "would emit 999,999,999,999 windows in one call: progress of 't' comes to 1000000000000\n"
        "  hint: a larger slide makes fewer; is one value far ahead, or a gap in the data?"
    )


# --- aggregates that fail, user functions ---


def test_an_overflow_gives_null_and_a_rejected_row() -> None:
    calls = (AggregateCall("s", "sum", ("t",)), COUNT)
    whole = ran(CountWindow(2, 1), ints([2**62, 2**62, 1, 1]), calls=calls)
    assert whole.stamped() == [(2, None, 2), (3, 2**62 + 1, 2), (4, 2, 2)]
    ((port, row, reason),) = whole.rejected
    assert (port, "'sum(t)': None" in row, "'count(*)': 2" in row) == (0, True, True)
    assert "sum(t)" in reason


def test_a_user_function_sees_the_rows_of_its_window_and_nothing_else() -> None:
    def seen(rows: pa.Table) -> str:
        return f"{rows.column_names} {rows.column('t').to_pylist()}"

    calls = (AggregateCall("f", "user", user=UserFunction(seen, pa.string())),)
    rows = ints([1, 2, 3], w=pa.array(["a", "b", "c"]))
    kernel = window_kernel(CountWindow(2, 1), ("w",), calls, rows.table.schema)
    assert kernel.schema.names == ["w", "f"]
    assert ran(CountWindow(2, 1), rows, calls=calls).stamped() == [(2, "['t', 'w'] [1, 2]"), (3, "['t', 'w'] [2, 3]")]


def test_a_user_function_that_fails_rejects_its_row_only() -> None:
    def inverse(rows: pa.Table) -> float:
        return 1 / sum(rows.column("t").to_pylist())

    calls = (AggregateCall("f", "user", user=UserFunction(inverse, pa.float64(), ("t",))),)
    for window in (CountWindow(1, 1), Latch(1)):
        whole = ran(window, ints([0, 2]), calls=calls)
        assert whole.stamped() == [(1, None), (2, 0.5)]
        assert "ZeroDivisionError" in whole.rejected[0][2]


# --- what cannot be built ---


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (CountWindow(0, 1), "a window of rows=0, slide=1: both must be at least 1"),
        (CountWindow(3, 0), "a window of rows=3, slide=0: both must be at least 1"),
        (ValueWindow(0, 1, "t"), "a window of span=0: it must be above 0"),
        (ValueWindow(3, -1, "t", "tuple"), "a window of slide=-1: it must be above 0"),
        (Latch(0), "a window every=0 rows: it must be a whole number of at least 1"),
        (Landmark(0, 0, "t"), "a window of every=0: it must be above 0"),
        (Landmark("noon", 2, "t"), "a landmark at 'noon': not a value of type BIGINT"),
        (Landmark(-1, 2), "a landmark at row -1: it must be a whole number of at least 0"),
    ],
)
def test_windows_without_size_or_slide_are_refused(window: WindowKind, text: str) -> None:
    with pytest.raises(WindowError) as caught:
        window_kernel(window, (), (COUNT,), pa.schema([("t", pa.int64())]))
    assert str(caught.value) == text


def test_a_window_on_a_column_without_arithmetic_is_refused() -> None:
    with pytest.raises(TypeProblem) as caught:
        window_kernel(Latch(1, "t"), (), (COUNT,), pa.schema([("t", pa.string())]))
    assert str(caught.value) == "a window cannot run on a column of type STRING"
