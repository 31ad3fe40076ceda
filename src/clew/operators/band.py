"""Bands: rows of two inputs within a span of each other, as joins and resamples need them.

The band says which right rows a left row may meet: `left + low <= right <= left + high`. Progress says
how long: a left row can be met until the right input's progress passes `left + high`, a right row until
`progress of the left + low` passes it. Both ends move with stamps alone, so what has been evicted
between two calls can never be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clew.errors import TypeProblem
from clew.model.axis import INFINITE, Axis, Number, axis_of, is_float_axis, is_orderable
from clew.model.groups import group_codes, sort_by
from clew.model.rows import Bools, Ints, Rows
from clew.model.steps import Steps
from clew.model.types import type_name
from clew.operators.base import Refused

PAIRS_AT_ONCE = 4_000_000
_LEAST = int(np.iinfo(np.int64).min)


def shifted(values: Axis, by: Number) -> Axis:
    """`values + by`, held inside the axis; what stands at its end stays there.

    >>> shifted(np.array([5, INFINITE]), -2).tolist() == [3, INFINITE]
    True
    """
    if values.dtype == np.float64:
        with np.errstate(invalid="ignore", over="ignore"):
            moved = values + np.float64(by)
        return np.where(values == math.inf, math.inf, np.where(np.isnan(moved), by, moved))
    step = int(max(-INFINITE, min(INFINITE, by)))
    room = np.clip(values, _LEAST - min(step, 0), INFINITE - max(step, 0))
    return np.where(values == INFINITE, INFINITE, room + step)


def ahead(steps: Steps, by: Number) -> Steps:
    """Progress with every value `by` further on."""
    if steps.start is None:
        return Steps(None, steps.stamp, shifted(steps.value, by))
    start = np.asarray([steps.start])
    if isinstance(by, float):  # a whole number may stand for a start on a float64 axis
        start = start.astype(np.float64)
    return Steps(shifted(start, by)[0].item(), steps.stamp, shifted(steps.value, by))


def raised(values: Axis, *by: Number, sign: int = 1) -> Axis:
    """The values, a little further on: by more than rounding moves sums of them and the numbers `by`.

    On an axis of whole numbers nothing is rounded.
    """
    if values.dtype != np.float64:
        return values
    size = np.where(np.isfinite(values), np.abs(values), 0.0) + sum(abs(b) for b in by)
    with np.errstate(over="ignore"):
        return values + sign * size * 2.0**-48


def within_end(values: Axis) -> Axis:
    """The values, brought before the end of the axis, so that `finish()` passes all of them."""
    end = np.finfo(np.float64).max if values.dtype == np.float64 else INFINITE - 1
    return np.minimum(values, end)


@dataclass(frozen=True)
class Band:
    """`left + low <= right <= left + high`, in units of the axis."""

    low: Number
    high: Number

    def left_until(self, left: Axis, right_progress: Steps) -> Ints:
        """The stamp of the last step in which each left row can be met."""
        return right_progress.passes(within_end(shifted(left, self.high)))

    def right_until(self, right: Axis, left_progress: Steps) -> Ints:
        """The stamp of the last step in which each right row can be met."""
        return ahead(left_progress, self.low).passes(within_end(right))

    def left_behind(self, left: Axis, stamp: Ints, progress: tuple[Steps, Steps]) -> Bools:
        """Left rows that meet nothing: the right rows they could meet are gone, and none can come."""
        gone = ahead(progress[0], self.low).passes(within_end(shifted(left, self.high))) < stamp
        return gone & (self.left_until(left, progress[1]) < stamp)

    def right_behind(self, right: Axis, stamp: Ints, progress: tuple[Steps, Steps]) -> Bools:
        """Right rows that meet nothing: the left rows they could meet are gone, and none can come."""
        gone = progress[1].passes(within_end(shifted(shifted(right, -self.low), self.high))) < stamp
        return gone & (self.right_until(right, progress[0]) < stamp)

    def first_left(self, right_progress: Number | None, steps: Steps, stamp: int) -> int:
        """From which stamp on, up to `stamp`, left rows are that can still be met.

        Assumes: `steps`, the left input's progress, is never behind its rows.
        """
        if right_progress is None:
            return 0
        return _reached(steps, self.point(right_progress), -self.high, stamp)

    def first_right(self, left_progress: Number | None, steps: Steps, stamp: int) -> int:
        """As `first_left`, of right rows."""
        if left_progress is None:
            return 0
        return _reached(steps, self.point(left_progress), self.low, stamp)

    def point(self, value: Number) -> Axis:
        """One value; a whole number may stand for one of a float64 axis."""
        if isinstance(value, float) or isinstance(self.high, float):
            return np.array([value], np.float64)
        return np.array([value], np.int64)

    def ranges(self, left: Axis, left_code: Ints, right: Axis, right_code: Ints) -> tuple[Ints, Ints, Ints]:
        """The right rows each left row meets by band and code: `order[lo[i]:hi[i]]`, as (order, lo, hi)."""
        order = sort_by(right_code, right)
        points = np.unique(right)
        width = len(points) + 1
        keys = right_code[order] * width + np.searchsorted(points, right[order])
        first = np.searchsorted(points, shifted(left, self.low), side="left")
        behind = np.searchsorted(points, shifted(left, self.high), side="right")
        lo = np.searchsorted(keys, left_code * width + first)
        hi = np.searchsorted(keys, left_code * width + behind)
        return order, lo, np.maximum(lo, hi)

    def pairs(self, left: Axis, left_code: Ints, right: Axis, right_code: Ints) -> Iterator[tuple[Ints, Ints]]:
        """All (left row, right row) within the band that have equal codes, a few million at a time."""
        order, lo, hi = self.ranges(left, left_code, right, right_code)
        for rows, at in expanded(lo, hi):
            yield rows, order[at]


def _reached(steps: Steps, value: Axis, by: Number, stamp: int) -> int:
    least = shifted(raised(value, by, sign=-1), by)
    return int(np.clip(steps.reaches(within_end(least)), 0, stamp)[0])


def expanded(lo: Ints, hi: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Ranges as (number of the range, member) pairs, in order, `PAIRS_AT_ONCE` or one range at a time."""
    ends = np.cumsum(hi - lo)
    start, done = 0, 0
    while start < len(lo):
        stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
        count = (hi - lo)[start:stop]
        rows = np.repeat(np.arange(start, stop), count)
        within = np.arange(len(rows)) - np.repeat(ends[start:stop] - count - done, count)
        yield rows, within + np.repeat(lo[start:stop], count)
        start, done = stop, int(ends[stop - 1])


