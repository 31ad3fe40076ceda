"""Value windows anchored at tuples: a head and the rows within `c` of it; the next head is beyond `s`."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from clew.expressions.aggregates import AggregateCall
from clew.model.axis import Axis, Number, is_float_axis
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import ValueWindow
from clew.operators.base import Emission, Origin, State
from clew.operators.windows.base import GROUPS, ON, Block, Closed, Late, WindowKernel, on_axis, per_group
from clew.operators.windows.grid import FAR
from clew.operators.windows.spans import positive_span

HEAD = "_window_head"  # whether a kept row is the head of a window
FLOOR, FLOORED = "_window_floor", "_window_floored"  # the last head whose window has closed, if there is one
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(eq=False)
class Heads:
    """Windows of some groups: the head's row in the block, and the rows from `lo` to `hi` of `index`."""

    head: Ints
    lo: Ints
    hi: Ints


@dataclass(eq=False)
class _Window:
    head: int
    value: Number
    until: Number
    above: Number | None  # rows up to here belong to earlier windows only
    rows: list[int] = field(default_factory=list)


class AnchoredKernel(WindowKernel):
    """The first row of a group is a head; its window holds the rows with `on <= head + c`.

    The next head is the first row, in place order, with `on > head + s`; rows up to there do not enter
    later windows. A window closes when progress is greater than `head + c`. A row that would open a
    window which has closed before the row's step is late, and so is a row that enters no open window
    and is not behind the end of the last one closed. The rows of a window are in place order. Origin:
    head and last row. Named by group and head.
    """

    def __init__(
        self, window: ValueWindow, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
    ) -> None:
        kind = schema.field(window.on).type
        self.span, self.slide = positive_span(window.span, kind, "span"), positive_span(window.slide, kind, "slide")
        self.floats, self.column = is_float_axis(kind), window.on
        self.group_columns = ((FLOOR, pa.int64()), (FLOORED, pa.int64()))
        self.row_columns = ((ON, pa.float64() if self.floats else pa.int64()), (HEAD, pa.bool_()))
        super().__init__(by, calls, schema, window.on)

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        rows, steps = inputs[0], progress[0]
        late = Late(rows)
        on, valid = on_axis(rows.table, self.column, late)
        inside = valid & (np.isfinite(on) if self.floats else (on > -FAR) & (on < FAR))
        late.add(valid & ~inside, f"'{self.column}' is too far from zero for a window")
        where = np.flatnonzero(inside)
        rows, on = rows.filter(inside), on[where]
        block = self.layout(state, rows, {ON: on, HEAD: np.zeros(len(rows), np.bool_)})
        floored = block.groups.carry(state[GROUPS].column(FLOORED), 0)
        floor: Axis = block.groups.carry(state[GROUPS].column(FLOOR), 0)
        floor = floor.view(np.float64) if self.floats else floor

        orderly = self._orderly(block, floor, floored)
        heads, broken = self._ranges(block, self._chains(block, orderly, floor, floored), orderly, steps)
        index = np.arange(len(block.stamp))
        slow = np.flatnonzero((~orderly | broken) & (np.diff(block.bounds) > 0))
        if len(slow):
            before = steps.before(rows.stamp, -np.inf if self.floats else -NEVER)
            walked, behind = self._walk(block, slow.tolist(), floor, floored, before)
            heads, index = _with_lists(heads, index, walked)
            missed = np.zeros(len(late.rows), np.bool_)
            missed[where[behind]] = True
            late.add(missed, f"every window that could hold its '{self.column}' has closed")
        return self._emit(block, heads, index, steps, (floor, floored), late)

    # --- groups whose rows ascend: windows are ranges of rows ---

    def _orderly(self, block: Block, floor: Axis, floored: Ints) -> Bools:
        """Groups whose rows ascend on the axis and begin with a head."""
        on, start = block.extra[ON], block.bounds[:-1]
        down = np.concatenate([[False], on[1:] < on[:-1], [False]])
        down[start] = False  # between two groups
        falls = per_group(down[:-1], block.bounds) > 0
        filled = np.diff(block.bounds) > 0
        first = np.append(on, 0)[start]
        behind = filled & (block.kept == 0) & (floored > 0) & (first <= floor + self.span)
        orderly: Bools = ~falls & ~behind
        return orderly

    def _chains(self, block: Block, orderly: Bools, floor: Axis, floored: Ints) -> Ints:
        """The rows that are heads, in groups whose rows ascend."""
        flagged = np.flatnonzero(block.extra[HEAD])
        last, has = floor.copy(), floored > 0
        group = block.group()[flagged]
        last[group], has[group] = block.extra[ON][flagged], True
        values = block.extra[ON].tolist()
        found: list[int] = []
        new = block.bounds[:-1] + block.kept
        for g in np.flatnonzero(orderly & (new < block.bounds[1:])).tolist():
            i, stop = int(new[g]), int(block.bounds[g + 1])
            if has[g]:
                i = bisect_right(values, last[g].item() + self.slide, i, stop)
            while i < stop:
                found.append(i)
                i = bisect_right(values, values[i] + self.slide, i + 1, stop)
        return np.sort(np.concatenate([flagged[orderly[group]], np.array(found, np.int64)]))

    def _ranges(self, block: Block, head: Ints, orderly: Bools, steps: Steps) -> tuple[Heads, Bools]:
        """The windows of these heads, and groups in which a row came after its window had closed."""
        group = np.searchsorted(block.bounds, head, side="right") - 1
        until = self._until(block, head)
        hi = _first_above(block.extra[ON], until, head, block.bounds[group + 1])
        broken = ~orderly
        broken[group[block.stamp[hi - 1] > steps.passes(until)]] = True
        fine = ~broken[group]
        return Heads(head[fine], head[fine], hi[fine]), broken

    # --- any other group: row by row ---

    def _walk(
        self, block: Block, groups: Iterable[int], floor: Axis, floored: Ints, before: Axis
    ) -> tuple[list[_Window], list[int]]:
        """The windows of these groups, and the new rows that are late."""
        windows: list[_Window] = []
        late: list[int] = []
        values, source = block.extra[ON].tolist(), block.source.tolist()
        for g in groups:
            open_: deque[_Window] = deque()
            closed: Any = floor[g].item() if floored[g] else None
            last = closed
            for i in range(int(block.bounds[g]), int(block.bounds[g + 1])):
                value, new = values[i], source[i] >= 0
                now = before[source[i]].item() if new else -np.inf
                while new and open_ and open_[0].until < now:
                    closed = open_.popleft().value
                if (last is None or value > last + self.slide) if new else block.extra[HEAD][i]:
                    until = min(value + self.span, _LARGEST) if self.floats else value + self.span
                    if new and until < now:
                        late.append(source[i])
                        continue
                    open_.append(_Window(i, value, until, None if last is None else last + self.slide))
                    windows.append(open_[-1])
                    last = value
                holders = [w for w in open_ if value <= w.until and (w.above is None or value > w.above)]
                for window in holders:
                    window.rows.append(i)
                if not holders and closed is not None and value <= closed + self.span:
                    late.append(source[i])
        return windows, late

    # --- out ---

    def _until(self, block: Block, head: Ints) -> Axis:
        until: Axis = block.extra[ON][head] + self.span
        return np.minimum(until, _LARGEST) if self.floats else until

    def _emit(
        self, block: Block, heads: Heads, index: Ints, steps: Steps, floors: tuple[Axis, Ints], late: Late
    ) -> Emission:
        until = self._until(block, heads.head)
        stamp = steps.passes(until)
        group = np.searchsorted(block.bounds, heads.head, side="right") - 1
        block.extra[HEAD][heads.head] = True
        done = stamp < NEVER
        floor, floored = floors[0].copy(), floors[1].copy()
        floor[group[done]], floored[group[done]] = block.extra[ON][heads.head[done]], 1
        kept = _covered(heads.lo[~done], heads.hi[~done], index, len(block.stamp))
        columns = {FLOOR: pa.array(floor.view(np.int64)), FLOORED: pa.array(floored)}
        after = self.keep(block, kept, columns=columns)

        head, lo, hi, group = heads.head[done], heads.lo[done], heads.hi[done], group[done]
        last = index[hi - 1]
        closed = Closed(
            group,
            stamp[done],
            mix_pair(block.groups.hash[group], block.ident[head]),
            Origin(*block.places(head, last), np.zeros_like(lo)),
            until[done],
        )
        table = block.table if len(index) == len(block.stamp) else block.table.take(pa.array(index))
        return self.emission(block.groups, closed, self.aggregated(table, lo, hi), after, late.refused())


