"""Groups: rows numbered by the values of their grouping columns, in the order of the algebra.

Groups ascend column by column, nulls first, NaN last; NaN equals NaN and -0.0 equals 0.0, as in
Spark's GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clew.model.rows import Ints, mix


def normal(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column with one form of every equal value: one NaN, no negative zero."""
    if isinstance(column, pa.ChunkedArray):
        column = (column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column).combine_chunks()
    if not pa.types.is_floating(column.type):
        return column
    values = np.array(column.fill_null(0.0)) + column.type.to_pandas_dtype()(0.0)
    values[np.isnan(values)] = np.nan
    return pa.array(values, type=column.type, mask=np.asarray(column.is_null()))


def codes_of(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Dense ranks of the values: 0 for null, then ascending, NaN last."""
    column = normal(column)
    nan = pa.types.is_floating(column.type)
    encoded = _encode_floats(column) if nan else column.dictionary_encode()
    words = encoded.dictionary
    rank = np.zeros(len(words) + 1, np.int64)
    if nan:
        rank[np.argsort(np.asarray(words), kind="stable")] = np.arange(1, len(words) + 1)
    else:
        rank[:-1] = pc.rank(words, tiebreaker="dense")  # a dictionary that was read may hold a value twice
    index = np.asarray(encoded.indices.fill_null(len(words)))
    ranks: Ints = rank[index]
    return ranks


def _encode_floats(column: pa.Array) -> pa.DictionaryArray:
    values = np.asarray(column.fill_null(0.0))
    words, index = np.unique(values, return_inverse=True)  # one NaN, sorted to the end
    return pa.DictionaryArray.from_arrays(
        pa.array(index, pa.int64(), mask=np.asarray(column.is_null())), pa.array(words)
    )


def group_codes(table: pa.Table, by: Sequence[str]) -> tuple[Ints, Ints]:
    """For each row the rank of its group, and for each group one row that belongs to it.

    >>> group_codes(pa.table({"g": ["b", None, "a", "b"]}), ["g"])
    (array([2, 0, 1, 2]), array([1, 2, 0]))
    """
    codes = np.zeros(len(table), np.int64)
    if not len(table):
        return codes, np.empty(0, np.int64)
    for name in by:
        column = codes_of(table.column(name))
        codes = codes * (int(column.max(initial=0)) + 1) + column
        if by[-1] != name and codes.max(initial=0) > 2**31:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return _dense(codes)


def _dense(codes: Ints) -> tuple[Ints, Ints]:
    """The rank of each code among those that there are, and for each of these a row that has it."""
    top = int(codes.max(initial=0)) + 1
    if top > 4 * len(codes) + 1024:
        _, first, ranks = np.unique(codes, return_index=True, return_inverse=True)
        return ranks.astype(np.int64), first
    first = np.full(top, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    rank = np.cumsum(first >= 0) - 1
    return rank[codes], first[present]


def group_hash(table: pa.Table, by: Sequence[str]) -> Ints:
    """A 64-bit hash of each row's group, the same in every process and epoch."""
    from pandas.util import hash_array  # a network is checked without waiting for pandas

    total = np.zeros(len(table), np.int64)
    for i, name in enumerate(by):
        column = normal(table.column(name)).dictionary_encode()
        distinct = column.dictionary
        if pa.types.is_binary(distinct.type):  # need not be UTF-8
            text = [value.hex() for value in distinct.to_pylist()]
        else:
            text = distinct.cast(pa.string()).to_pylist()
        words = hash_array(np.array(text, dtype=object), categorize=False)
        hashes = np.append(words.astype(np.int64), np.int64(7))  # the last one stands for null
        total = mix(total ^ hashes[np.asarray(column.indices.fill_null(len(text)))], i)
    return total


def _narrow(key: NDArray[Any]) -> NDArray[Any]:
    """The same order in 16 bits, which NumPy sorts by radix, if they are enough."""
    if key.dtype.kind != "i":
        return key
    low = key.min()
    return (key - low).astype(np.uint16) if int(key.max()) - int(low) < 2**16 else key


def sort_by(*keys: Ints | NDArray[np.float64]) -> Ints:
    """The stable order of rows by several keys, the first key first."""
    live = [k for k in keys if (len(k) and k[0] != k[-1]) or (len(k) and (k != k[0]).any())]
    if not live:
        return np.arange(len(keys[0]) if keys else 0)
    if len(live) == 1:
        return np.argsort(_narrow(live[0]), kind="stable")
    return np.lexsort(tuple(reversed(live)))
