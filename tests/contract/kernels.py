"""Every kernel, in every way it can be set up, over generated input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from tests.contract.replays import Case, Row, clocks, inputs
from tests.unit.test_operator_join import Divides

from clew.expressions.aggregates import AggregateCall
from clew.network.boxes import CountWindow, Landmark, Latch, ValueWindow, WindowKind
from clew.operators.apply import ApplyKernel
from clew.operators.base import Kernel
from clew.operators.drop import DropKernel
from clew.operators.join import JoinKernel
from clew.operators.resample import ResampleKernel
from clew.operators.sort import SortKernel
from clew.operators.union import UnionKernel
from clew.operators.windows import window_kernel
from clew.operators.windows.panes import PaneKernel

CALLS = (
    AggregateCall("rows", "count"),
    AggregateCall("total", "sum", ("x",)),
    AggregateCall("all", "collect", ("x",)),
    AggregateCall("kinds", "count", ("x",), distinct=True),
)
MERGING = CALLS[:2]
WHOLE = st.sampled_from([None, *range(-3, 10), *range(-3, 10), 30])
FLOATS = st.sampled_from([None, math.nan, math.inf, *(n * 0.1 for n in range(-3, 10)), 3.0])
GROUPS = st.sampled_from([None, "a", "b", "c"])
sizes = st.integers(1, 5)
spans = st.sampled_from([1, 2, 3, 5, 8])


@st.composite
def axes(draw: st.DrawFn, infinite: bool = True) -> tuple[pa.Schema, st.SearchStrategy[Row], float]:
    """A schema over whole or broken numbers, its rows, and the unit of its spans."""
    floats = draw(st.booleans())
    kind = pa.float64() if floats else pa.int64()
    schema = pa.schema({"t": kind, "g": pa.string(), "x": pa.int64()})
    on = FLOATS if floats else WHOLE
    if not infinite:  # a landmark would emit without end
        on = on.filter(lambda t: t != math.inf)
    row = st.fixed_dictionaries({"t": on, "g": GROUPS, "x": st.integers(0, 4)})
    return schema, row, 0.1 if floats else 1


@st.composite
def over_one(draw: st.DrawFn, make: Callable[[Any, pa.Schema, float], Kernel], tame: bool = False) -> Case:
    """`tame`: nothing infinite, and no row behind the end of the input."""
    schema, row, unit = draw(axes(infinite=not tame))
    kernel = make(draw, schema, unit)
    finish = draw(st.sampled_from([None, None, 40, 40 if tame else 17]))
    clock = draw(clocks(kernel.progress_on[0], 12, finish))
    return Case(kernel, (draw(inputs(schema, row, 0)),), (clock,), (row,))


@st.composite
def over_two(draw: st.DrawFn, make: Callable[[Any, pa.Schema, float], Kernel]) -> Case:
    schema, row, unit = draw(axes())
    kernel = make(draw, schema, unit)
    finish = draw(st.sampled_from([None, None, 17, 40]))
    both = [clocks(kernel.progress_on[port], 12, finish) for port in range(2)]
    rows = tuple(draw(inputs(schema, row, port, 14)) for port in range(2))
    return Case(kernel, rows, (draw(both[0]), draw(both[1])), (row, row))


def windows(kind: st.SearchStrategy[WindowKind], calls: Any = CALLS) -> Callable[[Any, pa.Schema, float], Kernel]:
    def make(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
        by = ("g",) if draw(st.sampled_from([True, True, False])) else ()
        return window_kernel(_scaled(draw(kind), unit), by, calls, schema)

    return make


def _scaled(window: WindowKind, unit: float) -> WindowKind:
    if isinstance(window, ValueWindow):
        return ValueWindow(window.span * unit, window.slide * unit, window.on, window.anchor)
    if isinstance(window, Latch) and window.on:
        return Latch(window.every * unit, window.on)
    if isinstance(window, Landmark) and window.on:
        return Landmark(window.start * unit, window.every * unit, window.on)
    return window


@st.composite
def panes(draw: st.DrawFn) -> Case:
    """Clock windows over whole numbers with aggregates that merge."""
    schema = pa.schema({"t": pa.int64(), "g": pa.string(), "x": pa.int64()})
    row = st.fixed_dictionaries({"t": WHOLE, "g": GROUPS, "x": st.integers(0, 4)})
    window = ValueWindow(draw(spans), draw(spans), "t", "clock")
    kernel = window_kernel(window, ("g",), MERGING, schema)
    assert isinstance(kernel, PaneKernel)
    finish = draw(st.sampled_from([None, None, 17, 40]))
    return Case(kernel, (draw(inputs(schema, row, 0)),), (draw(clocks("t", 12, finish)),), (row,))


def join(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
    low, width = draw(st.integers(-3, 2)), draw(st.integers(0, 4))
    keys = [("g", "g")] if draw(st.sampled_from([True, True, False])) else []
    where = OnX() if draw(st.booleans()) else None
    how = draw(st.sampled_from(["inner", "left"]))
    return JoinKernel(("t", "t"), low * unit, (low + width) * unit, keys, where, how, (schema, schema))


class OnX:
    """`Divides` of the join's own tests, over x."""

    sql = Divides.sql

    def keep(self, table: pa.Table) -> Any:
        return Divides().keep(pa.table({"n": table.column("x"), "n_right": table.column("x_right")}))


