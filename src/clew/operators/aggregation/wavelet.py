"""Order statistics of ranges by a wavelet matrix (Claude, Navarro and Ordonez, 2015), level by level.

All queries go down the levels together, so that only one level is in memory at a time: O(rows) memory,
O(log) array passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from clew.model.rows import Bools, Ints
from clew.operators.aggregation.exact import blocks

Small = NDArray[np.int32]


def kth_smallest(codes: Ints, lo: Ints, hi: Ints, k: Ints) -> Ints:
    """The k-th smallest (from 0) of codes[lo[i]:hi[i]], where 0 <= k < hi - lo; codes are not negative.

    >>> kth_smallest(np.array([3, 1, 2]), np.array([0, 1]), np.array([3, 3]), np.array([1, 1])).tolist()
    [2, 2]
    """
    low, high, rank = lo.astype(np.int64), hi.astype(np.int64), k.astype(np.int64)
    found = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        for cut in blocks(len(lo)):
            a, b = zeros.take(low[cut]), zeros.take(high[cut])
            inside = b - a
            up = rank[cut] >= inside
            inside *= up
            rank[cut] -= inside
            _down(low[cut], a, up, zeros)
            _down(high[cut], b, up, zeros)
            found[cut] |= up.astype(np.int64) << bit
    return found


def count_below(codes: Ints, lo: Ints, hi: Ints, bound: Ints) -> Ints:
    """How many of codes[lo[i]:hi[i]] are less than bound[i]; codes are not negative.

    >>> count_below(np.array([3, 1, 2]), np.array([0]), np.array([3]), np.array([3])).tolist()
    [2]
    """
    low, high = lo.astype(np.int64), hi.astype(np.int64)
    top = int(codes.max(initial=0))
    everything = bound > top
    bound = np.where(everything, 0, bound)
    total = np.zeros(len(lo), np.int64)
    for bit, zeros in _levels(codes):
        for cut in blocks(len(lo)):
            a, b = zeros.take(low[cut]), zeros.take(high[cut])
            up = bound[cut] & (1 << bit) != 0
            total[cut] += (b - a) * up
            _down(low[cut], a, up, zeros)
            _down(high[cut], b, up, zeros)
    return np.where(everything, hi - lo, total)


def _down(at: Ints, before: Small, up: Bools, zeros: Small) -> None:
    """Move boundaries to the next level, in place: zeros go first, ones behind all zeros, both in order."""
    at -= before
    at += zeros[-1]
    np.copyto(at, before, where=~up)


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
