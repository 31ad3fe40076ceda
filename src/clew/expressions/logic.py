"""Comparisons, three-valued logic and choice as Spark SQL does them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.expressions.arithmetic import is_float
from clew.expressions.vectors import Vector, both, first_code, in_turn, where_code

_STRINGS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLIPPED = {">": "<", ">=": "<="}


def compare(op: str, a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`=`, `<>`, `<`, `<=`, `>` or `>=` of two operands of one type."""
    return Vector(_compared(op, a.data, b.data, kind), both(a.valid, b.valid), in_turn(a, b))


def null_safe_equal(a: Vector, b: Vector, kind: pa.DataType) -> Vector:
    """`<=>`: both operands are always evaluated, the result is never null."""
    equal = _compared("=", a.data, b.data, kind)
    known, one_null = both(a.valid, b.valid), a.null_mask() ^ b.null_mask()
    if known is not None:
        equal = np.where(known, equal, ~one_null)
    return Vector(equal, None, first_code(a.codes, b.codes))


def is_in(a: Vector, items: Sequence[Any], has_null: bool, kind: pa.DataType) -> Vector:
    """IN over constants (Python values that are not null)."""
    if pa.types.is_string(kind):
        hit = _bools(pc.is_in(a.data, value_set=pa.array(items, kind)))
    elif len(items) > 8 and not is_float(kind):
        hit = np.isin(a.data, np.array(items, a.data.dtype))
    else:
        hit = np.zeros(np.shape(a.data), np.bool_)
        for item in items:
            hit = hit | _compared("=", a.data, a.data.dtype.type(item), kind)
    return Vector(hit, both(a.valid, hit) if has_null else a.valid, a.codes)


def conjunction(a: Vector, b: Vector) -> Vector:
    """AND: the right side is evaluated unless the left one is false."""
    not_false = a.data if a.valid is None else a.data | ~a.valid
    codes = first_code(a.codes, where_code(b.codes, not_false))
    if a.valid is None and b.valid is None:
        return Vector(a.data & b.data, None, codes)
    is_false = both(~a.data, a.valid) | both(~b.data, b.valid)
    is_true = both(a.data, a.valid) & both(b.data, b.valid)
    return Vector(is_true, is_false | is_true, codes)


def disjunction(a: Vector, b: Vector) -> Vector:
    """OR: the right side is evaluated unless the left one is true."""
    codes = first_code(a.codes, where_code(b.codes, ~both(a.data, a.valid)))
    if a.valid is None and b.valid is None:
        return Vector(a.data | b.data, None, codes)
    is_true = both(a.data, a.valid) | both(b.data, b.valid)
    is_false = both(~a.data, a.valid) & both(~b.data, b.valid)
    return Vector(is_true, is_false | is_true, codes)


def choose(branches: Sequence[tuple[Vector, Vector]], default: Vector) -> Vector:
    """CASE over branches of (condition, value) of one type: only what is reached can fail."""
    data, valid, codes = default.data, default.valid, default.codes
    for condition, value in reversed(branches):
        taken = both(condition.data, condition.valid)
        data = _pick(taken, value.data, data)
        if value.valid is not None or valid is not None:
            valid = np.where(taken, _all(value.valid), _all(valid))
        if value.codes is not None or codes is not None:
            codes = np.where(taken, _none(value.codes), _none(codes))
        codes = first_code(condition.codes, codes)
    return Vector(data, valid, codes)


def coalesce(values: Sequence[Vector]) -> Vector:
    """The first that is not null; what stands behind it is not evaluated."""
    result = values[-1]
    for value in reversed(values[:-1]):
        present = np.True_ if value.valid is None else value.valid
        result = choose([(Vector(present), value)], result)
        result = Vector(result.data, result.valid, first_code(value.codes, result.codes))
    return result


def extreme(op: str, values: Sequence[Vector], kind: pa.DataType) -> Vector:
    """GREATEST (op `>`) or LEAST (op `<`) of those that are not null; of equal ones the first."""
    best = values[0]
    for value in values[1:]:
        better = both(_compared(op, value.data, best.data, kind), value.valid)
        better = better | (both(np.True_, value.valid) & best.null_mask())
        valid = None if best.valid is None or value.valid is None else best.valid | value.valid
        best = Vector(np.where(better, value.data, best.data), valid, first_code(best.codes, value.codes))
    return best


def like(a: Vector, pattern: str) -> Vector | None:
    """LIKE with `%` at the ends only; None for other patterns."""
    core = pattern.strip("%")
    if any(char in core for char in "%_\\"):
        return None
    starts, ends = pattern.startswith("%"), pattern.endswith("%")
    if not core and pattern:
        return Vector(np.True_, a.valid, a.codes)
    if starts and ends:
        hit = pc.match_substring(a.data, core)
    elif starts:
        hit = pc.ends_with(a.data, core)
    elif ends:
        hit = pc.starts_with(a.data, core)
    else:
        hit = pc.equal(a.data, core)
    return Vector(_bools(hit), a.valid, a.codes)


def _compared(op: str, a: Any, b: Any, kind: pa.DataType) -> Any:
    """NaN equals NaN and is greater than everything else; -0.0 equals 0.0; strings by their bytes."""
    if pa.types.is_string(kind):
        return _bools(_STRINGS[op](a, b))
    if op in _FLIPPED:
        return _compared(_FLIPPED[op], b, a, kind)
    if op == "<>":
        return ~_compared("=", a, b, kind)
    a, b = _plain_int(a), _plain_int(b)
    if not is_float(kind):
        return {"=": np.equal, "<": np.less, "<=": np.less_equal}[op](a, b)
    # An operand that is one value for all rows, and not NaN, leaves one side that can be NaN.
    a_nan, b_nan = not _one_number(a), not _one_number(b)
    if op == "=":
        equal = a == b
        return equal | ((a != a) & (b != b)) if a_nan and b_nan else equal
    if op == "<":
        less = ~(a >= b) if b_nan else a < b
        return less & (a == a) if a_nan and b_nan else less
    less_or_equal = a <= b
    return less_or_equal | (b != b) if b_nan else less_or_equal


def _plain_int(value: Any) -> Any:
    """A scalar integer without its width, so that NumPy compares a narrow column as it is."""
    return int(value) if isinstance(value, np.integer) else value


def _one_number(value: Any) -> bool:
    return np.ndim(value) == 0 and not np.isnan(value)


def _bools(array: Any) -> Any:
    if isinstance(array, pa.Scalar):
        return np.bool_(array.as_py() or False)
    return (array.fill_null(False) if array.null_count else array).to_numpy(zero_copy_only=False)


def _pick(mask: Any, yes: Any, no: Any) -> Any:
    if not isinstance(yes, (pa.Array, pa.Scalar)):
        return np.where(mask, yes, no)
    if np.ndim(mask) == 0:
        return yes if mask else no
    return pc.if_else(pa.array(mask), yes, no)


def _all(valid: Any) -> Any:
    return np.True_ if valid is None else valid


def _none(codes: Any) -> Any:
    return np.uint8(0) if codes is None else codes
