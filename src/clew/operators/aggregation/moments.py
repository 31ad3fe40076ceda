"""sum, avg, stddev and variance: exact sums of a range, and the value they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.expressions.aggregates import AggregateCall, call_text
from clew.model.rows import Bools, Ints
from clew.model.types import type_name
from clew.operators.aggregation.columns import as_doubles, counts_before, decimals, squeeze, words_of
from clew.operators.aggregation.exact import Exact, Floats, sum_doubles, sum_integers, sum_words
from clew.operators.aggregation.results import SPREADS, Aggregated, sum_decimal, type_over
from clew.operators.aggregation.spread import sum_squares, variance

FUNCTIONS = ("sum", "avg", *SPREADS)


@dataclass(frozen=True, eq=False)
class Sums:
    """What sum, avg and variance need of each range: of bounded size, and exact."""

    count: Ints  # values that are not null, of any kind
    nan: Ints | None  # None: none anywhere
    up: Ints | None  # +inf
    down: Ints | None  # -inf
    total: Exact  # of the finite ones
    squares: Exact | None  # for variance only


def gather(call: AggregateCall, column: pa.Array, lo: Ints, hi: Ints) -> Sums:
    """The sums of a column over rows lo[i]:hi[i]."""
    column, lo, hi = squeeze(column, lo, hi)
    kind = column.type
    if call.function not in SPREADS:
        if pa.types.is_integer(kind):
            return Sums(hi - lo, None, None, None, sum_integers(np.asarray(column.cast(pa.int64())), lo, hi), None)
        if pa.types.is_decimal(kind):
            return Sums(hi - lo, None, None, None, sum_words(*words_of(column), lo, hi), None)
    values = as_doubles(column)
    finite = np.isfinite(values)
    nan: Ints | None = None
    up, down = nan, nan
    if not finite.all():
        nan, up, down = (
            before[hi] - before[lo]
            for before in map(counts_before, (np.isnan(values), values == np.inf, values == -np.inf))
        )
        values = np.where(finite, values, 0.0)
    if call.function in SPREADS:
        return Sums(hi - lo, nan, up, down, *sum_squares(values, lo, hi))
    return Sums(hi - lo, nan, up, down, sum_doubles(values, lo, hi), None)


def finish(call: AggregateCall, kind: pa.DataType, sums: Sums) -> Aggregated:
    """The value of each row's sums; `kind` is the argument's type."""
    missing = sums.count == 0
    if call.function in SPREADS:
        return _finish_spread(call.function, sums)
    if pa.types.is_decimal(kind):
        return _finish_decimal(call, kind, sums, missing)
    if call.function == "sum" and pa.types.is_integer(kind):
        high, low, fits = sums.total.to_words()
        values = low.view(np.int64)
        failed = ~fits | (high != values >> 63)
        return _result(pa.array(values, mask=missing | failed), failed, f"{call_text(call)} is beyond BIGINT")
    doubles = _with_specials(sums.total.to_double(), sums)
    if call.function == "avg":
        np.divide(doubles, sums.count, out=doubles, where=~missing)
    return Aggregated(pa.array(doubles, mask=missing))


def _with_specials(values: Floats, sums: Sums) -> Floats:
    """NaN if there is one or infinities of both signs; else the infinity, if there is one."""
    if sums.nan is None or sums.up is None or sums.down is None:
        return values
    values = np.where(sums.up > 0, np.inf, np.where(sums.down > 0, -np.inf, values))
    return np.where((sums.nan > 0) | ((sums.up > 0) & (sums.down > 0)), np.nan, values)


def _finish_spread(function: str, sums: Sums) -> Aggregated:
    assert sums.squares is not None, "variance needs squares"
    sample = function.endswith("_samp")
    missing = sums.count < (2 if sample else 1)
    divisor = (sums.count * (sums.count - sample)).astype(np.float64)
    values = variance(sums.total, sums.squares, sums.count, np.where(missing, 1.0, divisor))
    if sums.nan is not None and sums.up is not None and sums.down is not None:
        values = np.where(sums.nan + sums.up + sums.down > 0, np.nan, values)
    if function.startswith("stddev"):
        values = np.sqrt(values)
    return Aggregated(pa.array(values, mask=missing))


def _finish_decimal(call: AggregateCall, kind: pa.DataType, sums: Sums, missing: Bools) -> Aggregated:
    middle, target = sum_decimal(kind), type_over(call, kind)
    high, low, fits = sums.total.to_words()
    fits &= _within(high, low, middle.precision)
    if call.function == "avg":
        high, low, divided = _divide(high, low, fits & ~missing, sums.count, kind.scale, target.scale)
        fits &= divided & _within(high, low, target.precision)
        middle = target
    values = decimals(high, low, middle, missing | ~fits)
    return _result(values, ~fits, f"{call_text(call)} is beyond {type_name(middle).upper()}")


def _divide(
    high: Ints, low: NDArray[np.uint64], wanted: Bools, count: Ints, scale: int, target: int
) -> tuple[Ints, NDArray[np.uint64], Bools]:
    """Unscaled sums over counts at the target scale, half away from zero; and which of them fit."""
    factor = 10 ** (target - scale)
    small = low.view(np.int64)
    fits = np.ones(len(count), np.bool_)
    if target <= 20 and np.array_equal(high, small >> 63) and np.abs(small).max(initial=0) < 2**62 // factor // 2:
        divisor = np.maximum(count, 1)
        size = (np.abs(small) * factor * 2 + divisor) // (2 * divisor)
        quotient = np.where(small < 0, -size, size)
        return quotient >> 63, quotient.view(np.uint64), fits
    high, low = np.zeros_like(high) + high, low.copy()
    for i in np.flatnonzero(wanted).tolist():
        unscaled = half_up_quotient((int(high[i]) << 64) | int(low[i]), int(count[i]), scale, target)
        fits[i] = abs(unscaled) < 2**127
        high[i], low[i] = (unscaled >> 64, unscaled & (2**64 - 1)) if fits[i] else (0, 0)
    return high, low, fits


def half_up_quotient(unscaled: int, count: int, scale: int, target: int) -> int:
    """unscaled / 10**scale / count, at `target` digits after the point: rounded to 39 first, as Spark divides.

    >>> half_up_quotient(100, 3, 2, 6), half_up_quotient(-5, 2, 0, 0)
    (333333, -3)
    """
    at_39 = _half_up(abs(unscaled) * 10 ** (39 - scale), count)
    size = _half_up(at_39, 10 ** (39 - target))
    return -size if unscaled < 0 else size


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _within(high: Ints, low: NDArray[np.uint64], precision: int) -> Bools:
    """Which 128-bit numbers have at most `precision` decimal digits."""
    top, bottom = divmod(10**precision, 2**64)
    inside: Bools = (high < top) | ((high == top) & (low < np.uint64(bottom)))
    top, bottom = divmod(-(10**precision), 2**64)
    inside &= (high > top) | ((high == top) & (low > np.uint64(bottom)))
    return inside


def _result(values: pa.Array, failed: Bools, reason: str) -> Aggregated:
    return Aggregated(values, failed, reason) if failed.any() else Aggregated(values)
