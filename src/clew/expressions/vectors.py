"""Vectors: what an expression is evaluated on, a column's values with its nulls and its failures.

A failure is a row on which ANSI Spark would raise. It is a code, not an exception, so that a branch
Spark would not have evaluated can be dropped with its failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.model.rows import Bools

Codes = NDArray[np.uint8]

#: why a row failed, by code: the names of Spark's error conditions
REASONS = (
    "",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CAST_OVERFLOW",
)
CODE = {reason: np.uint8(i) for i, reason in enumerate(REASONS)}

DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.bool_(): np.dtype(np.bool_),
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
    pa.date32(): np.dtype(np.int32),
}


def dtype_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """How NumPy holds the values of a type; None for those that stay in Arrow."""
    if pa.types.is_timestamp(kind):
        return np.dtype(np.int64)
    return DTYPES.get(kind)


@dataclass(frozen=True, eq=False, slots=True)
class Vector:
    """Values, which of them are not null (None: all), and failure codes (None: no failure).

    Each part is an array, or one NumPy scalar for all rows. Values of null and failed rows are
    arbitrary. Strings, and columns of types that are only passed on, are Arrow arrays or scalars.
    """

    data: Any
    valid: Any = None
    codes: Any = None

    def null_mask(self) -> Any:
        """Which rows are null."""
        return np.False_ if self.valid is None else ~self.valid


@dataclass(slots=True)
class Batch:
    """The rows an expression is evaluated on; each column is read once."""

    table: pa.Table
    columns: dict[str, Vector] = field(default_factory=dict)

    def column(self, name: str, kind: pa.DataType) -> Vector:
        if name not in self.columns:
            self.columns[name] = _vector(self.table.column(name), kind)
        return self.columns[name]


def both(a: Any, b: Any) -> Any:
    """Rows valid in both; None stands for all."""
    if a is None:
        return b
    return a if b is None else a & b


def in_turn(first: Vector, second: Vector) -> Any:
    """The codes of two operands of which the second is evaluated only where the first is not null."""
    if second.codes is None:
        return first.codes
    return first_code(first.codes, where_code(second.codes, first.valid))


def first_code(earlier: Any, later: Any) -> Any:
    """The codes of what happens earlier, and of what happens later where nothing failed before."""
    if earlier is None or later is None:
        return later if earlier is None else earlier
    return np.where(earlier != 0, earlier, later)


def where_code(codes: Any, mask: Any) -> Any:
    """The codes where `mask` (None: everywhere)."""
    if codes is None or mask is None:
        return codes
    return np.where(mask, codes, np.uint8(0))


def code_rows(bad: Any, valid: Any, reason: str) -> Any:
    """Codes for the bad rows among the valid ones; None if there are none."""
    bad = both(bad, valid)
    return np.where(bad, CODE[reason], np.uint8(0)) if bad.any() else None


def spread(part: Any, rows: int) -> Any:
    """One value for all rows as an array of them."""
    return np.full(rows, part) if np.ndim(part) == 0 else part


def to_arrow(vector: Vector, kind: pa.DataType, rows: int) -> pa.Array:
    """The vector as an Arrow array; failed rows are null. Values are not copied where they need not be."""
    valid = vector.valid
    if vector.codes is not None:
        valid = both(valid, vector.codes == 0)
    if isinstance(vector.data, (pa.Array, pa.Scalar)):
        array = vector.data if isinstance(vector.data, pa.Array) else pa.repeat(vector.data, rows)
        if vector.codes is None:
            return array
        return pa.compute.if_else(pa.array(spread(valid, rows)), array, pa.scalar(None, kind))
    data = np.ascontiguousarray(spread(vector.data, rows))
    packed = pa.py_buffer(np.packbits(data, bitorder="little") if kind == pa.bool_() else data)
    if valid is None:
        return pa.Array.from_buffers(kind, rows, [None, packed], 0)
    mask = spread(valid, rows)
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [bits, packed], int(rows - np.count_nonzero(mask)))


def _vector(column: pa.ChunkedArray, kind: pa.DataType) -> Vector:
    if column.type != kind:
        column = column.cast(kind)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], kind)
    valid = _bits(array.buffers()[0], array) if array.null_count else None
    dtype = dtype_of(kind)
    if dtype is None:
        return Vector(array, valid)
    values = array.buffers()[1]
    if values is None:
        return Vector(np.zeros(len(array), dtype), valid)
    if kind == pa.bool_():
        return Vector(_bits(values, array), valid)
    return Vector(np.frombuffer(values, dtype, len(array), array.offset * dtype.itemsize), valid)


def _bits(buffer: pa.Buffer, array: pa.Array) -> Bools:
    bits = np.frombuffer(buffer, np.uint8)[array.offset // 8 :]
    first = array.offset % 8
    return np.unpackbits(bits, count=first + len(array), bitorder="little")[first:].view(np.bool_)
