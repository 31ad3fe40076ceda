"""The aggregates again, in plain Python over the rows of one range: what the others are tested against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa

from clew.expressions.aggregates import AggregateCall


def reference(call: AggregateCall, rows: Sequence[dict[str, Any]]) -> Any:
    """The value of `call` over `rows`, without the bounds of BIGINT and DECIMAL.

    >>> reference(AggregateCall("s", "sum", ("x",)), [{"x": 0.1}, {"x": None}, {"x": 0.2}])
    0.30000000000000004
    """
    if call.function == "user":
        assert call.user is not None
        return call.user.function(pa.Table.from_pylist(list(rows))) if rows else None
    if call.function == "count":
        full = [tuple(_one_form(row[a]) for a in call.args) for row in rows]
        full = [values for values in full if None not in values]
        return len(set(full)) if call.distinct else len(full)
    cells = [row[call.args[0]] for row in rows]
    values = [v for v in cells if v is not None]
    if call.function in ("first", "last"):
        cells = values if call.ignore_nulls else cells
        return (cells[0] if call.function == "first" else cells[-1]) if cells else None
    if call.function == "collect":
        return values if rows else None
    if len(values) < (2 if call.function.endswith("_samp") else 1):
        return None
    if call.function in ("min", "max"):
        # NaN and -0.0 have no place of their own in Python's order.
        ordered = sorted(map(_plain, values), key=lambda v: (v != v, v) if v == v else (True, 0))
        return ordered[0 if call.function == "min" else -1]
    return _NUMBERS.get(call.function, _spread)(call.function, values)


def _sum(_: str, values: list[Any]) -> Any:
    if isinstance(values[0], int):
        return sum(values)
    if isinstance(values[0], Decimal):
        with localcontext(prec=200):
            return sum(values, Decimal(0))
    if not all(map(math.isfinite, values)):
        return sum(v for v in values if not math.isfinite(v))
    try:
        return math.fsum(values)
    except OverflowError:  # fsum also gives up where only a part of the sum is beyond the doubles
        return _double(sum(map(Fraction, values)), 0)


def _avg(_: str, values: list[Any]) -> Any:
    total = _sum("sum", values)
    if not isinstance(total, Decimal):
        return float(total) / len(values)
    scale = -int(values[0].as_tuple().exponent)
    with localcontext(prec=200):
        at_39 = (total / len(values)).quantize(Decimal(1).scaleb(-39), ROUND_HALF_UP)
        return at_39.quantize(Decimal(1).scaleb(-min(38, scale + 4)), ROUND_HALF_UP)


def _median(_: str, values: list[Any]) -> float:
    ordered = sorted(map(_plain, values), key=lambda v: (v != v, v) if v == v else (True, 0))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low) if low == high else float(low) + (float(high) - float(low)) * 0.5


def _spread(function: str, values: list[Any]) -> float:
    doubles, n = list(map(float, values)), len(values)
    if not all(map(math.isfinite, doubles)):
        return math.nan
    exact = [Fraction(v) for v in doubles]
    moment = n * sum(v * v for v in exact) - sum(exact) ** 2
    divisor = float(n * (n - 1) if function.endswith("_samp") else n * n)
    shift = moment.numerator.bit_length() - moment.denominator.bit_length()
    variance = _double(float(moment / Fraction(2) ** shift) / divisor, shift)
    return math.sqrt(variance) if function.startswith("stddev") else variance


def _double(number: Fraction | float, shift: int) -> float:
    try:
        return math.ldexp(float(number), shift)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _one_form(value: Any) -> Any:
    return "NaN" if value != value else _plain(value)


_NUMBERS = {"sum": _sum, "avg": _avg, "median": _median}
