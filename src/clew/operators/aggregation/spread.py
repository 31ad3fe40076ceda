"""Variance from exact moments: n * sum(x*x) - sum(x)**2 as one whole number, rounded once.

The variance is then that number over n * (n - 1) or n * n, one division of doubles. Whole numbers and
decimals are taken as the nearest doubles first, as Spark casts them.
"""

from __future__ import annotations

import numpy as np

from clew.model.rows import Ints
from clew.operators.aggregation.exact import (
    Exact,
    Floats,
    blocks,
    carry,
    digits_of,
    longest,
    range_sums,
    round_to_odd,
    scale_each,
    stacked,
    top_exponent,
)


def sum_squares(values: Floats, lo: Ints, hi: Ints) -> tuple[Exact, Exact]:
    """Exact sums of finite doubles, and of their squares, over rows lo[i]:hi[i].

    The exponent of the second is twice that of the first, their width is one.
    """
    top, width = top_exponent(values), _square_width(values, longest(lo, hi))
    falling = {place: part.astype(np.int32) for place, part in digits_of(values, top, width)}
    height = max(falling) + 1
    parts = {height - 1 - place: part for place, part in falling.items()}
    total = stacked({place: range_sums(part, lo, hi) for place, part in parts.items()}, height)
    squares = np.zeros((2 * height - 1, len(lo)), np.int64)
    for k in sorted({i + j for i in parts for j in parts}):
        products = np.zeros(len(values), np.int64)
        for i in parts:
            if i <= k - i and k - i in parts:
                pair = np.multiply(parts[i], parts[k - i], dtype=np.int64)
                products += pair if i == k - i else 2 * pair
        squares[k] = range_sums(products, lo, hi)
    exponent = top - width * height
    return Exact(total, width, exponent), Exact(squares, width, 2 * exponent)


def variance(total: Exact, squares: Exact, count: Ints, divisor: Floats) -> Floats:
    """(count * squares - total**2) / divisor, row by row; `divisor` is not zero."""
    if (total.width, 2 * total.exponent) != (squares.width, squares.exponent) or total.width > 26:
        exponent = min(total.exponent, squares.exponent // 2)
        total, squares = total.regrid(16, exponent), squares.regrid(16, 2 * exponent)
    out = np.empty(len(count))
    for cut in blocks(len(count)):
        digits = _determinant(total.digits[:, cut], squares.digits[:, cut], count[cut], total.width)
        head, dropped = round_to_odd(digits, total.width)
        out[cut] = scale_each(head / divisor[cut], dropped + squares.exponent)
    return out


def _determinant(total: Ints, squares: Ints, count: Ints, width: int) -> Ints:
    """Digits of count * squares - total**2."""
    extra = 64 // width + 1
    sums = carry(np.pad(total, ((0, extra), (0, 0))), width)
    sums = _trimmed(carry(np.where(sums[-1] < 0, -sums, sums), width))
    whole = _trimmed(carry(np.pad(squares, ((0, extra), (0, 0))), width))
    out = np.zeros((max(2 * len(sums) - 1, len(whole)), len(count)), np.int64)
    np.multiply(whole, count, out=out[: len(whole)])
    used = [i for i, digit in enumerate(sums) if digit.any()]
    for n, i in enumerate(used):
        out[2 * i] -= sums[i] * sums[i]
        double = 2 * sums[i]
        for j in used[n + 1 :]:
            out[i + j] -= double * sums[j]
    return out


def _trimmed(digits: Ints) -> Ints:
    top = len(digits)
    while top > 1 and not digits[top - 1].any():
        top -= 1
    return digits[:top]


def _square_width(values: Floats, rows: int) -> int:
    """The widest digit whose products, over all pairs of digits and all rows of a range, add up within int64."""
    size = np.abs(values[values != 0.0])
    span = top_exponent(values) - int(np.frexp(size.min(initial=np.inf))[1]) + 53 if len(size) else 1
    for width in range(26, 1, -1):
        digits = -(-span // width) + 3
        if 2 * width + digits.bit_length() + rows.bit_length() <= 60:
            return width
    raise OverflowError(f"a range of {rows} rows is too long for exact squares")
