"""Aggregates over ranges: equal to the plain-Python reference, independent of cuts, and mergeable.

`test_*_as_the_reference` prove the values, `test_*_cut_*` that nothing but a range's own rows matters,
`test_*merge*` that partials carry a past exactly; the rest are single promises.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import TypeProblem, UnknownColumn
from clew.expressions.aggregates import AggregateCall, UserFunction, call_text
from clew.model.types import TIMESTAMP
from clew.operators.aggregation import aggregate, final, is_bounded, merge, partial, result_type
from clew.operators.aggregation.extrema import extreme
from clew.operators.aggregation.reference import reference
from clew.operators.aggregation.wavelet import count_below, kth_smallest

Ranges = tuple[np.ndarray, np.ndarray]

DOUBLES = st.one_of(
    st.floats(),
    st.integers(-400, 400).map(lambda cents: cents / 100),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.7e308, -1.7e308, 1e308, math.nan, math.inf, -math.inf]),
)
CENTS = st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2))
WIDE = st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-99, 99)).map(lambda n: Decimal(f"{n}e-10"))
CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "doubles": (pa.float64(), DOUBLES),
    "plain doubles": (pa.float64(), st.floats(-1e6, 1e6)),
    "floats": (pa.float32(), st.floats(width=32)),
    "bigints": (pa.int64(), st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5))),
    "ints": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "decimals": (pa.decimal128(10, 2), CENTS),
    "wide decimals": (pa.decimal128(38, 10), WIDE),
    "strings": (pa.string(), st.text("aäz€\U0001f600", max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "booleans": (pa.bool_(), st.booleans()),
    "dates": (pa.date32(), st.dates()),
    "timestamps": (TIMESTAMP, st.datetimes(timezones=st.just(dt.UTC))),
}
NUMBERS = [name for name, (kind, _) in CELLS.items() if pa.types.is_floating(kind) or "int" in name or "dec" in name]


def call(function: str, *args: str, **options: bool) -> AggregateCall:
    return AggregateCall("out", function, args or ("x",), **options)


ANY_TYPE = [
    call("count"), call("count", distinct=True), call("min"), call("max"), call("collect"), call("first"),
    call("last"), call("first", ignore_nulls=True), call("last", ignore_nulls=True),
]  # fmt: skip
NUMERIC = [call(f) for f in ("sum", "avg", "median", "stddev_samp", "stddev_pop", "var_samp", "var_pop")]


@st.composite
def tables(draw: st.DrawFn, name: str) -> tuple[pa.Table, Ranges]:
    """A column, and ranges that slide, tumble, start at zero, leave gaps or are empty."""
    kind, cells = CELLS[name]
    values = draw(st.lists(st.one_of(cells, cells, cells, st.none()), max_size=24))
    n = len(values)
    bounds = draw(st.lists(st.tuples(st.integers(0, n), st.integers(0, n)), max_size=6))
    size = draw(st.integers(1, 8))
    pairs = [(min(b), max(b)) for b in bounds] + [(max(0, i - size), i) for i in range(n + 1)] + [(0, n)]
    table = pa.table({"x": pa.array(values, kind)})
    if draw(st.booleans()) and n > 1:
        table = pa.concat_tables([table.slice(0, n // 2), table.slice(n // 2)])
    lo, hi = np.array(pairs, np.int64).T
    return table, (lo, hi)


def calls_for(name: str) -> list[AggregateCall]:
    return ANY_TYPE + (NUMERIC if name in NUMBERS else [])


def expected(one: AggregateCall, kind: pa.DataType, rows: list[dict[str, Any]]) -> str:
    value = reference(one, rows)
    if pa.types.is_floating(kind) and value is not None:
        return repr(float(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "failed"
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > kind.precision:
        return "failed"
    return repr(value)


def answers(one: AggregateCall, table: pa.Table, ranges: Ranges) -> list[str]:
    """Values as text that tells every bit but a NaN's sign."""
    return shown(aggregate(one, table, *ranges))


