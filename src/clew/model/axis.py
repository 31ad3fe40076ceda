"""Order columns as numbers: one axis per type, so that windows and joins can do arithmetic on it.

Whole numbers, dates (days), timestamps (microseconds) and decimals (scaled) become int64; FLOAT and
DOUBLE become float64. Nulls and NaN stand nowhere on an axis.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.errors import WindowError
from clew.model.rows import Bools
from clew.model.types import type_name
from clew.model.values import python_value

Axis = NDArray[np.int64] | NDArray[np.float64]
Number = int | float
Span = int | float | str | dt.timedelta | Decimal

INFINITE = int(np.iinfo(np.int64).max)  # on an int64 axis: behind every value

_MICROS = {
    "microsecond": 1, "us": 1, "millisecond": 1_000, "ms": 1_000, "second": 1_000_000, "sec": 1_000_000,
    "s": 1_000_000, "minute": 60_000_000, "min": 60_000_000, "m": 60_000_000, "hour": 3_600_000_000,
    "h": 3_600_000_000, "day": 86_400_000_000, "d": 86_400_000_000, "week": 604_800_000_000,
    "w": 604_800_000_000,
}  # fmt: skip
_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_DURATION = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)", re.IGNORECASE)


def is_orderable(data_type: pa.DataType) -> bool:
    """Whether a column of this type can be an order: numbers, dates, timestamps, decimals to 18 digits."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_date32(data_type)
        or (pa.types.is_decimal(data_type) and data_type.precision <= 18)
    )


