"""Windows: every kind against its reference, under any cut and any partitioning."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import cuts, listed, rows_of, run_cut, stamps, told_steps

from clew.expressions.aggregates import AggregateCall
from clew.model.axis import axis_end
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.network.boxes import CountWindow, Landmark, Latch, ValueWindow, WindowKind
from clew.operators.windows import window_kernel
from clew.operators.windows.panes import PaneKernel
from clew.operators.windows.reference import reference

SUM = AggregateCall("total", "sum", ("x",))
CALLS = (
    AggregateCall("n", "count"), SUM, AggregateCall("all", "collect", ("m",)), AggregateCall("one", "first", ("x",)),
    AggregateCall("kinds", "count", ("x",), distinct=True), AggregateCall("low", "min", ("m",)),
)  # fmt: skip
BOUNDED = tuple(c for c in CALLS if c.function != "collect")
PLAIN = tuple(c for c in BOUNDED if not c.distinct)
MERGING = tuple(c for c in PLAIN if c.function != "first")
EXAMPLES = int(os.environ.get("CLEW_EXAMPLES", "12"))
GROUPS = {
    pa.string(): st.sampled_from([None, "", "a", "b"]),
    pa.float64(): st.sampled_from([None, math.nan, 0.0, 1.5]),
    pa.int32(): st.just(7),
}
WHOLE = st.sampled_from([None, *range(-6, 7), *range(-6, 7), *range(12), 30])
FLOAT = st.sampled_from(
    [None, math.nan, math.inf, -math.inf, *np.arange(-4, 4, 0.5).tolist(), 0.1, 0.30000000000000004]
)
IN_ORDER = st.integers(0, 2)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Rows, Steps]:
    """Rows of a few groups with ties and disorder; progress follows some of them, or comes from elsewhere."""
    stamp = draw(stamps(30))
    count = len(stamp)
    kind = draw(st.sampled_from([pa.int64(), pa.float64(), pa.float64()]))
    ascending = draw(st.booleans())
    if ascending:
        steps = draw(st.lists(IN_ORDER, min_size=count, max_size=count))
        on: list[Any] = (np.cumsum(steps, dtype=np.int64) - 5).tolist()
    else:
        on = draw(st.lists(FLOAT if kind == pa.float64() else WHOLE, min_size=count, max_size=count))
    group = draw(st.sampled_from(list(GROUPS)))
    columns = {
        "g": pa.array(draw(st.lists(GROUPS[group], min_size=count, max_size=count)), group),
        "t": pa.array(on, kind),
        "x": pa.array(
            draw(st.lists(st.sampled_from([None, 0.1, 0.2, 1e16]), min_size=count, max_size=count)), pa.float64()
        ),
        "m": pa.array(range(count), pa.int64()),
    }
    ahead = draw(st.lists(st.sampled_from([None, None, -3, -1, 0, 0, 0, 2, 9]), min_size=count, max_size=count))
    told = [(s, o + a) for s, o, a in zip(stamp, on, ahead, strict=True) if None not in (o, a) and math.isfinite(o)]
    if draw(st.booleans()):
        told.append((max(stamp, default=0) + draw(st.integers(0, 2)), axis_end(kind)))
    axis = np.float64 if kind == pa.float64() else np.int64
    steps_ = Steps.running(None, np.array([s for s, _ in told], np.int64), np.array([v for _, v in told], axis))
    return rows_of(pa.table(columns), stamp), steps_


sizes = st.integers(1, 7)
spans = st.sampled_from([1, 2, 3, 5, 7, 10])
counts = st.builds(CountWindow, sizes, sizes, st.booleans())
clocks = st.builds(ValueWindow, spans, spans, st.just("t"), st.just("clock"))
anchored = st.builds(ValueWindow, spans, spans, st.just("t"), st.just("tuple"))
landmarks = st.builds(Landmark, st.sampled_from([-4, 0, 3]), spans, st.just("t"))
landmark_rows = st.builds(Landmark, st.sampled_from([0, 2]), sizes)
latches = st.builds(Latch, spans, st.just("t"))
latch_rows = st.builds(Latch, sizes)
KINDS = {
    "count": counts, "clock": clocks, "anchored": anchored, "landmark": landmarks, "landmark_rows": landmark_rows,
    "latch": latches, "latch_rows": latch_rows,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES)
@given(
    data=st.data(),
    stream=streams(),
    cuts=cuts,
    grouped=st.booleans(),
    calls=st.sampled_from([CALLS, BOUNDED, PLAIN, MERGING]),
)
def test_window_equals_its_reference_under_any_cut_and_partitioning(
    kind: str, data: st.DataObject, stream: tuple[Rows, Steps], cuts: list[int], grouped: bool, calls: Any
) -> None:
    rows, steps = stream
    floats = rows.table.schema.field("t").type == pa.float64()
    window = data.draw(KINDS[kind]) if not floats else tenths(data.draw(KINDS[kind]), data.draw(st.booleans()))
    by = ("g",) if grouped else ()
    check(window, by, calls, rows, steps, cuts)


def tenths(window: WindowKind, wanted: bool) -> WindowKind:
    """The window with spans that binary floats cannot hold."""
    if not wanted or isinstance(window, CountWindow) or window.on is None:
        return window
    names = ("span", "slide") if isinstance(window, ValueWindow) else ("every",)
    return replace(window, **{name: getattr(window, name) * 0.1 for name in names})


def check(window: WindowKind, by: tuple[str, ...], calls: Any, rows: Rows, steps: Steps, cuts: list[int]) -> None:
    kernel = window_kernel(window, by, calls, rows.table.schema)
    whole = run_cut(kernel, [rows], [steps])
    expected, late = reference(window, by, rows.table.schema, listed(rows), told_steps(steps))
    names = [*by, *(c.out for c in calls)]
    got = [(*row, *origin) for row, origin in zip(whole.stamped(*names), whole.origins(floor=True), strict=True)]
    assert list(map(repr, got)) == [repr(e.told(calls)) for e in expected]
    assert [(stamp, pos) for _, stamp, pos, _ in whole.late] == late
    assert len(set(whole.rows.ident.tolist())) == len(whole.rows)
    assert run_cut(kernel, [rows], [steps], cuts).told() == whole.told()
    assert run_cut(kernel, [rows], [steps], cuts, parts=3).told() == whole.told()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("disorder", [0, 3, 30])
def test_window_equals_its_reference_on_longer_streams(kind: str, disorder: int) -> None:
    random = np.random.default_rng(disorder)
    count = 250
    stamp = np.sort(random.integers(0, 200, count))
    on = np.sort(random.integers(0, 150, count)) + random.integers(0, disorder + 1, count)
    table = pa.table(
        {"g": random.integers(0, 4, count), "t": on, "x": random.normal(size=count), "m": np.arange(count)}
    )
    steps = Steps.running(None, stamp, on - random.integers(0, 5, count))
    windows: dict[str, list[WindowKind]] = {
        "count": [CountWindow(7, 3), CountWindow(3, 7), CountWindow(9, 1, True), CountWindow(2, 5, True)],
        "clock": [ValueWindow(c, s, "t") for c, s in ((20, 20), (30, 7), (7, 30))],
        "anchored": [ValueWindow(c, s, "t", "tuple") for c, s in ((20, 20), (30, 7), (7, 30))],
        "landmark": [Landmark(10, 9, "t")], "landmark_rows": [Landmark(11, 6)],
        "latch": [Latch(9, "t")], "latch_rows": [Latch(6)],
    }  # fmt: skip
    for window in windows[kind]:
        for calls in (CALLS, MERGING):
            check(window, ("g",), calls, rows_of(table, stamp.tolist()), steps, [20, 21, 90, 150])


@settings(max_examples=EXAMPLES)
@given(data=st.data(), stream=streams(), cuts=cuts)
def test_a_clock_window_halves_calls_with_many_rows_behind_and_gives_the_same(
    data: st.DataObject, stream: tuple[Rows, Steps], cuts: list[int]
) -> None:
    with patch("clew.operators.windows.clock.MOST_LISTED", 0):
        check(data.draw(clocks), ("g",), CALLS, *stream, cuts)


@settings(max_examples=EXAMPLES)
@given(
    window=clocks,
    gaps=st.lists(IN_ORDER, max_size=40),
    cuts=cuts,
    seed=st.integers(0, 9),
    disorder=st.sampled_from([0, 0, 1, 4]),
)
def test_panes_made_elsewhere_give_what_rows_give(
    window: ValueWindow, gaps: list[int], cuts: list[int], seed: int, disorder: int
) -> None:
    random = np.random.default_rng(seed)
    on = np.cumsum(gaps, dtype=np.int64) - 9
    on -= random.integers(0, disorder + 1, len(on)) * (random.random(len(on)) < 0.2)
    count = len(on)
    table = pa.table(
        {"g": random.integers(0, 3, count), "t": on, "x": random.normal(size=count), "m": np.arange(count)}
    )
    rows = rows_of(table, list(range(1, count + 1)))
    steps = Steps.running(None, rows.stamp, on)
    kernel = window_kernel(window, ("g",), MERGING, table.schema)
    assert isinstance(kernel, PaneKernel) or span_over_slide(window) > 16
    expected = run_cut(kernel, [rows], [steps])
    if isinstance(kernel, PaneKernel):
        slices = np.split(np.arange(count), sorted(c for c in cuts if c < count))
        panes = [kernel.combine(rows.take(s), steps) for s in slices]
        if disorder and any(p is None for p in panes):
            return
        made = kernel.run_combined(kernel.empty(), [p for p in panes if p is not None], [steps])
        assert not expected.late
        assert made.rows.to_table().equals(expected.rows.to_table())
        assert made.origin.to_table().equals(expected.origin.to_table())


def span_over_slide(window: ValueWindow) -> int:
    return window.span // math.gcd(window.span, window.slide)


def test_rows_kept_from_a_call_before_stand_in_windows_below_zero_beside_a_row_that_came_late() -> None:
    rows = rows_of(pa.table({"t": [-19, -12, -19, -1], "g": [1] * 4, "x": [0.5] * 4, "m": range(4)}), [1, 2, 3, 4])
    steps = Steps.running(None, rows.stamp, np.array([-19, -15, -15, -1]))
    check(ValueWindow(10, 5, "t"), ("g",), CALLS, rows, steps, [1, 2])


def test_panes_of_one_step_are_in_no_window_that_closed_before_it() -> None:
    rows = rows_of(pa.table({"t": [-1], "g": [1], "x": [0.5], "m": [0]}), [2])
    steps = Steps.running(None, np.array([1]), np.array([0]))  # [-2, 0) closed in step 1
    check(ValueWindow(2, 1, "t"), ("g",), MERGING, rows, steps, [1])