def shown(answer: Any) -> list[str]:
    failed = np.zeros(len(answer.values), bool) if answer.failed is None else answer.failed
    values = answer.values.to_pylist()
    assert all(v is None for v, f in zip(values, failed, strict=True) if f), "a failed row is null"
    return ["failed" if f else repr(v) for v, f in zip(values, failed, strict=True)]


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_aggregate_of_every_type_is_as_the_reference(name: str, data: st.DataObject) -> None:
    table, ranges = data.draw(tables(name))
    rows = table.to_pylist()
    for one in calls_for(name):
        kind = result_type(one, table.schema)
        want = [expected(one, kind, rows[a:b]) for a, b in zip(*map(np.ndarray.tolist, ranges), strict=True)]
        answer = aggregate(one, table, *ranges)
        assert answer.values.type == kind, call_text(one)
        assert shown(answer) == want, call_text(one)


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_a_value_is_the_same_when_its_rows_are_cut_out(name: str, data: st.DataObject) -> None:
    table, (lo, hi) = data.draw(tables(name))
    for one in calls_for(name):
        alone = []
        for a, b in zip(lo.tolist(), hi.tolist(), strict=True):
            alone += answers(one, table.slice(a, b - a), (np.array([0]), np.array([b - a])))
        assert answers(one, table, (lo, hi)) == alone, call_text(one)


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_partials_merge_to_the_aggregate_of_all_rows(name: str, data: st.DataObject) -> None:
    table, (lo, hi) = data.draw(tables(name))
    first, second = lo + (hi - lo) // 3, lo + (hi - lo) * 2 // 3
    for one in calls_for(name):
        parts = [partial(one, table, a, b) for a, b in ((lo, first), (first, second), (second, hi))]
        left = merge(one, merge(one, parts[0], parts[1]), parts[2])
        right = merge(one, parts[0], merge(one, parts[1], parts[2]))
        all_at_once = partial(one, table, lo, hi)
        assert repr(left.to_pylist()) == repr(right.to_pylist()) == repr(all_at_once.to_pylist()), call_text(one)
        assert left.type == right.type == all_at_once.type
        whole = answers(one, table, (lo, hi))
        assert shown(final(one, left)) == shown(final(one, all_at_once)) == whole, call_text(one)
        assert final(one, left).values.type == result_type(one, table.schema)


