"""Which tuples are too far ahead of their stream to be believed: they wait and move no progress.

With `max_ahead` that says it all. Without it, times are judged by the clock, and so are numbers of a stream that
began and stands where epoch seconds, milliseconds, microseconds or nanoseconds would. Other numbers are judged by
what the stream has gone through: beyond REACH times that, they wait until enough of them stand there.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.model.axis import Axis, Number, axis_of, span_of
from clew.model.rows import Bools
from clew.network.boxes import Source

REACH = 100  # a number may be so many times the span seen ahead of the largest one
LEAST = 100_000  # or so many units, in a stream that has not gone far
ENOUGH = 3  # tuples beyond a jump, their orders different, make it believed
SHARE = 10  # and one in so many of a batch, if it also has tuples short of the jump
YOUNG = 100  # with fewer tuples before it, nobody can say how far apart a stream's orders stand

DAY = dt.timedelta(days=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OLDEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # the numbers of earlier times look like many others
_PER_SECOND = (1, 10**3, 10**6, 10**9)

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stand:
    """Where a stream stands before a batch; None: it has seen nothing yet."""

    source: Source
    start: Number | None  # the smallest order
    reached: Number | None  # the largest order believed
    seq: int  # the tuples admitted
    now: dt.datetime

    def first_jump(self, order: Axis) -> int:
        """The first of the ascending orders too far ahead of its predecessor to be believed by itself; or their end."""
        if not len(order):
            return 0
        base, gap = self._gaps(order)
        if self.source.max_ahead is not None:
            far: Bools = gap > span_of(self.source.max_ahead, self._kind, "max_ahead")
        elif self._counts_time:
            far = gap > span_of(DAY, self._kind, "max_ahead")
            far[0] |= self.reached is None  # nothing to compare the first one with but the clock
            far &= order > self._tomorrow()
        else:
            wide = gap > min(LEAST, DAY.total_seconds()) * self._unit
            far = wide.copy()
            base, gap, there = base[wide], gap[wide], order[wide]
            start = self._start(order)
            by_clock, by_span = self._beyond_clock(there, base, gap, start), gap > self._reach(base, start)
            far[wide] = np.where(self._like_times(base, start), by_clock, by_span)
        found = np.flatnonzero(far)
        return int(found[0]) if len(found) else len(order)

    def believed(self, order: Axis, fresh: Bools) -> int:
        """How many of the ascending orders are believed; `fresh` marks those that came with the batch."""
        count = self.first_jump(order)
        if count == len(order) or self.source.max_ahead is not None or self._counts_time:
            return count
        to = self._confirmed(order, fresh, count)
        return count if to is None else replace(self, reached=to).believed(order, fresh)

    def _confirmed(self, order: Axis, fresh: Bools, jump: int) -> Number | None:
        """Up to which order tuples beyond a jump are believed, since enough stand near each other; None: none is.

        Those that waited count only if the stream goes on there: if the batch has none short of the jump.
        """
        base, _ = self._gaps(order[: jump + 1])
        if not fresh[jump:].any() or self._like_times(base[-1:], self._start(order))[0]:
            return None
        there = order[jump:]
        if fresh[:jump].any():
            there = there[fresh[jump:]]
            if len(there) * SHARE < fresh.sum():
                return None
        points = np.unique(there)
        if len(points) < ENOUGH:
            return None
        at = points.astype(np.float64)
        steps = np.lib.stride_tricks.sliding_window_view(np.diff(at), ENOUGH - 1).max(axis=1)
        young = self.seq + jump < YOUNG
        near = steps <= (2 * (at[: len(steps)] - base[-1]) if young else self._reach(base[-1:], self._start(order)))
        found = np.flatnonzero(near)
        number: Number | None = points[found[0] + ENOUGH - 1].item() if len(found) else None
        return number

    def _gaps(self, order: Axis) -> tuple[_Floats, _Floats]:
        """The largest order before each, and how far it is ahead of that."""
        reached = order[0].item() if self.reached is None else self.reached
        before = np.append(np.array([reached], order.dtype), order[:-1])
        base = np.maximum(before, reached).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return base, order.astype(np.float64) - base

    def _start(self, order: Axis) -> float:
        return float(order[0] if self.start is None else self.start)

    # --- by what was seen ---

    def _reach(self, base: _Floats, start: float) -> _Floats:
        return np.maximum(REACH * (base - start), LEAST * self._unit)

    # --- by the clock ---

    def _tomorrow(self) -> Number:
        clock = pa.array([self.now + DAY], pa.timestamp("us", tz="UTC"))
        number: Number = axis_of(clock.cast(self._kind) if pa.types.is_date32(self._kind) else clock)[0][0].item()
        return number

    def _like_times(self, base: _Floats, start: float) -> Bools:
        """Which numbers are, as a time since 1970 in some unit, between the year 2000 and tomorrow.

        The smallest of the stream must be so too: a count that starts low passes there, and goes on.
        """
        found: Bools = np.logical_or.reduce(
            [(start >= low) & (base >= low) & (base <= high) for low, high, _ in self._ranges()]
        )
        return found

    def _beyond_clock(self, order: Axis, base: _Floats, gap: _Floats, start: float) -> Bools:
        """Which are more than a day ahead of such a number, and of the clock in its unit."""
        far = [
            (start >= low) & (base >= low) & (base <= high) & (gap > day) & (order.astype(np.float64) > high)
            for low, high, day in self._ranges()
        ]
        found: Bools = np.logical_or.reduce(far)
        return found

    def _ranges(self) -> list[tuple[float, float, float]]:
        """For each unit of time the year 2000, tomorrow, and a day."""
        spans = [when.total_seconds() for when in (_OLDEST - _EPOCH, self.now + DAY - _EPOCH, DAY)]
        low, high, day = (np.outer(_PER_SECOND, spans) * self._unit).T
        return list(zip(low.tolist(), high.tolist(), day.tolist(), strict=True))

    @property
    def _unit(self) -> float:
        """A whole one on the axis of the orders."""
        return float(10**self._kind.scale) if pa.types.is_decimal(self._kind) else 1.0

    @property
    def _counts_time(self) -> bool:
        return bool(pa.types.is_timestamp(self._kind) or pa.types.is_date32(self._kind))

    @property
    def _kind(self) -> pa.DataType:
        return self.source.schema.field(self.source.order).type
