"""Order statistics of ranges by a wavelet matrix (Claude, Navarro and Ordonez, 2015), level by level.

All queries go down the levels together, so that only one level is in memory at a time: O(rows) memory,
O(log) array passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from clew.model.rows import Ints

Small = NDArray[np.int32]


def kth_smallest(codes: Ints, lo: Ints, hi: Ints, k: Ints) -> Ints:
    """The k-th smallest (from 0) of codes[lo[i]:hi[i]], where 0 <= k < hi - lo; codes are not negative.

    >>> kth_smallest(np.array([3, 1, 2]), np.array([0, 1]), np.array([3, 3]), np.array([1, 1])).tolist()
    [2, 2]
    """
    low, high, rank = lo.astype(np.int32), hi.astype(np.int32), k.astype(np.int32)
    found = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        a, b = zeros.take(low), zeros.take(high)
        inside = b - a
        up = rank >= inside
        rank -= np.where(up, inside, 0)
        low = np.where(up, low - a + zeros[-1], a)
        high = np.where(up, high - b + zeros[-1], b)
        found |= up.astype(np.int64) << bit
    return found


def count_below(codes: Ints, lo: Ints, hi: Ints, bound: Ints) -> Ints:
    """How many of codes[lo[i]:hi[i]] are less than bound[i]; codes are not negative.

    >>> count_below(np.array([3, 1, 2]), np.array([0]), np.array([3]), np.array([3])).tolist()
    [2]
    """
    low, high = lo.astype(np.int32), hi.astype(np.int32)
    top = int(codes.max(initial=0))
    everything = bound > top
    bound = np.where(everything, 0, bound)
    total = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        a, b = zeros.take(low), zeros.take(high)
        up = (bound >> bit) & 1 == 1
        total += np.where(up, b - a, 0)
        low = np.where(up, low - a + zeros[-1], a)
        high = np.where(up, high - b + zeros[-1], b)
    return np.where(everything, hi - lo, total)


def _levels(codes: Ints) -> Iterator[tuple[int, Small]]:
    """From the highest bit down: the bit, and how many zeros of it stand before each row of its level."""
    top = int(codes.max(initial=0))
    current: Small | Ints = codes.astype(np.int32) if top < 2**31 else codes
    for bit in range(top.bit_length() - 1, -1, -1):
        zero = (current >> bit) & 1 == 0
        zeros = np.zeros(len(current) + 1, np.int32)
        np.cumsum(zero, out=zeros[1:], dtype=np.int32)
        yield bit, zeros
        current = np.concatenate([current[zero], current[~zero]])
