"""Exact sums over ranges of rows: fixed-point digits in int64 prefix sums, rounded once at the end.

A column of doubles is cut into digits of `width` bits on one grid for all rows. Each digit is a whole
number, so its prefix sums are exact (modulo 2**64, which differences undo), and the digits of a
range's sum are differences of prefix sums. Nothing depends on how rows or calls are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clew.model.rows import Bools, Ints

Floats = NDArray[np.float64]

WIDTH = 32  # of a digit in Arrow form
_BLOCK = 16_384  # rows that are rounded at a time, so that their digits stay in the cache


@dataclass(frozen=True, eq=False)
class Exact:
    """One exact number a row: the sum over k of `digits[k] * 2**(exponent + width * k)`.

    Digits have any sign and size that int64 holds; `normal` gives them their one form.
    """

    digits: Ints  # shape: digits, rows
    width: int
    exponent: int

    def __len__(self) -> int:
        return int(self.digits.shape[1])

    def normal(self, extra: int = 0) -> Exact:
        """All digits but the last in [0, 2**width), the last one signed; `extra` more digits on top."""
        return Exact(carry(_padded(self.digits, 0, extra), self.width), self.width, self.exponent)

    def regrid(self, width: int, exponent: int) -> Exact:
        """The same numbers in digits of another width, counted from a lower (or the same) exponent."""
        source, mask = self.normal().digits, (1 << width) - 1
        top = self.exponent - exponent + self.width * (len(source) - 1) + 64
        out = np.zeros((top // width + 2, len(self)), np.int64)
        for k, digit in enumerate(source):
            last = k == len(source) - 1
            at, offset = divmod(self.exponent - exponent + self.width * k, width)
            room, left = width - offset, 64 if last else self.width
            out[at] += (digit & ((1 << room) - 1)) << offset
            rest = digit >> room
            while (left := left - room) > 0:
                at, room = at + 1, width
                out[at] += rest & mask
                rest = rest >> width
            if last:
                out[at + 1] += rest
        return Exact(carry(out, width), width, exponent)

    def plus(self, other: Exact) -> Exact:
        """Row by row the sum of two numbers whose grids have one width."""
        steps = (self.exponent - other.exponent) // self.width
        left, right = _padded(self.digits, max(steps, 0), 0), _padded(other.digits, max(-steps, 0), 0)
        height = max(len(left), len(right))
        total = _padded(left, 0, height - len(left)) + _padded(right, 0, height - len(right))
        return Exact(carry(total, self.width), self.width, min(self.exponent, other.exponent))

    def to_double(self) -> Floats:
        """The nearest doubles; infinities where a number exceeds their range.

        Exact also among subnormals, as long as the numbers are multiples of 2**-1074.
        """
        out = np.empty(len(self))
        for cut in blocks(len(self)):
            head, dropped = round_to_odd(self.digits[:, cut], self.width)
            out[cut] = scale_each(head.astype(np.float64), dropped + self.exponent)
        return out

    def to_words(self) -> tuple[Ints, NDArray[np.uint64], Bools]:
        """Whole numbers as 128-bit integers: high word, low word, and which of them fit."""
        if self.digits.shape[0] == 1 and self.exponent == 0:
            digit = self.digits[0]
            return digit >> 63, digit.view(np.uint64), np.ones(len(self), np.bool_)
        grid = self if (self.width, self.exponent) == (32, 0) else self.regrid(32, 0)
        d = grid.normal(extra=5).digits
        low = (d[0] | (d[1] << 32)).view(np.uint64)
        high = d[2] | (d[3] << 32)
        sign = high >> 63
        fits = d[-1] == sign
        for digit in d[4:-1]:
            fits &= digit == (sign & 0xFFFFFFFF)
        return high, low, fits


def sum_doubles(values: Floats, lo: Ints, hi: Ints) -> Exact:
    """Exact sums of finite doubles over rows lo[i]:hi[i]."""
    width = 40 if longest(lo, hi) < 2**22 else 31
    top = top_exponent(values)
    sums = {k: range_sums(part, lo, hi) for k, part in digits_of(values, top, width)}
    height = max(sums) + 1
    return Exact(stacked({height - 1 - k: digit for k, digit in sums.items()}, height), width, top - width * height)


def sum_integers(values: Ints, lo: Ints, hi: Ints) -> Exact:
    """Exact sums of int64 over rows lo[i]:hi[i]."""
    largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if largest * longest(lo, hi) < 2**63:
        return Exact(range_sums(values, lo, hi)[None], 32, 0)
    low, high = values & 0xFFFFFFFF, values >> 32
    return Exact(np.stack([range_sums(low, lo, hi), range_sums(high, lo, hi)]), 32, 0)


def sum_words(high: Ints, low: NDArray[np.uint64], lo: Ints, hi: Ints) -> Exact:
    """Exact sums of 128-bit integers over rows lo[i]:hi[i]."""
    below = low.view(np.int64)
    if np.array_equal(high, below >> 63):
        return sum_integers(below, lo, hi)
    parts = (below & 0xFFFFFFFF, (below >> 32) & 0xFFFFFFFF, high & 0xFFFFFFFF, high >> 32)
    return Exact(np.stack([range_sums(p, lo, hi) for p in parts]), 32, 0)


def range_sums(values: Ints | NDArray[np.int32], lo: Ints, hi: Ints) -> Ints:
    """Sums of whole numbers over rows lo[i]:hi[i], modulo 2**64."""
    prefix = np.empty(len(values) + 1, np.int64)
    prefix[0] = 0
    np.cumsum(values, out=prefix[1:])
    total = prefix.take(hi)
    total -= prefix.take(lo)
    return total


def digits_of(values: Floats, top: int, width: int) -> Iterator[tuple[int, Ints]]:
    """Digits of finite doubles below 2**top: their places, 0 for the highest, and they; one is always given.

    A digit has its number's sign. Places where all numbers have none are left out, so that one tiny
    value among ordinary ones costs a few digits and not a hundred.
    """
    rest, place = values.copy(), 0
    while True:
        exponent = top - width * (place + 1)
        part = scale(rest, -exponent)
        np.trunc(part, out=part)
        yield place, part.astype(np.int64)
        rest -= scale(part, exponent)
        if not rest.any():
            return
        place = max(place + 1, (top - top_exponent(rest)) // width)


def stacked(digits: dict[int, Ints], height: int) -> Ints:
    """Digits by place, lowest first, as one array, with zeros for those that are not there."""
    some = next(iter(digits.values()))
    out = np.zeros((height, len(some)), np.int64)
    while digits:
        place, digit = digits.popitem()
        out[place] = digit
    return out


def top_exponent(values: Floats) -> int:
    """The least e with |value| < 2**e for all."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return int(np.frexp(largest)[1])