def resample(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
    by = [("g", "g")] if draw(st.sampled_from([True, True, False])) else []
    calls = [AggregateCall("rows", "count"), AggregateCall("seen", "collect", ("x",))]
    return ResampleKernel(("t", "t"), draw(st.integers(0, 3)) * unit, by, calls, (schema, schema))


def sort(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
    del unit
    return SortKernel(draw(st.sampled_from(["t", "t", "g"])), draw(st.integers(0, 5)), schema)


def drop(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
    del unit
    if draw(st.booleans()):
        return DropKernel(draw(st.integers(1, 4)), None, 0, schema)
    return DropKernel(None, 0.4, draw(st.integers(0, 3)), schema)


def union(draw: Any, schema: pa.Schema, unit: float) -> Kernel:
    del draw, unit
    return UnionKernel(schema, 2)


OUT = pa.schema({"y": pa.int64()})


def _inverse(rows: pa.Table) -> pa.Table:
    return pa.table({"y": pc.divide_checked(12, rows.column("x"))})


def _running(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    total = (0 if state is None else state.column("sum")[0].as_py()) + pc.sum(rows.column("x")).as_py()
    if total % 7 == 6:
        raise ValueError("six")
    return pa.table({"sum": [total]}), pa.table({"y": [total], "_row": [len(rows) - 1]})


def _distinct(rows: pa.Table) -> pa.Table:
    return pa.table({"y": sorted(set(rows.column("x").to_pylist()))})


def apply(how: Any, function: Callable[..., Any]) -> Callable[[Any, pa.Schema, float], Kernel]:
    return lambda _, schema, __: ApplyKernel(function, OUT, how, schema)


KERNELS: dict[str, st.SearchStrategy[Case]] = {
    "count": over_one(windows(st.builds(CountWindow, sizes, sizes))),
    "count_slide_1": over_one(windows(st.builds(CountWindow, sizes, st.just(1)))),
    "count_partial": over_one(windows(st.builds(CountWindow, sizes, sizes, st.just(True)))),
    "clock": over_one(windows(st.builds(ValueWindow, spans, spans, st.just("t"), st.just("clock")))),
    "panes": panes(),
    "anchored": over_one(windows(st.builds(ValueWindow, spans, spans, st.just("t"), st.just("tuple")))),
    "landmark": over_one(windows(st.builds(Landmark, st.sampled_from([-2, 0, 3]), spans, st.just("t"))), tame=True),
    "landmark_rows": over_one(windows(st.builds(Landmark, st.integers(0, 2), sizes))),
    "latch": over_one(windows(st.builds(Latch, spans, st.just("t")))),
    "latch_rows": over_one(windows(st.builds(Latch, sizes))),
    "sort": over_one(sort),
    "drop": over_one(drop),
    "apply_rows": over_one(apply("rows", _inverse)),
    "apply_stateful": over_one(apply("stateful", _running)),
    "apply_opaque": over_one(apply("opaque", _distinct)),
    "union": over_two(union),
    "join": over_two(join),
    "resample": over_two(resample),
}
