"""Histories of progress: cut at a stamp, and compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clew.model.axis import Axis
from clew.model.rows import NEVER, Bools, Ints
from clew.model.steps import Steps


def cut(steps: Steps, stamp: int) -> Steps:
    """The steps before a stamp."""
    count = int(np.searchsorted(steps.stamp, stamp, side="left"))
    return Steps(steps.start, steps.stamp[:count], steps.value[:count])


def halted(steps: Steps, stamp: int) -> Steps:
    """Progress that stands where it stood just before a stamp."""
    return Steps(cut(steps, stamp).end, steps.stamp[:0], steps.value[:0])


def between(steps: Steps, stamp: int, stop: int) -> Steps:
    """The steps behind `stamp` and before `stop`."""
    told = cut(steps, stop)
    first = int(np.searchsorted(told.stamp, stamp, side="right"))
    return Steps(cut(steps, stamp + 1).end, told.stamp[first:], told.value[first:])


def differing(before: Steps, after: Steps, seen: Callable[[Axis], Axis] | None = None) -> tuple[Ints, Ints]:
    """From where to where progress differs, as `seen` sees it: first stamps, and the stamps at which it is equal again.

    What closes in one history and not at the same stamp in the other closes within these, ends included.

    >>> slow, fast = (Steps(None, np.array(s), np.array([4, 9])) for s in ([2, 8], [2, 5]))
    >>> differing(slow, fast)
    (array([5]), array([8]))
    """
    stamp = np.unique(np.concatenate([np.array([-1]), before.stamp, after.stamp]))
    (has, value), (had, was) = (_at(s, stamp, seen) for s in (after, before))
    differs = (has != had) | (has & had & (value != was))
    edge = np.diff(np.concatenate([[False], differs, [False]]).astype(np.int8))
    first, stop = np.flatnonzero(edge > 0), np.flatnonzero(edge < 0)
    return stamp[first], np.append(stamp, NEVER)[stop]


def after_step(steps: Steps, stamp: Ints) -> Axis:
    """Progress once the steps at these stamps are in. Assumes: there is some."""
    return _at(steps, stamp, None)[1]


def _at(steps: Steps, stamp: Ints, seen: Callable[[Axis], Axis] | None) -> tuple[Bools, Axis]:
    kind = steps.value.dtype
    if isinstance(steps.start, float) or not (len(steps.value) or steps.start is None):
        kind = np.asarray(steps.start).dtype
    start = np.array([0 if steps.start is None else steps.start], kind)
    values: Axis = np.concatenate([start, steps.value.astype(kind)])
    index = np.searchsorted(steps.stamp, np.minimum(stamp, NEVER - 1), side="right")
    found: Axis = values[index]
    return (index > 0) | (steps.start is not None), found if seen is None else seen(found)
