"""Aggregates in two steps, for windows that carry a past without end.

`final(partial(range))` is `aggregate(range)`, bit for bit, and `merge` is associative, also bit for
bit. Partials are Arrow arrays. Those of count, sum, avg, variance, min, max, first and last are of
bounded size; median, count distinct, collect and user functions keep the values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.expressions.aggregates import AggregateCall, call_text
from clew.model.ranges import each_in
from clew.model.rows import Bools, Ints
from clew.operators.aggregation import moments
from clew.operators.aggregation.columns import counts_before, squeeze, whole
from clew.operators.aggregation.exact import WIDTH, Exact
from clew.operators.aggregation.functions import (
    aggregate,
    complete_rows,
    lists_of,
    previous_equal,
    user_columns,
)
from clew.operators.aggregation.moments import Sums
from clew.operators.aggregation.results import Aggregated, result_type

_DIGITS = pa.list_(pa.field("element", pa.int64()))


def is_bounded(call: AggregateCall) -> bool:
    """Whether a call's partials are of bounded size; if not, keeping the rows costs as much.

    >>> is_bounded(AggregateCall("m", "median", ("x",)))
    False
    """
    return not (_is_distinct(call) or call.function in ("median", "collect", "user"))


def partial(call: AggregateCall, table: pa.Table, lo: Ints, hi: Ints) -> pa.Array:
    """What `call` must remember of rows lo[i]:hi[i] of `table`, for each i."""
    result_type(call, table.schema)
    if _is_distinct(call):
        return _distinct_partial(call, table, lo, hi)
    if call.function == "user":
        rows = whole(table.select(user_columns(call, table.schema)).to_struct_array())
        return lists_of(rows, lo, hi, lo == hi, call_text(call))
    if call.function in moments.FUNCTIONS:
        column = whole(table.column(call.args[0]))
        return _encode(moments.gather(call, column, lo, hi), column.type)
    if call.function == "median":
        column, lo, hi = squeeze(whole(table.column(call.args[0])), lo, hi)
        return lists_of(column, lo, hi, np.zeros(len(lo), np.bool_), call_text(call))
    values = aggregate(call, table, lo, hi).values
    if call.function in ("first", "last"):
        seen = np.asarray(values.is_valid()) if call.ignore_nulls else hi > lo
        return pa.StructArray.from_arrays([pa.array(seen), values], names=["seen", "value"])
    return values


def merge(call: AggregateCall, a: pa.Array, b: pa.Array) -> pa.Array:
    """Row by row the partial of the rows of `a` followed by those of `b`."""
    a, b = whole(a), whole(b)
    if not is_bounded(call):
        joined = _joined_lists(a, b)
        return _without_repeats(joined) if _is_distinct(call) else joined
    if call.function == "count":
        return pc.add(a, b)
    if call.function in moments.FUNCTIONS:
        return _encode(_plus(_decode(a), _decode(b)), a.type.field("of").type)
    if call.function in ("min", "max"):
        both = pa.table({call.args[0]: _interleaved(a, b)})
        start = np.arange(len(a), dtype=np.int64) * 2
        return aggregate(call, both, start, start + 2).values
    left_seen, right_seen = (np.asarray(side.field("seen")) for side in (a, b))
    right = right_seen if call.function == "last" else ~left_seen
    return pa.concat_arrays([a, b]).take(pa.array(np.arange(len(a)) + np.where(right, len(a), 0)))


def final(call: AggregateCall, partials: pa.Array) -> Aggregated:
    """The values that partials stand for."""
    partials = whole(partials)
    if call.function in moments.FUNCTIONS:
        return moments.finish(call, partials.type.field("of").type, _decode(partials))
    if call.function in ("first", "last"):
        return Aggregated(partials.field("value"))
    if is_bounded(call) or call.function == "collect":
        return Aggregated(partials)
    values, offsets = _flat(partials)
    if call.function == "median":
        rows = pa.table({call.args[0]: values})
    else:
        rows = pa.table(dict(zip([f.name for f in values.type], values.flatten(), strict=True)))
    return aggregate(call, rows, offsets[:-1], offsets[1:])


def _is_distinct(call: AggregateCall) -> bool:
    return call.function == "count" and call.distinct


def _distinct_partial(call: AggregateCall, table: pa.Table, lo: Ints, hi: Ints) -> pa.Array:
    columns = table.select(list(call.args))
    full = complete_rows(columns)
    if full is not None:
        before = counts_before(full)
        columns, lo, hi = columns.filter(pa.array(full)), before[lo], before[hi]
    rows = whole(columns.to_struct_array())
    return _without_repeats(lists_of(rows, lo, hi, np.zeros(len(lo), np.bool_), call_text(call)))


def _without_repeats(lists: pa.Array) -> pa.Array:
    """Lists of structs without what equals an earlier element of the same list."""
    rows, offsets = _flat(lists)
    columns = pa.table(dict(zip([f.name for f in rows.type], rows.flatten(), strict=True)))
    start = np.repeat(offsets[:-1], np.diff(offsets))
    fresh = previous_equal(columns) < start
    before = counts_before(fresh)
    offsets = before[offsets]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows.filter(pa.array(fresh)), type=lists.type)


def _flat(lists: pa.Array) -> tuple[pa.Array, Ints]:
    offsets = np.asarray(lists.offsets).astype(np.int64)
    return lists.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def _joined_lists(a: pa.Array, b: pa.Array) -> pa.Array:
    """Row by row one list behind the other; null where both are."""
    values = pa.concat_arrays([a.values, b.values])
    starts, stops = _interleaved_offsets(a, b)
    sizes = stops - starts
    rows = each_in(starts, stops)
    offsets = np.append(0, np.cumsum(sizes)[1::2])
    missing: Bools = np.asarray(a.is_null()) & np.asarray(b.is_null())
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values.take(pa.array(rows)), type=a.type, mask=mask)


def _interleaved_offsets(a: pa.Array, b: pa.Array) -> tuple[Ints, Ints]:
    left = np.asarray(a.offsets).astype(np.int64)
    right = np.asarray(b.offsets).astype(np.int64) + len(a.values)
    starts = np.stack([left[:-1], right[:-1]], axis=1).reshape(-1)
    stops = np.stack([left[1:], right[1:]], axis=1).reshape(-1)
    return starts, stops


def _interleaved(a: pa.Array, b: pa.Array) -> pa.Array:
    order = np.stack([np.arange(len(a)), np.arange(len(a)) + len(a)], axis=1).reshape(-1)
    return pa.concat_arrays([a, b]).take(pa.array(order))


# --- sums ---


def _encode(sums: Sums, kind: pa.DataType) -> pa.Array:
    """Sums as structs; `of` holds nothing but the type of what was added up."""
    none = np.zeros(len(sums.count), np.int64)
    columns: dict[str, pa.Array] = {"of": pa.nulls(len(none), kind), "count": pa.array(sums.count)}
    for name, counts in (("nan", sums.nan), ("up", sums.up), ("down", sums.down)):
        columns[name] = pa.array(none if counts is None else counts)
    columns |= _encode_exact(sums.total, "")
    if sums.squares is not None:
        columns |= _encode_exact(sums.squares, "square_")
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _decode(partials: pa.Array) -> Sums:
    nan, up, down = (np.asarray(partials.field(name)) for name in ("nan", "up", "down"))
    special = nan.any() or up.any() or down.any()
    squares = "square_digits" in [f.name for f in partials.type]
    return Sums(
        np.asarray(partials.field("count")),
        nan if special else None,
        up if special else None,
        down if special else None,
        _decode_exact(partials, ""),
        _decode_exact(partials, "square_") if squares else None,
    )


def _plus(a: Sums, b: Sums) -> Sums:
    def added(x: Ints | None, y: Ints | None) -> Ints | None:
        return y if x is None else x if y is None else x + y

    squares = a.squares.plus(b.squares) if a.squares is not None and b.squares is not None else None
    specials = added(a.nan, b.nan), added(a.up, b.up), added(a.down, b.down)
    return Sums(a.count + b.count, *specials, a.total.plus(b.total), squares)


def _encode_exact(number: Exact, prefix: str) -> dict[str, pa.Array]:
    """The one form of each number: digits of 32 bits, all of the number's sign, no zeros at either end."""
    grid = number.regrid(WIDTH, number.exponent // WIDTH * WIDTH).normal(extra=2)
    negative = grid.digits[-1] < 0
    digits = Exact(np.where(negative, -grid.digits, grid.digits), WIDTH, grid.exponent).normal().digits.T
    used = digits != 0
    some = used.any(axis=1)
    first = np.where(some, used.argmax(axis=1), 0)
    stop = np.where(some, used.shape[1] - used[:, ::-1].argmax(axis=1), 0)
    column = np.arange(used.shape[1])
    kept = digits[(column >= first[:, None]) & (column < stop[:, None])]
    signed = np.where(np.repeat(negative, stop - first), -kept, kept)
    offsets = np.append(0, np.cumsum(stop - first))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(signed), type=_DIGITS)
    low = np.where(some, first + grid.exponent // WIDTH, 0)
    return {f"{prefix}low": pa.array(low, pa.int32()), f"{prefix}digits": lists}


def _decode_exact(partials: pa.Array, prefix: str) -> Exact:
    low = np.asarray(partials.field(f"{prefix}low")).astype(np.int64)
    values, offsets = _flat(partials.field(f"{prefix}digits"))
    sizes = np.diff(offsets)
    some = sizes > 0
    bottom = int(low[some].min(initial=0))
    height = int((low + sizes)[some].max(initial=1)) - bottom
    digits = np.zeros((max(height, 1), len(low)), np.int64)
    row = np.repeat(np.arange(len(low)), sizes)
    digits[np.arange(len(values)) - np.repeat(offsets[:-1], sizes) + low[row] - bottom, row] = np.asarray(values)
    return Exact(digits, WIDTH, bottom * WIDTH)
