"""Progress: how far an order has come, place by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clew.model.axis import Axis, Number
from clew.model.rows import NEVER, Ints


@dataclass(frozen=True, eq=False)
class Steps:
    """Progress is `start` (None: nothing seen), and `value[i]` once all of the step at `stamp[i]` is in.

    Both arrays ascend strictly. Rows of the step at a stamp are taken in first; then progress is as
    that stamp says, and what it passes closes, with that stamp as the trigger.
    """

    start: Number | None
    stamp: Ints
    value: Axis

    @staticmethod
    def none() -> Steps:
        return Steps(None, np.empty(0, np.int64), np.empty(0, np.int64))

    @staticmethod
    def running(start: Number | None, stamp: Ints, value: Axis) -> Steps:
        """The steps of rows in place order: the running maximum of `value`, over what was before."""
        if not len(stamp):
            return Steps(start, stamp, value)
        peak = np.maximum.accumulate(value)
        last_of_step = np.append(stamp[1:] != stamp[:-1], True)
        stamp, peak = stamp[last_of_step], peak[last_of_step]
        grows = np.append(True, peak[1:] > peak[:-1]) if start is None else peak > np.append(start, peak[:-1])
        if start is not None:
            grows &= peak > start
        return Steps(start, stamp[grows], peak[grows])

    @property
    def end(self) -> Number | None:
        """Progress after the last step."""
        return self.value[-1].item() if len(self.value) else self.start

    def reaches(self, targets: Axis) -> Ints:
        """The first stamp at which progress is at least each target; -1 if it was before, NEVER if not yet."""
        return self._first(targets, "left")

    def passes(self, targets: Axis) -> Ints:
        """The first stamp at which progress is greater than each target; -1 if it was before, NEVER if not yet."""
        return self._first(targets, "right")

    def before(self, stamps: Ints, default: Number) -> Axis:
        """Progress just before each stamp's step; `default` where nothing was seen."""
        index = np.searchsorted(self.stamp, stamps, side="left") - 1
        start = default if self.start is None else self.start
        if not len(self.value):
            return np.full(len(stamps), start, dtype=np.asarray(start).dtype)
        return np.where(index >= 0, self.value[np.maximum(index, 0)], self.value.dtype.type(start))

    def _first(self, targets: Axis, side: str) -> Ints:
        at = np.searchsorted(self.value, targets, side=side)  # type: ignore[call-overload]
        stamps: Ints = np.append(self.stamp, NEVER)[at]
        if self.start is not None:
            done = targets <= self.start if side == "left" else targets < self.start
            stamps = np.where(done, -1, stamps)
        return stamps.astype(np.int64)

    @staticmethod
    def slowest(parts: Sequence[Steps]) -> Steps:
        """The smaller of several progresses at every place: nothing has come further than the slowest."""
        if len(parts) == 1:
            return parts[0]
        starts = [p.start for p in parts]
        start = None if any(s is None for s in starts) else min(s for s in starts if s is not None)
        stamps = np.unique(np.concatenate([p.stamp for p in parts]))
        if not len(stamps):
            return Steps(start, stamps, np.empty(0, np.int64))
        known = np.ones(len(stamps), np.bool_)
        columns = []
        for p in parts:
            index = np.searchsorted(p.stamp, stamps, side="right") - 1
            if p.start is None:
                known &= index >= 0
            fill = 0 if p.start is None else p.start
            values = p.value if len(p.value) else np.full(1, fill, np.asarray(fill).dtype)
            columns.append(np.where(index >= 0, values[np.maximum(index, 0)], values.dtype.type(fill)))
        low = np.minimum.reduce(columns)[known]
        return Steps.running(start, stamps[known], low)
