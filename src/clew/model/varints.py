"""Numbers in as few bytes as they need: seven bits a byte, the lowest first, and the eighth says that more follow.

Many at once, with NumPy. A number is an int64 of at least zero, so it takes at most nine bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.model.rows import Ints

Bytes = NDArray[np.uint8]

LONGEST = 9  # bytes of the largest int64
MORE = 0x80


def size(numbers: Ints) -> Ints:
    """How many bytes each number takes.

    >>> size(np.array([0, 127, 128, 2**62])).tolist()
    [1, 1, 2, 9]
    """
    sizes = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for bits in range(7, 63, 7):
        if largest >> bits == 0:
            break
        sizes += numbers >= 1 << bits
    return sizes


def write(numbers: Ints) -> tuple[Bytes, Ints]:
    """The numbers one behind the other, and how many bytes each took.

    >>> write(np.array([1, 300]))[0].tolist()
    [1, 172, 2]
    """
    sizes = size(numbers)
    written = np.empty(int(sizes.sum()), np.uint8)
    at = np.cumsum(sizes) - sizes
    left = numbers
    while len(at):
        low = (left & 0x7F).astype(np.uint8)
        more = left > 0x7F
        low[more] |= MORE
        written[at] = low
        at, left = at[more] + 1, left[more] >> 7
    return written, sizes


def ends(data: Bytes) -> Ints:
    """Where the numbers end: one behind the last byte of each."""
    found: Ints = np.flatnonzero(data < MORE) + 1
    return found


def read(data: Bytes, at: Ints, sizes: Ints) -> Ints:
    """The numbers that start at these bytes and have these sizes. Assumes: none is longer than `LONGEST`.

    >>> read(np.array([1, 172, 2], np.uint8), np.array([0, 1]), np.array([1, 2])).tolist()
    [1, 300]
    """
    numbers = (data[at] & 0x7F).astype(np.int64)
    longer = np.flatnonzero(sizes > 1)
    byte = 1
    while len(longer):
        numbers[longer] |= (data[at[longer] + byte] & 0x7F).astype(np.int64) << (7 * byte)
        byte += 1
        longer = longer[sizes[longer] > byte]
    return numbers
