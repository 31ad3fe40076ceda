"""The smallest or largest key of each range, in constant time a range.

Short ranges: two overlapping blocks of a power of two (Bender and Farach-Colton, The LCA problem
revisited, 2000). Others: a suffix of one block, a prefix of another, and whole blocks between.
"""

from __future__ import annotations

import numpy as np

from clew.model.rows import Ints

_SHIFT = 5
_BLOCK = 1 << _SHIFT


def extreme(keys: Ints, lo: Ints, hi: Ints, *, largest: bool) -> Ints:
    """The largest (or smallest) of keys[lo[i]:hi[i]]; any number where the range is empty."""
    pick = np.maximum if largest else np.minimum
    size = hi - lo
    longest = int(size.max(initial=0))
    if not longest:
        return np.zeros(len(lo), np.int64)
    if longest < _BLOCK:
        return _doubling(keys, lo, size, pick)
    if int(size.min()) >= _BLOCK:
        return _blocked(keys, lo, hi, pick)
    out = np.empty(len(lo), np.int64)
    short = size < _BLOCK
    out[short] = _doubling(keys, lo[short], size[short], pick)
    out[~short] = _blocked(keys, lo[~short], hi[~short], pick)
    return out


def _doubling(keys: Ints, lo: Ints, size: Ints, pick: np.ufunc) -> Ints:
    """Level by level the extremes of 2**level keys from each row on; a range is answered at its own level."""
    out = np.zeros(len(lo), np.int64)
    lowest, highest = int(size.min()).bit_length() - 1, int(size.max()).bit_length() - 1
    here = keys
    for level in range(highest + 1):
        if level:
            here = pick(here[: -(1 << (level - 1))], here[1 << (level - 1) :])
        if level < lowest:
            continue
        if lowest == highest:
            return _overlapping(here, lo, size, level, pick)
        at = np.flatnonzero((size >> level) == 1)
        out[at] = _overlapping(here, lo[at], size[at], level, pick)
    return out


def _overlapping(here: Ints, lo: Ints, size: Ints, level: int, pick: np.ufunc) -> Ints:
    last = lo + size
    last -= 1 << level
    out = here.take(lo)
    pick(out, here.take(last), out=out)
    return out


def _blocked(keys: Ints, lo: Ints, hi: Ints, pick: np.ufunc) -> Ints:
    """For ranges of at least one block, so that each touches the end of a block."""
    length = -(-len(keys) // _BLOCK) * _BLOCK
    padded = np.pad(keys, (0, length - len(keys)), mode="edge")
    from_start = pick.accumulate(padded.reshape(-1, _BLOCK), axis=1)
    blocks = from_start[:, -1].copy()
    out = from_start.reshape(-1).take(hi - 1)
    # Reversed, a suffix is a prefix.
    to_end = padded[::-1].reshape(-1, _BLOCK)
    pick.accumulate(to_end, axis=1, out=from_start)
    pick(out, from_start.reshape(-1).take(length - 1 - lo), out=out)
    first = lo >> _SHIFT
    count = (hi - 1) >> _SHIFT
    count -= first
    count -= 1
    first += 1
    if int(count.min()) > 0:
        pick(out, _doubling(blocks, first, count, pick), out=out)
    elif int(count.max()) > 0:
        between = np.flatnonzero(count > 0)
        out[between] = pick(out[between], _doubling(blocks, first[between], count[between], pick))
    return out
