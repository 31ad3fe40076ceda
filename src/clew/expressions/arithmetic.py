"""Arithmetic as Spark SQL with ANSI on does it: IEEE floats, whole numbers that fail on overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clew.expressions.vectors import DTYPES, Vector, both, code_rows, first_code, in_turn


def is_int(kind: pa.DataType) -> bool:
    return kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def is_float(kind: pa.DataType) -> bool:
    return kind in (pa.float32(), pa.float64())


def add(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    return _checked(np.add, a, b, kind)


def subtract(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    return _checked(np.subtract, a, b, kind)


def multiply(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    return _checked(np.multiply, a, b, kind)


def divide(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`/` over doubles; also a double divided by zero fails. The divisor is evaluated first."""
    valid, codes = both(a.valid, b.valid), in_turn(b, a)
    zero = b.data == 0
    own = code_rows(zero, valid, "DIVIDE_BY_ZERO") if zero.any() else None
    return Vector(np.divide(a.data, b.data, dtype=DTYPES[kind]), valid, first_code(codes, own))


def remainder(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`%`: the sign is the dividend's."""
    valid, codes = both(a.valid, b.valid), in_turn(b, a)
    zero = b.data == 0
    own = code_rows(zero, valid, "REMAINDER_BY_ZERO") if zero.any() else None
    # x % -1 is 0 as x % 1 is, without the overflow of the smallest number
    by = _divisor(b.data, zero | (b.data == -1)) if is_int(kind) else b.data
    return Vector(np.fmod(a.data, by), valid, first_code(codes, own))


def whole_divide(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`div` over BIGINT: toward zero."""
    valid, codes = both(a.valid, b.valid), in_turn(b, a)
    zero, reverse = b.data == 0, b.data == -1
    own = code_rows(zero, valid, "DIVIDE_BY_ZERO") if zero.any() else None
    by = _divisor(b.data, zero | reverse)
    quotient = np.floor_divide(a.data, by)
    if np.size(quotient) and (a.data.min() < 0 or by.min() < 0):
        quotient = quotient + (((a.data < 0) != (by < 0)) & (quotient * by != a.data))
    if reverse.any():
        over = reverse & (a.data == np.iinfo(DTYPES[kind]).min)
        quotient = np.where(reverse, -a.data, quotient)
        own = first_code(own, code_rows(over, valid, "ARITHMETIC_OVERFLOW"))
    return Vector(quotient, valid, first_code(codes, own))


def _divisor(values: Any, unfit: Any) -> Any:
    """The divisors, with 1 in place of those that cannot be divided by."""
    return np.where(unfit, values.dtype.type(1), values) if unfit.any() else values


def negate(a: Vector, kind: pa.DataType) -> Vector:
    return Vector(np.negative(a.data), a.valid, _lowest_fails(a, kind))


def absolute(a: Vector, kind: pa.DataType) -> Vector:
    return Vector(np.abs(a.data), a.valid, _lowest_fails(a, kind))


def cast(a: Vector, source: pa.DataType, target: pa.DataType) -> Vector:
    """CAST between BOOLEAN and the numeric types."""
    if source == target:
        return a
    if target == pa.bool_():
        return Vector(a.data != 0, a.valid, a.codes)
    dtype = DTYPES[target]
    if is_int(target) and is_float(source):
        whole = np.trunc(a.data).astype(np.float64)
        info = np.iinfo(dtype)
        # Spark compares with the bounds as doubles: 2^63 passes for BIGINT and becomes its largest number
        bad = ~((whole <= float(info.max)) & (whole >= float(info.min)))
        top = whole >= float(info.max)
        safe = np.where(bad | top, 0.0, whole).astype(dtype)
        codes = first_code(a.codes, code_rows(bad, a.valid, "CAST_OVERFLOW"))
        return Vector(np.where(top, dtype.type(info.max), safe), a.valid, codes)
    codes = a.codes
    if is_int(target) and is_int(source) and dtype.itemsize < DTYPES[source].itemsize:
        info = np.iinfo(dtype)
        if np.size(a.data) and (a.data.min() < info.min or a.data.max() > info.max):
            codes = first_code(codes, code_rows((a.data < info.min) | (a.data > info.max), a.valid, "CAST_OVERFLOW"))
    return Vector(a.data.astype(dtype, copy=False), a.valid, codes)


def _checked(op: Any, a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`+`, `-` or `*` of two operands of one type."""
    valid, codes = both(a.valid, b.valid), in_turn(a, b)
    if is_float(kind) or not np.size(a.data) or not np.size(b.data) or _fits(op, a.data, b.data):
        return Vector(op(a.data, b.data), valid, codes)
    dtype = DTYPES[kind]
    result = op(a.data, b.data)
    if dtype.itemsize < 8:
        wide = op(a.data, b.data, dtype=np.int64)
        bad = wide != result
    else:
        bad = _overflows(op, a.data, b.data, result)
    reason = "ARITHMETIC_OVERFLOW" if dtype.itemsize >= 4 else "BINARY_ARITHMETIC_OVERFLOW"
    return Vector(result, valid, first_code(codes, code_rows(bad, valid, reason)))


def _fits(op: Any, a: Any, b: Any) -> bool:
    """Whether the operands' ranges alone rule an overflow out."""
    a_low, a_high, b_low, b_high = int(a.min()), int(a.max()), int(b.min()), int(b.max())
    if op is np.add:
        ends = [a_low + b_low, a_high + b_high]
    elif op is np.subtract:
        ends = [a_low - b_high, a_high - b_low]
    else:
        ends = [x * y for x in (a_low, a_high) for y in (b_low, b_high)]
    info = np.iinfo(a.dtype)
    return bool(info.min <= min(ends) and max(ends) <= info.max)


def _overflows(op: Any, a: Any, b: Any, result: Any) -> Any:
    """Which results wrapped around, over 64 bits (Warren, Hacker's Delight, 2-13)."""
    if op is np.add:
        return ((a ^ result) & (b ^ result)) < 0
    if op is np.subtract:
        return ((a ^ b) & (a ^ result)) < 0
    lowest = np.iinfo(np.int64).min
    wraps = ((a == -1) & (b == lowest)) | ((b == -1) & (a == lowest))
    by = np.where((a == 0) | (a == -1), np.int64(1), a)
    return wraps | ((a != 0) & (a != -1) & (np.floor_divide(result, by) != b))


def _lowest_fails(a: Vector, kind: pa.DataType) -> Any:
    if not is_int(kind):
        return a.codes
    lowest = a.data == np.iinfo(DTYPES[kind]).min
    return first_code(a.codes, code_rows(lowest, a.valid, "ARITHMETIC_OVERFLOW"))
