"""Columns as NumPy sees them: without nulls, as order-preserving int64 keys, as 128-bit words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.model.groups import codes_of
from clew.model.rows import Bools, Ints
from clew.operators.aggregation.exact import Floats

_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def squeeze(column: pa.Array, lo: Ints, hi: Ints) -> tuple[pa.Array, Ints, Ints]:
    """The column without its nulls, and where each range then lies."""
    if not column.null_count:
        return column, lo, hi
    before = counts_before(np.asarray(column.is_valid()))
    return column.drop_null(), before[lo], before[hi]


def counts_before(flags: Bools) -> Ints:
    """How many flags are set before each row, and before the end."""
    before = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=before[1:])
    return before


@dataclass(frozen=True, eq=False)
class Keys:
    """A column without nulls as int64 in the same order: NaN last, -0.0 as 0.0."""

    keys: Ints
    column: pa.Array
    ranked: bool  # keys are ranks, to be looked up in `column`

    @staticmethod
    def of(column: pa.Array) -> Keys:
        kind = column.type
        if pa.types.is_floating(kind):
            return Keys(float_keys(as_doubles(column)), column, False)
        if pa.types.is_boolean(kind):
            return Keys(np.asarray(column.cast(pa.int8())).astype(np.int64), column, False)
        if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
            return Keys(np.asarray(column.cast(pa.int64())), column, False)
        if pa.types.is_date32(kind):
            return Keys(np.asarray(column.cast(pa.int32())).astype(np.int64), column, False)
        if pa.types.is_decimal128(kind) and kind.precision <= 18:
            return Keys(words_of(column)[1].view(np.int64), column, False)
        return Keys(codes_of(column), column, True)

    def values(self, keys: Ints, missing: Bools) -> pa.Array:
        """Keys as values of the column's type; null where `missing`."""
        kind = self.column.type
        if self.ranked:
            row_of = np.zeros(int(self.keys.max(initial=0)) + 1, np.int64)
            row_of[self.keys] = np.arange(len(self.keys))
            return self.column.take(pa.array(row_of[np.where(missing, 0, keys)], mask=missing))
        if pa.types.is_floating(kind):
            with np.errstate(invalid="ignore", over="ignore"):
                return pa.array(floats_of(keys).astype(kind.to_pandas_dtype()), kind, mask=missing)
        if pa.types.is_boolean(kind):
            return pa.array(keys.astype(np.bool_), kind, mask=missing)
        if pa.types.is_decimal(kind):
            return decimals(keys >> 63, keys.view(np.uint64), kind, missing)
        if pa.types.is_date32(kind):
            return pa.array(keys.astype(np.int32), mask=missing).cast(kind)
        return pa.array(np.where(missing, 0, keys), mask=missing).cast(kind)


def float_keys(values: Floats) -> Ints:
    """Doubles as int64 in the same order, NaN last, one zero.

    >>> float_keys(np.array([-1.0, -0.0, 0.0, 1.5])).argsort(kind="stable").tolist()
    [0, 1, 2, 3]
    """
    plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def floats_of(keys: Ints) -> Floats:
    """The inverse of `float_keys`."""
    return (keys ^ ((keys >> 63) & _MAGNITUDE)).view(np.float64)


def as_doubles(column: pa.Array) -> Floats:
    """A numeric column without nulls as doubles, each value rounded to the nearest (read-only)."""
    kind = column.type
    if not pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64(), safe=False))
    high, low = words_of(column)
    unscaled = low.view(np.int64)
    # Both operands of the division are exact then, so that it rounds once.
    if kind.scale <= 22 and np.array_equal(high, unscaled >> 63) and np.abs(unscaled).max(initial=0) <= 2**53:
        divided: Floats = unscaled / np.float64(10.0**kind.scale)
        return divided
    return np.array([float(value) for value in column.to_pylist()], np.float64)


def words_of(column: pa.Array) -> tuple[Ints, NDArray[np.uint64]]:
    """The unscaled values of decimals without nulls: high and low words."""
    buffer = column.buffers()[1]
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    words = np.frombuffer(buffer, np.int64, count=2 * len(column), offset=16 * column.offset)
    return np.ascontiguousarray(words[1::2]), np.ascontiguousarray(words[::2]).view(np.uint64)


def decimals(high: Ints, low: NDArray[np.uint64], kind: pa.DataType, missing: Bools) -> pa.Array:
    """128-bit unscaled values as decimals; the inverse of `words_of`."""
    words = np.empty((len(high), 2), np.uint64)
    words[:, 0], words[:, 1] = low, high.view(np.uint64)
    present = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(kind, len(high), [pa.py_buffer(present), pa.py_buffer(words)])