def axis_of(column: pa.ChunkedArray | pa.Array) -> tuple[Axis, Bools]:
    """The column's values on their axis, and which of them stand on it (not null, not NaN)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    valid: Bools = np.asarray(column.is_valid()) if column.null_count else np.ones(len(column), np.bool_)
    if pa.types.is_floating(kind):
        floats = np.asarray(column.cast(pa.float64()).fill_null(math.nan))
        return floats, valid & ~np.isnan(floats)
    if pa.types.is_decimal(kind):
        # A decimal of at most 18 digits is its scaled value: the low half of 16 bytes, little-endian.
        wide = column.cast(pa.decimal128(38, kind.scale))
        halves = np.frombuffer(wide.buffers()[1], "<i8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
        return np.where(valid, halves[::2], 0), valid
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    return np.asarray(column.cast(pa.int64()).fill_null(0)), valid


def is_float_axis(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_floating(data_type))


def axis_end(data_type: pa.DataType) -> Number:
    """What stands behind every value: where progress is after `finish()`."""
    return math.inf if is_float_axis(data_type) else INFINITE


def span_sign(span: Span, what: str) -> int:
    """-1, 0 or 1: on which side of zero a span lies, on every axis. A `WindowError` calls it `what` if it is none.

    >>> span_sign("0 seconds", "slide"), span_sign(2.5, "slide")
    (0, 1)
    """
    size = _size(span, what)
    return (size > 0) - (size < 0)


def exceeds(low: Span, high: Span) -> bool:
    """Whether a span lies behind another on every axis; a number and a duration cannot be compared without one.

    >>> exceeds(2, 1), exceeds("1 minute", "90 seconds"), exceeds(2, "1 second")
    (True, False, False)
    """
    same = isinstance(low, str | dt.timedelta) == isinstance(high, str | dt.timedelta)
    return same and _size(low, "low") > _size(high, "high")


def _size(span: Span, what: str) -> Fraction | int | float | Decimal:
    """A number as it is, a duration in microseconds."""
    if isinstance(span, str):
        return _parse_duration(span, what)
    if isinstance(span, dt.timedelta):
        return Fraction(span // dt.timedelta(microseconds=1))
    if _is_finite(span):
        return span
    raise WindowError(f"{what}={span!r} is no span", hint="a finite number, or a duration like '5 minutes'")


def opposite(span: Span) -> Span:
    """The span as far to the other side.

    >>> opposite(3), opposite("1 minute 30 seconds")
    (-3, '-1 minute -30 seconds')
    """
    if not isinstance(span, str):
        return -span
    return re.sub(_NUMBER, lambda n: n[0][1:] if n[0].startswith("-") else f"-{n[0].lstrip('+')}", span.strip())


def span_of(span: Span, data_type: pa.DataType, what: str) -> Number:
    """A span in units of an order type's axis; `what` names it in errors.

    >>> span_of("5 minutes", pa.timestamp("us", tz="UTC"), "span")
    300000000
    """
    span_sign(span, what)
    size = _on_axis(span, data_type, what)
    if not abs(size) < (math.inf if is_float_axis(data_type) else INFINITE):
        raise WindowError(f"{what}={span!r} is too long for a {type_name(data_type).upper()} column")
    return size


def _on_axis(span: Span, data_type: pa.DataType, what: str) -> Number:
    kind = type_name(data_type)
    if pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type):
        if isinstance(span, dt.timedelta):
            micros = Fraction(span // dt.timedelta(microseconds=1))
        elif isinstance(span, str):
            micros = _parse_duration(span, what)
        elif span == 0:
            return 0
        elif pa.types.is_date32(data_type) and isinstance(span, int):
            return span
        else:
            raise WindowError(
                f"{what}={span!r} over a {kind.upper()} column has no unit",
                hint=f"write it with a unit: {what}='{span} seconds'",
            )
        unit = 1 if pa.types.is_timestamp(data_type) else _MICROS["day"]
        if (micros / unit).denominator != 1:
            raise WindowError(f"{what}={span!r} is not a whole number of {'days' if unit > 1 else 'microseconds'}")
        return int(micros / unit)
    if isinstance(span, (str, dt.timedelta)):
        raise WindowError(f"{what}={span!r} is a duration, but the column is {kind.upper()}", hint="give a number")
    if is_float_axis(data_type):
        return float(span)
    exact = Fraction(span) * (10**data_type.scale if pa.types.is_decimal(data_type) else 1)
    if exact.denominator != 1:
        raise WindowError(f"{what}={span!r} is no whole step of a {kind.upper()} column")
    return int(exact)


def value_on_axis(value: object, data_type: pa.DataType) -> Number:
    """One Python value on the axis of its type."""
    values, valid = axis_of(pa.array([value], type=data_type))
    if not valid[0]:
        raise WindowError(f"{value!r} has no place in an order of type {type_name(data_type).upper()}")
    number: Number = values[0].item()
    return number


def from_axis(number: Number, data_type: pa.DataType) -> Any:
    """The Python value of a point of the axis, the inverse of `value_on_axis`; as text if Python has none."""
    return python_value(column_at(np.array([number]), data_type)[0])


def column_at(points: Axis, data_type: pa.DataType) -> pa.Array:
    """The values that stand at these points of the axis of a type.

    >>> column_at(np.array([150]), pa.decimal128(5, 2))[0].as_py()
    Decimal('1.50')
    """
    if pa.types.is_decimal(data_type):
        return pa.array([Decimal(p).scaleb(-data_type.scale) for p in points.tolist()], data_type)
    if pa.types.is_timestamp(data_type):
        return pa.array(points, pa.int64()).cast(pa.timestamp("us", tz=data_type.tz)).cast(data_type)
    if pa.types.is_date32(data_type):
        return pa.array(points, pa.int32()).cast(data_type)
    return pa.array(points).cast(data_type)


def _is_finite(value: object) -> bool:
    """Whether this is a number an axis could have; numpy's durations call themselves numbers, and are none."""
    if not isinstance(value, numbers.Real | Decimal) or isinstance(value, bool | np.timedelta64):
        return False
    try:
        return math.isfinite(value)
    except (OverflowError, ValueError):  # too large for any float; a signalling NaN
        return False


def _parse_duration(text: str, what: str) -> Fraction:
    total, rest = Fraction(0), text.strip().lower().removeprefix("interval").strip()
    while True:
        match = _DURATION.match(rest)
        unit = match[2].lower() if match else ""
        factor = _MICROS.get(unit) or _MICROS.get(unit.removesuffix("s"))
        if match is None or factor is None:
            number = re.fullmatch(_NUMBER, text.strip()) is not None
            raise WindowError(
                f"cannot read {what}='{text}' as a duration",
                hint="a duration has a unit, like '5 minutes'; a number stands without quotes"
                if number
                else "write it like '5 minutes' or '1 hour'",
            )
        total += Fraction(match[1]) * factor
        rest = rest[match.end() :].strip(" ,")
        if not rest:
            return total
