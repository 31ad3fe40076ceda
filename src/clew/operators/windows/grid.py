"""Edges k·step + offset on an axis, and which of them a value has reached."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clew.errors import WindowError
from clew.model.axis import Axis, Number
from clew.model.rows import Bools, Ints

FAR = 2**62  # an int64 axis is used up to here, so that the sum of a value and a span never overflows
FLOAT_STEPS = 2.0**52  # beyond so many steps a float axis has no separate edges


@dataclass(frozen=True)
class Grid:
    """The edges `k * step + offset` for all whole k.

    On a float axis an edge is what that formula computes, and a value is compared with it as it is.
    """

    step: Number
    offset: Number
    floats: bool

    def __post_init__(self) -> None:
        reach = self.step * FLOAT_STEPS if self.floats else FAR
        if abs(self.offset) >= reach or self.step >= FAR / 4:
            raise WindowError(
                f"steps of {self.step} from {self.offset} on are out of what the order's numbers can hold",
                hint="take a slide and a span that are closer to each other",
            )

    def holds(self, values: Axis) -> Bools:
        """Whether the grid reaches as far as a value. A value beyond belongs to no window.

        >>> Grid(5, 0, False).holds(np.array([7, 2**62])).tolist()
        [True, False]
        """
        limit = self.step * FLOAT_STEPS if self.floats else FAR
        held: Bools = (values > -limit) & (values < limit)
        return held

    def edge(self, k: Ints) -> Axis:
        if self.floats:
            return k.astype(np.float64) * float(self.step) + float(self.offset)
        return k * int(self.step) + int(self.offset)

    def index(self, values: Axis) -> Ints:
        """The largest k whose edge is not above the value.

        >>> Grid(5, 2, False).index(np.array([1, 2, 6, 7])).tolist()
        [-1, 0, 0, 1]
        """
        if not self.floats:
            whole: Ints = (np.clip(values, -FAR, FAR).astype(np.int64) - int(self.offset)) // int(self.step)
            return whole
        limit = float(self.step) * FLOAT_STEPS
        near: Axis = np.clip(values, -limit, limit).astype(np.float64)
        k: Ints = np.floor((near - float(self.offset)) / float(self.step)).astype(np.int64)
        while True:  # the division is off by a step or two at most; the comparison decides
            move = (self.edge(k + 1) <= near).astype(np.int64) - (self.edge(k) > near)
            if not move.any():
                return k
            k += move

    def index_of(self, value: Number | None) -> int | None:
        """`index` of one value; None for None."""
        if value is None:
            return None
        return int(self.index(np.array([value], np.float64) if self.floats else np.array([value], np.int64))[0])
