"""Small things that the value windows share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from clew.errors import TypeProblem, WindowError
from clew.model.axis import Number, Span, is_orderable, span_of
from clew.model.groups import sort_by
from clew.model.rows import Ints
from clew.model.types import type_name
from clew.operators.windows.base import Block


def positive_span(span: Span, kind: pa.DataType, what: str) -> Number:
    """A span on the axis of `kind`, which must be above zero and finite."""
    if not is_orderable(kind):
        raise TypeProblem(f"a window cannot run on a column of type {type_name(kind).upper()}")
    found = span_of(span, kind, what)
    if not 0 < found < float("inf"):
        raise WindowError(f"a window of {what}={span!r}: it must be above 0")
    return found


def extent(block: Block, lo: Ints, hi: Ints, index: Ints | None = None) -> tuple[Ints, Ints]:
    """The first and the last row by place among rows `lo` to `hi` of a block (of `index`), whatever their order.

    No range may be empty.
    """
    if not len(lo) or (index is None and _by_place(block)):
        return lo, hi - 1
    by_place = sort_by(block.stamp, block.pos)
    rank = np.empty(len(by_place), np.int64)
    rank[by_place] = np.arange(len(by_place))
    rank = np.append(rank if index is None else rank[index], 0)  # the last is never read: `hi` may stand there
    ranges = np.stack([lo, hi], axis=1).ravel()
    return by_place[np.minimum.reduceat(rank, ranges)[::2]], by_place[np.maximum.reduceat(rank, ranges)[::2]]


def _by_place(block: Block) -> bool:
    stamp, pos = block.stamp, block.pos
    ascends = (stamp[1:] > stamp[:-1]) | ((stamp[1:] == stamp[:-1]) & (pos[1:] > pos[:-1]))
    edge = np.zeros(len(stamp) + 1, np.bool_)
    edge[block.bounds] = True
    return bool((ascends | edge[1:-1]).all())
