"""One call over ranges of rows: which algorithm answers which function."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from clew.errors import BoxFailed, CodeMissing
from clew.expressions.aggregates import AggregateCall, call_text
from clew.model.groups import group_codes
from clew.model.rows import Bools, Ints
from clew.model.types import type_name
from clew.operators.aggregation import moments
from clew.operators.aggregation.columns import Keys, as_doubles, counts_before, squeeze, whole
from clew.operators.aggregation.exact import Floats
from clew.operators.aggregation.extrema import extreme
from clew.operators.aggregation.results import Aggregated, result_type
from clew.operators.aggregation.wavelet import count_below, kth_smallest


def aggregate(call: AggregateCall, table: pa.Table, lo: Ints, hi: Ints) -> Aggregated:
    """The value of `call` over rows lo[i]:hi[i] of `table`, for each i.

    A function of those rows alone, bit for bit: it does not matter what else is in the table, or which
    other ranges are asked for. An empty range counts 0 and is otherwise null.
    """
    kind = result_type(call, table.schema)
    lo, hi = np.ascontiguousarray(lo, np.int64), np.ascontiguousarray(hi, np.int64)
    if call.function == "user":
        return _user(call, table, lo, hi)
    if call.function == "count":
        return _count(call, table, lo, hi)
    column = whole(table.column(call.args[0]))
    if call.function in moments.FUNCTIONS:
        return moments.finish(call, column.type, moments.gather(call, column, lo, hi))
    answer = Aggregated(_COLUMN_FUNCTIONS[call.function](call, column, lo, hi))
    assert answer.values.type == kind, f"{call_text(call)} gave {answer.values.type}, not {kind}"
    return answer


def _count(call: AggregateCall, table: pa.Table, lo: Ints, hi: Ints) -> Aggregated:
    columns = table.select(list(call.args))
    full = complete_rows(columns)
    if full is not None:
        before = counts_before(full)
        lo, hi = before[lo], before[hi]
    if not call.distinct:
        return Aggregated(pa.array(hi - lo))
    if full is not None:
        columns = columns.filter(pa.array(full))
    previous = previous_equal(columns)
    return Aggregated(pa.array(count_below(previous + 1, lo, hi, lo + 1)))


def complete_rows(columns: pa.Table) -> Bools | None:
    """The rows in which no column is null; None if these are all."""
    holed = [column for column in columns.columns if column.null_count]
    if not holed:
        return None
    full = np.ones(len(columns), np.bool_)
    for column in holed:
        full &= np.asarray(column.is_valid())
    return full


def previous_equal(columns: pa.Table) -> Ints:
    """For each row the last row before it that has the same values; -1 if none."""
    codes, _ = group_codes(columns, columns.column_names)
    order = np.argsort(codes, kind="stable")
    same = codes[order[1:]] == codes[order[:-1]]
    previous = np.full(len(columns), -1, np.int64)
    previous[order[1:]] = np.where(same, order[:-1], -1)
    return previous


def _extreme(call: AggregateCall, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
    column, lo, hi = squeeze(column, lo, hi)
    keys = Keys.of(column)
    return keys.values(extreme(keys.keys, lo, hi, largest=call.function == "max"), lo == hi)


def _edge(call: AggregateCall, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
    if call.ignore_nulls:
        column, lo, hi = squeeze(column, lo, hi)
    row = lo if call.function == "first" else hi - 1
    return column.take(pa.array(row, mask=lo == hi))


def _median(call: AggregateCall, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
    """The middle value, or of two middle ones the lower and half of what the upper is more: Spark's median."""
    del call
    column, lo, hi = squeeze(column, lo, hi)
    some = np.flatnonzero(hi > lo)
    out = np.zeros(len(lo))
    if len(some):
        codes, values = _ranks(column)
        first, last = lo[some], hi[some]
        size = last - first
        even = np.flatnonzero(size % 2 == 0)
        every = np.concatenate([np.arange(len(size)), even])
        found = kth_smallest(codes, first[every], last[every], np.concatenate([(size - 1) // 2, size[even] // 2]))
        below, above = found[: len(size)], found[: len(size)].copy()
        above[even] = found[len(size) :]
        with np.errstate(invalid="ignore"):
            middle = values[below] + (values[above] - values[below]) * 0.5
        out[some] = np.where(below == above, values[below], middle)
    return pa.array(out, mask=hi == lo)


def _ranks(column: pa.Array) -> tuple[Ints, Floats]:
    """Dense ranks of numbers, and the double for each rank."""
    keys = Keys.of(column)
    distinct, codes = np.unique(keys.keys, return_inverse=True)
    row_of = keys.values(distinct, np.zeros(len(distinct), np.bool_))
    return codes.astype(np.int64), as_doubles(row_of)


def _collect(call: AggregateCall, column: pa.Array, lo: Ints, hi: Ints) -> pa.Array:
    empty = lo == hi
    column, lo, hi = squeeze(column, lo, hi)
    return lists_of(column, lo, hi, empty, call_text(call))


def lists_of(column: pa.Array, lo: Ints, hi: Ints, missing: Bools, what: str) -> pa.Array:
    """The rows lo[i]:hi[i] of a column as lists; null where `missing`."""
    size = hi - lo
    offsets = np.zeros(len(lo) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise BoxFailed(f"{what} would hold {offsets[-1]} values at once", hint="use smaller windows or a larger slide")
    rows = np.arange(offsets[-1]) + np.repeat(lo - offsets[:-1], size)
    kind = pa.list_(pa.field("element", column.type))
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), column.take(pa.array(rows)), type=kind, mask=mask)


_FRACTIONS = (float, np.floating, Decimal)


def _user(call: AggregateCall, table: pa.Table, lo: Ints, hi: Ints) -> Aggregated:
    """A user's function, called once for each range that holds rows."""
    assert call.user is not None
    window_of = table.select(user_columns(call, table.schema)).combine_chunks()
    values: list[pa.Scalar] = []
    reasons: dict[int, str] = {}
    for i, (start, stop) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        value = pa.scalar(None, call.user.type)
        if stop > start:
            try:
                answer = call.user.function(window_of.slice(start, stop - start))
                answer = answer.as_py() if isinstance(answer, pa.Scalar) else answer
                if pa.types.is_integer(call.user.type) and isinstance(answer, _FRACTIONS) and answer % 1:
                    raise TypeError(f"it gave {answer}, which is no {type_name(call.user.type).upper()}")
                value = pa.scalar(answer, call.user.type)
            except CodeMissing:
                raise
            except Exception as error:  # whatever a user's code raises is that row's fault, not the epoch's
                reasons[i] = f"{call.user.text} failed: {type(error).__name__}: {error}"
        values.append(value)
    failed = np.zeros(len(lo), np.bool_)
    failed[list(reasons)] = True
    column = pa.array(values, call.user.type)
    return Aggregated(column, failed, next(iter(reasons.values())), reasons) if reasons else Aggregated(column)


def user_columns(call: AggregateCall, schema: pa.Schema) -> list[str]:
    """The columns that a user's function is given."""
    assert call.user is not None
    return list(call.args or call.user.columns or schema.names)


_COLUMN_FUNCTIONS: dict[str, Callable[[AggregateCall, pa.Array, Ints, Ints], pa.Array]] = {
    "min": _extreme, "max": _extreme, "first": _edge, "last": _edge, "median": _median, "collect": _collect,
}  # fmt: skip