def _with_lists(heads: Heads, index: Ints, windows: Sequence[_Window]) -> tuple[Heads, Ints]:
    """Ranges and lists of rows together: the lists are laid behind the block's rows."""
    sizes = np.array([len(w.rows) for w in windows], np.int64)
    hi = len(index) + np.cumsum(sizes)
    lists = [np.array(w.rows, np.int64) for w in windows]
    head = np.array([w.head for w in windows], np.int64)
    both = Heads(*(np.concatenate(p) for p in ((heads.head, head), (heads.lo, hi - sizes), (heads.hi, hi))))
    order = np.argsort(both.head, kind="stable")
    return Heads(both.head[order], both.lo[order], both.hi[order]), np.concatenate([index, *lists])


def _covered(lo: Ints, hi: Ints, index: Ints, rows: int) -> Bools:
    """Which rows of the block are in one of the ranges of `index`."""
    depth = np.zeros(len(index) + 1, np.int64)
    np.add.at(depth, lo, 1)
    np.add.at(depth, hi, -1)
    mask = np.zeros(rows, np.bool_)
    mask[index[np.cumsum(depth)[:-1] > 0]] = True
    return mask


def _first_above(values: Axis, targets: Axis, start: Ints, stop: Ints) -> Ints:
    """For each target the first index from `start` to `stop` with a greater value; `stop` if there is none.

    Assumes: values ascend from `start` to `stop`.
    """
    low, high = start.copy(), stop.copy()
    while (low < high).any():
        middle = (low + high) // 2
        above = values[np.minimum(middle, len(values) - 1)] > targets
        live = low < high
        high = np.where(live & above, middle, high)
        low = np.where(live & ~above, middle + 1, low)
    return low
