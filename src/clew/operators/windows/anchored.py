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
from clew.model.axis import Axis, Number, axis_of, is_float_axis
from clew.model.groups import group_hash
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import ValueWindow
from clew.operators.base import NO_FLOOR, Emission, Origin, State
from clew.operators.progress import cut
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches
from clew.operators.windows.base import GROUPS, ON, Block, Closed, Late, WindowKernel, from_head, on_axis, per_group
from clew.operators.windows.chains import HEAD, Chains
from clew.operators.windows.grid import FAR
from clew.operators.windows.spans import positive_span

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
    head and last row, and where the head stands as the tag (the bits of it on a float axis). Named by
    group and head.
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
        _, inside = self._standing(rows)
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

    def inside(self, origin: Origin, head: Ints, on: Ints) -> Bools:
        if self.floats:
            floor = np.where(origin.floor == NO_FLOOR, -np.inf, origin.floor.view(np.float64))
            values: Axis = on.view(np.float64)
            within: Bools = (values <= self.until(head.view(np.float64))) & (values > floor) & np.isfinite(values)
            return within
        return (on <= self.until(head)) & (on > origin.floor) & (on > -FAR) & (on < FAR)

    # --- what revisions ask ---

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """The windows of the group that a changed row enters. Where it is a head, or would be one, all later windows,
        for other rows may become heads. The same for rows that come too late to be heads, or no longer do, and
        for windows that progress no longer passes in the same step."""
        found = Reaches(bool(self.by))
        chains, change = Chains(self, history), changes[0]
        versions = ((change.gone, before[0]), (change.come, after[0]))
        standing = [(rows, *self._standing(rows), steps) for rows, steps in versions]
        numbers = [mix_pair(on.view(np.int64), group_hash(rows.table, self.by)) for rows, on, _, _ in standing]
        same = change.equal(*numbers)
        for comes, ((rows, on, inside, steps), stays) in enumerate(zip(standing, same, strict=True)):
            where = np.flatnonzero(inside)
            chains.entered(found, rows.take(where), on[where], stays[where], steps, bool(comes))
        chains.moved(found, before[0], after[0])
        for rows in history.late:
            on, inside = self._standing(rows)
            where = np.flatnonzero(inside)
            chains.no_longer_late(found, rows.take(where), on[where], after[0])
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...]:
        """From the head of the last window that had closed in each group; in others from their first head."""
        del progress
        return (int(Chains(self, history).starts(stamp)[1].min(initial=stamp)),)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """An original head leads to original heads: each group runs from there, as far as progress had come."""
        if checkpoint is not None:
            return super().resume(stamp, past, progress, history, checkpoint)
        rows = from_head(past[0], self.by, *Chains(self, history).starts(stamp))
        return self.run(self.empty(), [rows], [cut(progress[0], stamp)]).state

    def _standing(self, rows: Rows) -> tuple[Axis, Bools]:
        """Where rows stand, and which of them can be in a window."""
        on, valid = axis_of(rows.table.column(self.column))
        inside: Bools = valid & (np.isfinite(on) if self.floats else (on > -FAR) & (on < FAR))
        return on, inside

    def until(self, heads: Axis) -> Axis:
        """Up to where the windows of these heads hold rows."""
        ends = heads + self.span
        return np.minimum(ends, _LARGEST).astype(np.float64) if self.floats else ends.astype(np.int64)

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
        return self.until(block.extra[ON][head])

    def _above(self, values: Axis, group: Ints, floor: Axis, floored: Ints) -> Ints:
        """The bits of what the rows of each window stand above: the head before it and the slide; or NO_FLOOR."""
        first = np.append(True, group[1:] != group[:-1])[: len(group)]
        before = np.where(first, floor[group], np.append(values[:1], values[:-1]))
        above = before + self.slide
        bits = (above + 0.0).view(np.int64) if self.floats else above.astype(np.int64)
        return np.where(first & (floored[group] == 0), NO_FLOOR, bits)

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
        above = self._above(block.extra[ON][heads.head], group, *floors)[done]
        kept = _covered(heads.lo[~done], heads.hi[~done], index, len(block.stamp))
        columns = {FLOOR: pa.array(floor.view(np.int64)), FLOORED: pa.array(floored)}
        after = self.keep(block, kept, columns=columns)

        head, lo, hi, group = heads.head[done], heads.lo[done], heads.hi[done], group[done]
        last = index[hi - 1]
        closed = Closed(
            group,
            stamp[done],
            mix_pair(block.groups.hash[group], block.ident[head]),
            Origin(*block.places(head, last), block.extra[ON][head].view(np.int64), above),
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
    pairs = ((heads.head, head), (heads.lo, hi - sizes), (heads.hi, hi))
    both = Heads(*(np.concatenate(p) for p in pairs))
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