def scale(values: Floats, exponent: int) -> Floats:
    """values * 2**exponent"""
    if -1022 <= exponent <= 1023:
        return values * 2.0**exponent
    return np.ldexp(values, exponent)


def scale_each(values: Floats, exponents: Ints) -> Floats:
    """values * 2**exponents, row by row, rounded where the result is subnormal, infinite where it is too large."""
    if len(exponents) and exponents.min() > -1000 and exponents.max() < 900 and np.abs(values).max() < 2.0**64:
        return values * ((exponents + 1023) << 52).view(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(values, np.clip(exponents, -5000, 5000))


def longest(lo: Ints, hi: Ints) -> int:
    """The number of rows in the longest range."""
    return int((hi - lo).max(initial=0))


def blocks(length: int) -> Iterator[slice]:
    """Slices that cover `length` rows."""
    return (slice(start, start + _BLOCK) for start in range(0, length, _BLOCK))


def _padded(digits: Ints, below: int, above: int) -> Ints:
    if not below and not above:
        return digits
    return np.pad(digits, ((below, above), (0, 0)))


def carry(digits: Ints, width: int) -> Ints:
    """The same numbers with all digits but the last in [0, 2**width)."""
    out, mask = digits.copy(), (1 << width) - 1
    for k in range(len(out) - 1):
        out[k + 1] += out[k] >> width
        out[k] &= mask
    return out


def round_to_odd(digits: Ints, width: int) -> tuple[Ints, Ints]:
    """The leading 61 or 62 bits of each number, and how many bits were dropped behind them.

    The last bit kept is set if any dropped bit was, so that one later rounding to 53 bits rounds the
    number itself (Boldo and Melquiond, When double rounding is odd, 2005).
    """
    digits = carry(digits, width)
    head = digits[-1].copy()
    dropped = np.zeros(len(head), np.int64)
    for digit in digits[-2::-1]:
        room = np.clip(62 - _bits(head), 0, width)
        drop = width - room
        head <<= room
        head |= digit >> drop
        head |= (digit & ((1 << drop) - 1)) != 0
        dropped += drop
    return head, dropped


def _bits(values: Ints) -> Ints:
    """The length of each number in bits, or one more; far below zero for 0."""
    return ((values.astype(np.float64).view(np.int64) >> 52) & 0x7FF) - 1022
