"""Order statistics of ranges by a wavelet matrix (Claude, Navarro and Ordonez, 2015), level by level.

All queries go down the levels together, so that only one level is in memory at a time: O(rows) memory,
O(log) array passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from clew.model.rows import Bools, Ints

Small = NDArray[np.int32]


def kth_smallest(codes: Ints, lo: Ints, hi: Ints, k: Ints) -> Ints:
    """The k-th smallest (from 0) of codes[lo[i]:hi[i]], where 0 <= k < hi - lo; codes are not negative.

    >>> kth_smallest(np.array([3, 1, 2]), np.array([0, 1]), np.array([3, 3]), np.array([1, 1])).tolist()
    [2, 2]
    """
    low, high, rank = lo, hi, k.copy()
    found = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        a, b = zeros.take(low), zeros.take(high)
        inside = b - a
        up = rank >= inside
        rank -= np.where(up, inside, 0)
        low, high = _down(low, a, up, zeros), _down(high, b, up, zeros)
        found |= up.astype(np.int64) << bit
    return found


def count_below(codes: Ints, lo: Ints, hi: Ints, bound: Ints) -> Ints:
    """How many of codes[lo[i]:hi[i]] are less than bound[i]; codes are not negative.

    >>> count_below(np.array([3, 1, 2]), np.array([0]), np.array([3]), np.array([3])).tolist()
    [2]
    """
    low, high = lo, hi
    top = int(codes.max(initial=0))
    everything = bound > top
    bound = np.where(everything, 0, bound)
    total = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        a, b = zeros.take(low), zeros.take(high)
        up = bound & (1 << bit) != 0
        total += np.where(up, b - a, 0)
        low, high = _down(low, a, up, zeros), _down(high, b, up, zeros)
    return np.where(everything, hi - lo, total)


def _down(at: Ints, before: Small, up: Bools, zeros: Small) -> Ints:
    """Where a boundary lies on the next level: zeros go first, ones behind all zeros, both in order."""
    ones = at - before
    ones += zeros[-1]
    return np.where(up, ones, before)


def _levels(codes: Ints) -> Iterator[tuple[int, Small]]:
    """From the highest bit down: the bit, and how many zeros of it stand before each row of its level."""
    top = int(codes.max(initial=0))
    current: Small | Ints = codes.astype(np.int32) if top < 2**31 else codes.copy()
    following = np.empty_like(current)
    zeros = np.zeros(len(current) + 1, np.int32)
    for bit in range(top.bit_length() - 1, -1, -1):
        zero = current & (1 << bit) == 0
        np.cumsum(zero.astype(np.int32), out=zeros[1:])
        yield bit, zeros
        if bit:
            # Faster than masks by an order of magnitude where the bits are random.
            split = int(zeros[-1])
            current.take(np.flatnonzero(zero), out=following[:split], mode="clip")
            current.take(np.flatnonzero(~zero), out=following[split:], mode="clip")
            current, following = following, current