@pytest.mark.parametrize("one", [*ANY_TYPE, *NUMERIC], ids=call_text)
def test_partials_survive_ipc_slices_and_chunks(one: AggregateCall) -> None:
    table = pa.table({"x": [1.5, None, -2.5, 1e300, math.nan, math.inf, 3.0, 1e-300, 4.0]})
    lo, hi = np.arange(8), np.arange(8) + 2
    parts = partial(one, table, lo, hi)
    state = pa.table({"p": parts})
    state = pa.concat_tables([state.slice(0, 3), state.slice(3)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, state.schema) as writer:
        writer.write_table(state)
    back = pa.ipc.open_stream(sink.getvalue()).read_all().column("p")
    assert shown(final(one, back)) == answers(one, table, (lo, hi))
    assert shown(final(one, parts.slice(2, 4))) == answers(one, table, (lo[2:6], hi[2:6]))
    assert repr(merge(one, parts.slice(1, 3), back.slice(4, 3)).to_pylist()) == repr(
        merge(one, parts, pa.concat_arrays([parts.slice(3), parts.slice(0, 3)])).slice(1, 3).to_pylist()
    )


@pytest.mark.parametrize("window", [1, 7, 50, 500, 3000])
def test_sums_of_ordinary_and_of_wild_doubles_are_fsum_for_all_windows(window: int) -> None:
    rng = np.random.default_rng(window)
    n = 3000
    for values in (
        np.round(rng.uniform(50, 150, n), 2),
        rng.standard_normal(n),
        np.ldexp(rng.standard_normal(n), rng.integers(-1070, 1000, n)),
        np.where(rng.random(n) < 0.5, 1.0, -1.0) * 2.0 ** rng.integers(-60, 60, n),
    ):
        lo = np.arange(0, n - window + 1, max(1, (n - window) // 200))
        sums = aggregate(call("sum"), pa.table({"x": values}), lo, lo + window).values.to_pylist()
        assert sums == [math.fsum(values[a : a + window]) for a in lo]


def test_sums_beyond_the_doubles_are_infinite_and_those_that_return_are_not() -> None:
    table = pa.table({"x": [1.7e308, 1.7e308, -1.7e308, -1.7e308, -1.7e308]})
    lo, hi = np.array([0, 0, 0, 2]), np.array([2, 3, 4, 5])
    assert aggregate(call("sum"), table, lo, hi).values.to_pylist() == [math.inf, 1.7e308, 0.0, -math.inf]
    assert aggregate(call("avg"), table, lo, hi).values.to_pylist() == [math.inf, 1.7e308 / 3, 0.0, -math.inf]


def test_an_exact_zero_is_positive() -> None:
    answer = aggregate(call("sum"), pa.table({"x": [-0.0, 1.0, -1.0]}), np.array([0, 1]), np.array([1, 3]))
    assert repr(answer.values.to_pylist()) == "[0.0, 0.0]"


def test_variance_does_not_cancel() -> None:
    values = 1e9 + np.array([0.0, 1.0, 2.0, 3.0])
    answer = aggregate(call("var_samp"), pa.table({"x": values}), np.array([0]), np.array([4]))
    assert answer.values.to_pylist() == [5 / 3]


def test_bigint_overflow_is_null_with_a_reason_and_only_there() -> None:
    top = 2**63 - 1
    table = pa.table({"x": [top, 1, -1, -top, -2]})
    answer = aggregate(call("sum"), table, np.array([0, 0, 3]), np.array([2, 3, 5]))
    assert answer.values.to_pylist() == [None, top, None]
    assert answer.failed is not None
    assert answer.failed.tolist() == [True, False, True]
    assert answer.why(0) == "sum(x) is beyond BIGINT"


def test_decimal_overflow_is_null_with_a_reason() -> None:
    table = pa.table({"x": pa.array([Decimal("9" * 38), Decimal(1)], pa.decimal128(38, 0))})
    lo, hi = np.array([0, 1]), np.array([2, 2])
    total = aggregate(call("sum"), table, lo, hi)
    assert total.values.to_pylist() == [None, Decimal(1)]
    assert total.why(0) == "sum(x) is beyond DECIMAL(38,0)"
    mean = aggregate(call("avg"), table, np.array([0]), np.array([1]))
    assert (mean.values.to_pylist(), mean.why(0)) == ([None], "avg(x) is beyond DECIMAL(38,4)")


def test_averages_of_decimals_round_half_away_from_zero() -> None:
    table = pa.table({"x": pa.array([Decimal("0.01"), Decimal("0.02"), Decimal("0.02")], pa.decimal128(4, 2))})
    values = aggregate(call("avg"), table, np.array([0, 0]), np.array([3, 2])).values
    assert values.type == pa.decimal128(8, 6)
    assert values.to_pylist() == [Decimal("0.016667"), Decimal("0.015000")]


def test_count_takes_any_number_of_columns() -> None:
    table = pa.table({"a": [1, None, 1, 1, 2], "b": [0.0, 1.0, -0.0, None, math.nan]})
    every = np.array([0]), np.array([5])
    counts = [
        aggregate(one, table, *every).values.to_pylist()[0]
        for one in (
            AggregateCall("n", "count"),
            call("count", "a"),
            call("count", "a", "b"),
            call("count", "a", distinct=True),
            call("count", "a", "b", distinct=True),
        )
    ]
    assert counts == [5, 4, 3, 2, 2]
    one = call("count", "a", "b", distinct=True)
    assert final(one, partial(one, table, *every)).values.to_pylist() == [2]


def test_collect_is_null_without_rows_and_empty_without_values() -> None:
    table = pa.table({"x": [None, 1, None, 2]})
    answer = aggregate(call("collect"), table, np.array([0, 0, 1]), np.array([0, 1, 4]))
    assert answer.values.to_pylist() == [None, [], [1, 2]]


def test_a_user_function_fails_for_its_own_range_only() -> None:
    def ratio(rows: pa.Table) -> float:
        return rows.column("x")[0].as_py() / rows.column("x")[-1].as_py()

    one = AggregateCall("r", "user", user=UserFunction(ratio, pa.float64(), ("x",)))
    table = pa.table({"x": [1.0, 2.0, 0.0], "y": ["a", "b", "c"]})
    lo, hi = np.array([0, 1, 0, 1]), np.array([2, 3, 0, 2])
    answer = aggregate(one, table, lo, hi)
    assert answer.values.to_pylist() == [0.5, None, None, 1.0]
    assert answer.failed is not None
    assert answer.failed.tolist() == [False, True, False, False]
    assert answer.why(1).endswith("ratio(x) failed: ZeroDivisionError: float division by zero")
    parts = merge(one, partial(one, table, lo, lo), partial(one, table, lo, hi))
    assert shown(final(one, parts)) == shown(answer)


def test_a_user_function_whose_value_has_another_type_fails() -> None:
    one = AggregateCall("r", "user", user=UserFunction(lambda rows: str(len(rows)), pa.int64()))
    answer = aggregate(one, pa.table({"x": [1]}), np.array([0]), np.array([1]))
    assert answer.values.to_pylist() == [None]
    assert "ArrowInvalid" in answer.why(0) or "ArrowTypeError" in answer.why(0)


@pytest.mark.parametrize(
    "one", [c for c in [*ANY_TYPE, *NUMERIC] if is_bounded(c) and c.function != "collect"], ids=call_text
)
def test_bounded_partials_do_not_grow_with_their_rows(one: AggregateCall) -> None:
    rng = np.random.default_rng(5)
    table = pa.table({"x": rng.standard_normal(50_000)})
    small, large = (partial(one, table, np.array([0]), np.array([n])).nbytes for n in (10, 50_000))
    assert large <= small + 64


def test_long_ranges_find_the_extremes() -> None:
    rng = np.random.default_rng(11)
    keys = rng.integers(-1000, 1000, 5000)
    lo = rng.integers(0, 5000, 400)
    hi = np.minimum(5000, lo + 1 + rng.integers(0, 4000, 400) // rng.integers(1, 100, 400))
    for largest, pick in ((True, np.max), (False, np.min)):
        assert extreme(keys, lo, hi, largest=largest).tolist() == [pick(keys[a:b]) for a, b in zip(lo, hi, strict=True)]


def test_the_wavelet_matrix_agrees_with_sorting() -> None:
    rng = np.random.default_rng(12)
    for top in (1, 2, 7, 3000, 2**40):
        codes = rng.integers(0, top, 700)
        lo = rng.integers(0, 700, 300)
        hi = lo + 1 + rng.integers(0, 700 - lo)
        k = rng.integers(0, hi - lo)
        bound = rng.integers(0, top + 2, 300)
        pairs = list(zip(lo, hi, strict=True))
        assert kth_smallest(codes, lo, hi, k).tolist() == [
            np.sort(codes[a:b])[r] for (a, b), r in zip(pairs, k, strict=True)
        ]
        assert count_below(codes, lo, hi, bound).tolist() == [
            (codes[a:b] < x).sum() for (a, b), x in zip(pairs, bound, strict=True)
        ]


TYPES = [
    ("sum", pa.int8(), pa.int64()), ("sum", pa.int64(), pa.int64()), ("sum", pa.float32(), pa.float64()),
    ("sum", pa.decimal128(10, 2), pa.decimal128(20, 2)), ("sum", pa.decimal128(35, 2), pa.decimal128(38, 2)),
    ("avg", pa.int32(), pa.float64()), ("avg", pa.float32(), pa.float64()),
    ("avg", pa.decimal128(10, 2), pa.decimal128(14, 6)), ("avg", pa.decimal128(38, 36), pa.decimal128(38, 38)),
    ("min", pa.date32(), pa.date32()), ("max", pa.string(), pa.string()), ("first", pa.bool_(), pa.bool_()),
    ("last", pa.list_(pa.int8()), pa.list_(pa.int8())), ("count", pa.string(), pa.int64()),
    ("median", pa.decimal128(5, 1), pa.float64()), ("stddev_pop", pa.int16(), pa.float64()),
    ("collect", pa.int16(), pa.list_(pa.field("element", pa.int16()))),
]  # fmt: skip


@pytest.mark.parametrize(("function", "argument", "result"), TYPES)
def test_result_types_are_those_of_spark(function: str, argument: pa.DataType, result: pa.DataType) -> None:
    schema = pa.schema([("x", argument)])
    assert result_type(call(function), schema) == result
    empty = aggregate(call(function), schema.empty_table(), np.array([0]), np.array([0]))
    assert empty.values.type == result
    assert empty.values.to_pylist() == [0 if function == "count" else None]
    one = partial(call(function), schema.empty_table(), np.array([0]), np.array([0]))
    assert final(call(function), one).values.equals(empty.values)


REFUSED = [
    (call("sum", "s"), TypeProblem, "sum(s): sum needs numbers, but 's' is STRING"),
    (call("median", "b"), TypeProblem, "median(b): median needs numbers, but 'b' is BOOLEAN"),
    (call("min", "l"), TypeProblem, "min(l): min needs values with an order, but 'l' is ARRAY<INT>"),
    (call("count", "l", distinct=True), TypeProblem, "DISTINCT compares plain values, but 'l' is ARRAY<INT>"),
    (call("sum", "i", distinct=True), TypeProblem, "of the aggregates, only count, min and max take DISTINCT"),
    (call("sum", "i", "b"), TypeProblem, "sum(i, b): sum takes one argument, not 2"),
    (AggregateCall("o", "count", distinct=True), TypeProblem, "count(DISTINCT *) needs columns"),
    (call("avrg", "i"), TypeProblem, "no aggregate function 'avrg'\n  hint: did you mean 'avg'?"),
    (call("sum", "ii"), UnknownColumn, "sum(ii) aggregates column 'ii', which its input does not have"),
]


@pytest.mark.parametrize(("one", "error", "text"), REFUSED, ids=[call_text(c) for c, _, _ in REFUSED])
def test_what_does_not_fit_is_refused_by_name(one: AggregateCall, error: type[Exception], text: str) -> None:
    schema = pa.schema([("s", pa.string()), ("b", pa.bool_()), ("l", pa.list_(pa.int32())), ("i", pa.int32())])
    with pytest.raises(error) as caught:
        result_type(one, schema)
    assert text in str(caught.value)


@pytest.mark.parametrize("answer", [1.5, np.float32(0.25), Decimal("0.5")])
def test_a_function_of_whole_numbers_that_gives_a_fraction_has_failed(answer: object) -> None:
    call = AggregateCall("y", "user", ("x",), user=UserFunction(lambda _: answer, pa.int32()))
    made = aggregate(call, pa.table({"x": [1, 2]}), np.array([0]), np.array([2]))
    assert made.values.to_pylist() == [None]
    assert made.why(0).endswith(f"it gave {answer}, which is no INT")
