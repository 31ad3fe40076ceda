"""Ranges of whole numbers, many at once: where they start and end, and what is in them."""

from __future__ import annotations

import numpy as np

from clew.model.rows import Ints


def running(sizes: Ints | list[int]) -> Ints:
    """The sums up to each one, from 0: where pieces of these sizes start and end, one behind the other."""
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums


def each_in(lo: Ints, hi: Ints) -> Ints:
    """The whole numbers of all ranges, one range behind the other.

    >>> each_in(np.array([5, 1]), np.array([7, 4])).tolist()
    [5, 6, 1, 2, 3]
    """
    sizes = hi - lo
    numbers = np.repeat(lo - (np.cumsum(sizes) - sizes), sizes)
    numbers += np.arange(len(numbers))
    return numbers


def spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """`first[i], first[i] + 1, ...` `count[i]` times for each i; and the i of each.

    >>> spread(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    return each_in(first, first + count), np.repeat(np.arange(len(count)), count)