def met_in_time(left_stamp: Ints, left_until: Ints, right_stamp: Ints, right_until: Ints) -> Bools:
    """Whether the earlier row of each pair could still be met when the later one came."""
    in_left = (left_stamp <= right_stamp) | (left_stamp <= right_until)
    return in_left & ((right_stamp <= left_stamp) | (right_stamp <= left_until))


def pair_codes(tables: tuple[pa.Table, pa.Table], keys: Sequence[tuple[str, str]]) -> tuple[Ints, Ints]:
    """Group numbers over the rows of both tables, equal where the keys are."""
    names = [str(i) for i in range(len(keys))]
    both = [t.select([k[side] for k in keys]).rename_columns(names) for side, t in enumerate(tables)]
    if not keys:
        return np.zeros(len(tables[0]), np.int64), np.zeros(len(tables[1]), np.int64)
    codes, _ = group_codes(pa.concat_tables(both, promote_options="permissive"), names)
    return codes[: len(tables[0])], codes[len(tables[0]) :]


def check_pair(schemas: tuple[pa.Schema, pa.Schema], on: tuple[str, str], keys: Sequence[tuple[str, str]]) -> None:
    """Raise unless the order columns stand on one axis and each pair of keys can be equal."""
    for schema, name in zip(schemas, on, strict=True):
        if not is_orderable(kind := schema.field(name).type):
            raise TypeProblem(f"goes by '{name}', which is {type_name(kind).upper()} and no order")
    for pair, fits in ((on, _one_axis), *((pair, _can_be_equal) for pair in keys)):
        types = [schema.field(name).type for schema, name in zip(schemas, pair, strict=True)]
        if not fits(*types):
            one, other = (f"'{name}' ({type_name(kind).upper()})" for name, kind in zip(pair, types, strict=True))
            raise TypeProblem(f"compares {one} with {other}", hint="cast one of them in a .map(...) before")


def _one_axis(left: pa.DataType, right: pa.DataType) -> bool:
    both_whole = pa.types.is_integer(left) and pa.types.is_integer(right)
    decimals = pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale
    return left == right or both_whole or decimals or (is_float_axis(left) and is_float_axis(right))


def _can_be_equal(left: pa.DataType, right: pa.DataType) -> bool:
    return bool(left == right or (pa.types.is_integer(left) and pa.types.is_integer(right)))


def admitted(
    rows: Rows, column: str, port: int, behind: Bools | None = None, reason: str = ""
) -> tuple[Rows, tuple[Refused, ...]]:
    """The rows that stand on the axis of `column` and are not `behind`; the others, refused with a reason."""
    _, stands = axis_of(rows.table.column(column))
    keep = stands if behind is None else stands & ~behind
    if keep.all():
        return rows, ()
    nowhere = f"null or NaN in the ordering column '{column}'"
    reasons = tuple(reason if ok else nowhere for ok in stands[~keep].tolist())
    return rows.filter(keep), (Refused(rows.filter(~keep), reasons, port),)
