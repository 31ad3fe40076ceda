"""The heads of windows anchored at tuples: each row beyond the last head by more than the slide is the next."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from clew.model.axis import Axis, Number
from clew.model.groups import group_hash, sort_by
from clew.model.places import place_codes
from clew.model.rows import NEVER, Bools, Ints, Rows
from clew.model.steps import Steps
from clew.operators.replay import ByGroup, History, Reaches
from clew.operators.windows.base import ON, Kept

HEAD = "_window_head"  # whether a kept row is the head of a window


class Anchored(Protocol):
    """What is asked of the kernel."""

    by: tuple[str, ...]
    slide: Number
    floats: bool

    def kept(self, history: History) -> Kept: ...
    def until(self, heads: Axis) -> Axis: ...


class Chains:
    """All heads that each group ever had: of windows that closed, from the origin index, and of open ones."""

    def __init__(self, kernel: Anchored, history: History) -> None:
        self._kernel = kernel
        origin, kept = history.origin, kernel.kept(history)
        open_ = np.flatnonzero(np.asarray(kept.table.column(HEAD)))
        group = np.concatenate([history.group, kept.group[open_]])
        stamp = np.concatenate([origin.first_stamp, kept.stamp[open_]])
        pos = np.concatenate([origin.first_pos, kept.pos[open_]])
        closed: Axis = origin.tag.view(np.float64) if kernel.floats else origin.tag
        order = sort_by(group, stamp, pos)
        self.group, self.stamp, self.pos = group[order], stamp[order], pos[order]
        self.value: Axis = np.concatenate([closed, np.asarray(kept.table.column(ON))[open_]])[order]
        self.end = kernel.until(self.value)
        self.emitted = np.concatenate([history.stamp, np.full(len(open_), NEVER)])[order]

    def starts(self, stamp: int) -> tuple[Ints, Ints, Ints]:
        """For each group that had a head before `stamp`: its hash, and the place of the head of the last window that
        had closed by then, else of its first head."""
        group, first = np.unique(self.group, return_index=True)
        closed = np.zeros(len(group), np.int64)
        np.add.at(closed, np.searchsorted(group, self.group), self.emitted < stamp)
        at = first + np.maximum(closed - 1, 0)
        had = self.stamp[at] < stamp
        return group[had], self.stamp[at][had], self.pos[at][had]

    def entered(self, found: Reaches, rows: Rows, on: Axis, stays: Bools, steps: Steps, comes: bool) -> None:
        """The reach of rows that go or come. `stays`: replaced by one of the same group and value."""
        codes, places = place_codes((self.stamp, self.pos), (rows.stamp, rows.pos))
        for group, index, (lo, hi) in self._by_group(rows):
            value, end, code = self.value[lo:hi], self.end[lo:hi], codes[lo:hi]
            x, limit = on[index], self._before(steps, rows.stamp[index])
            count = np.searchsorted(code, places[index], side="left")  # heads before the row
            is_head = np.append(code, -1)[count] == places[index]
            if comes:
                breaks = self._opens(value, count, x, limit) & ~(is_head & stays[index])
            else:
                breaks = is_head & ~stays[index]
            found.add(rows.stamp[index[breaks]], NEVER, group)
            # The row is in windows that end behind it and behind progress, up to the first whose predecessor's
            # slide reaches over it.
            low = np.searchsorted(end, np.maximum(x, limit), side="left")
            high = np.minimum(np.searchsorted(value + self._kernel.slide, x, side="left"), count - 1 + is_head)
            enters = ~breaks & (low <= high)
            first, last = (steps.passes(end[i[enters]]) for i in (low, high))
            found.add(first, last, group, moves=False)

    def moved(self, found: Reaches, before: Steps, after: Steps) -> None:
        """The reach of progress on the heads there are: some close in another step, some would have come too late."""
        was, is_ = before.passes(self.end), after.passes(self.end)
        other = was != is_
        for stamp in (was, is_):
            found.add(stamp[other], stamp[other], self.group[other])
        late = self.end < self._before(after, self.stamp)
        found.add(self.stamp[late], NEVER, self.group[late])

    def no_longer_late(self, found: Reaches, rows: Rows, on: Axis, after: Steps) -> None:
        """The reach of progress on rows that were late, and now would be heads."""
        for group, index, (lo, hi) in self._by_group(rows):
            count = np.searchsorted(self.stamp[lo:hi], rows.stamp[index], side="left")
            limit = self._before(after, rows.stamp[index])
            opens = self._opens(self.value[lo:hi], count, on[index], limit)
            found.add(rows.stamp[index[opens]], NEVER, group)

    def _opens(self, value: Axis, count: Ints, on: Axis, limit: Axis) -> Bools:
        """Whether rows with `count` heads before them are heads."""
        last = np.append(value, 0)[count - 1]
        opens: Bools = ((count == 0) | (on > last + self._kernel.slide)) & (self._kernel.until(on) >= limit)
        return opens

    def _by_group(self, rows: Rows) -> list[tuple[int, Ints, tuple[int, int]]]:
        hashes = group_hash(rows.table, self._kernel.by)
        by_group = ByGroup(hashes)
        groups = np.unique(hashes)
        bounds = zip(*(np.searchsorted(self.group, groups, side=s).tolist() for s in ("left", "right")), strict=True)
        return [(g, by_group.of(g), b) for g, b in zip(groups.tolist(), bounds, strict=True)]

    def _before(self, steps: Steps, stamp: Ints) -> Axis:
        return steps.before(stamp, -np.inf if self._kernel.floats else -NEVER)
