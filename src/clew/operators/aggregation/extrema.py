"""The smallest or largest key of each range, in constant time a range.

Short ranges: two overlapping blocks of a power of two (Bender and Farach-Colton, The LCA problem
revisited, 2000). Others: a suffix of one block, a prefix of another, and whole blocks between.
"""

from __future__ import annotations

import numpy as np

from clew.model.rows import Ints

_BLOCK = 64


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
    level_of = np.frexp(size.astype(np.float64))[1] - 1
    lowest, highest = int(level_of.min(initial=0)), int(level_of.max(initial=-1))
    here = keys
    for level in range(highest + 1):
        if level:
            here = pick(here[: -(1 << (level - 1))], here[1 << (level - 1) :])
        if level < lowest:
            continue
        at = slice(None) if lowest == highest else np.flatnonzero(level_of == level)
        first = lo[at]
        out[at] = pick(here.take(first), here.take(first + size[at] - (1 << level)))
    return out


def _blocked(keys: Ints, lo: Ints, hi: Ints, pick: np.ufunc) -> Ints:
    """For ranges of at least one block, so that each touches the end of a block."""
    length = -(-len(keys) // _BLOCK) * _BLOCK
    grid = np.pad(keys, (0, length - len(keys)), mode="edge").reshape(-1, _BLOCK)
    rising = pick.accumulate(grid, axis=1)
    out: Ints = rising.reshape(-1).take(hi - 1)
    blocks = rising[:, -1].copy()
    del rising
    falling = pick.accumulate(grid[:, ::-1], axis=1)[:, ::-1]
    out = pick(out, np.ascontiguousarray(falling).reshape(-1).take(lo))
    first, count = lo // _BLOCK + 1, (hi - 1) // _BLOCK - lo // _BLOCK - 1
    between = np.flatnonzero(count > 0)
    if len(between):
        out[between] = pick(out[between], _doubling(blocks, first[between], count[between], pick))
    return out
