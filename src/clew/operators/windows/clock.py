"""Value windows on the clock: `[k·s, k·s + c)` for every whole k, as Spark's `window()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from clew.errors import BoxFailed
from clew.expressions.aggregates import AggregateCall
from clew.model.axis import Axis, Number, axis_of, is_float_axis
from clew.model.groups import group_hash, sort_by
from clew.model.ranges import spread
from clew.model.rows import NEVER, STAMP, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import ValueWindow
from clew.operators.base import Emission, Origin, State, join_emissions
from clew.operators.lineage import Picked
from clew.operators.progress import differing, halted
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches
from clew.operators.windows.base import (
    ON,
    ROWS,
    Block,
    Closed,
    Late,
    WindowKernel,
    on_axis,
    per_group,
)
from clew.operators.windows.grid import Grid
from clew.operators.windows.spans import extent, positive_span

MOST_WINDOWS = 100_000_000  # in one call; beyond, the slide is a mistake
MOST_LISTED = 16_000_000  # rows of windows that are not ranges; beyond, a call is halved


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a call up to a stamp, where they stand, the first window each can enter, and progress before them."""

    rows: Rows
    on: Axis
    opened: Ints
    start: Number | None
    limit: int

    def halves(self, steps: Steps, lowest: Number) -> tuple[Part, Part]:
        """Two parts, cut between two stamps. If all rows have one, they are in the second, and the first has none."""
        stamp = self.rows.stamp
        middle = int(np.searchsorted(stamp, stamp[len(stamp) // 2]))
        if not middle and stamp[0] < stamp[-1]:
            middle = int(np.searchsorted(stamp, stamp[0], side="right"))
        at = int(stamp[middle])
        between = steps.before(stamp[middle : middle + 1], lowest)[0].item()
        return (
            Part(self.rows.slice(0, middle), self.on[:middle], self.opened[:middle], self.start, at),
            Part(self.rows.slice(middle), self.on[middle:], self.opened[middle:], between, self.limit),
        )


class ClockKernel(WindowKernel):
    """Window k of a group holds its rows with `k·s <= on < k·s + c` and closes when progress is at least its end.

    A row does not enter a window that has closed before the row's step; if all of its windows have, it
    is late. The rows of a window are ordered by (on, place). Origin: the first and the last place among
    them, and the window's start as the tag (the bits of it on a float axis). Named by group and start.
    """

    #: the column of the state's rows that says from which step on they are needed
    first_stamp = STAMP

    def __init__(
        self, window: ValueWindow, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
    ) -> None:
        kind = schema.field(window.on).type
        span, slide = positive_span(window.span, kind, "span"), positive_span(window.slide, kind, "slide")
        self.floats = is_float_axis(kind)
        self.starts = Grid(slide, 0.0 if self.floats else 0, self.floats)
        self.closes = Grid(slide, span, self.floats)
        self.column = window.on
        self.row_columns = ((ON, pa.float64() if self.floats else pa.int64()),)
        super().__init__(by, calls, schema, window.on)

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        rows, steps = inputs[0], progress[0]
        late = Late(rows)
        on, opened, _, taken = self._entered(rows, steps, late)
        part = Part(rows.filter(taken), on[taken], opened[taken], steps.start, NEVER)
        return replace(join_emissions(list(self._run(state, part, steps))), late=late.refused())

    def inside(self, origin: Origin, head: Ints, on: Ints) -> Bools:
        del head
        number, values = (self.starts.index(self._axis(bits)) for bits in (origin.tag, on))
        return (self.closes.index(self._axis(on)) < number) & (number <= values) & self.starts.holds(self._axis(on))

    def in_order(self, rows: Rows, picked: Picked) -> Picked:
        on, _ = axis_of(rows.table.column(self.column))
        return picked.ordered(on[picked.row], rows.stamp[picked.row], rows.pos[picked.row])

    def _axis(self, bits: Ints) -> Axis:
        return bits.view(np.float64) if self.floats else bits

    def _entered(self, rows: Rows, steps: Steps, late: Late) -> tuple[Axis, Ints, Ints, Bools]:
        """Where rows stand, the first and the last window that each enters, and which rows enter one."""
        on, valid = on_axis(rows.table, self.column, late)
        inside = valid & self.starts.holds(on)
        late.add(valid & ~inside, f"'{self.column}' is too far from zero for windows of this slide")
        on = np.where(inside, on, on.dtype.type(0)) if not inside.all() else on
        first, last = self.closes.index(on) + 1, self.starts.index(on)
        before = steps.before(rows.stamp, -np.inf if self.floats else -NEVER)
        behind = inside & (first <= last) & (self.closes.edge(last) <= before)
        late.add(behind, f"every window that holds its '{self.column}' has closed")
        taken = inside & (first <= last) & ~behind
        opened = np.maximum(first, self.closes.index(before) + 1)  # what has closed before is not entered
        return on, opened, last, taken

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """The group's windows that a changed row enters; and every group's, where progress no longer passes
        their ends in the same step."""
        del history
        found = Reaches(bool(self.by))
        change = changes[0]
        entered = [
            (rows, steps, *self._entered(rows, steps, Late(rows)), group_hash(rows.table, self.by))
            for rows, steps in ((change.gone, before[0]), (change.come, after[0]))
        ]
        values = [on.view(np.int64) for _, _, on, *_ in entered]
        same = change.equal(*(mix_pair(v, e[-1]) for v, e in zip(values, entered, strict=True)))
        for (_, steps, _, opened, last, taken, group), stays in zip(entered, same, strict=True):
            low, high = (steps.reaches(self.closes.edge(k[taken])) for k in (opened, last))
            found.add(low, high, group[taken], moves=~stays[taken])
        found.add(*differing(before[0], after[0], self._edges_seen))
        return found.done()

    def _edges_seen(self, values: Axis) -> Ints:
        """How many ends of windows progress has passed; the end of the axis is behind all."""
        end = np.inf if self.floats else NEVER
        return np.where(values == end, NEVER, self.closes.index(values))

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...]:
        """From the first row of the windows that were open: they closed later, or the state holds them now."""
        del progress
        closed_later = history.origin.first_stamp[history.stamp >= stamp]
        held = np.asarray(history.state[ROWS].column(self.first_stamp))
        return (int(np.concatenate([closed_later, held]).min(initial=stamp)),)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """The rows whose last window ends behind progress, however they came."""
        if checkpoint is not None:
            return super().resume(stamp, past, progress, history, checkpoint)
        return self.run(self.empty(), past, [halted(progress[0], stamp)]).state

    def _run(self, state: State, part: Part, steps: Steps) -> Iterator[Emission]:
        block = self._by_value(self.layout(state, part.rows, {ON: part.on}))
        on = block.extra[ON]
        floor = self.closes.index_of(part.start)
        first, last = self.closes.index(on) + 1, self.starts.index(on)
        if floor is not None:
            first = np.maximum(first, floor + 1)
        group, number, lo, hi = self._windows(block, first, last)
        stamp = steps.reaches(self.closes.edge(number))
        done = (stamp >= 0) & (stamp < part.limit)
        group, number, lo, hi, stamp = (a[done] for a in (group, number, lo, hi, stamp))

        opened = np.append(part.opened, -NEVER)[block.source]  # kept rows stand in all that are open
        missing = np.append(0, np.cumsum((block.source >= 0) & (opened > first)))
        holed = missing[hi] > missing[lo]  # windows in whose range there may be a row that came after they had closed
        if int((hi - lo)[holed].sum()) > MOST_LISTED and part.rows.stamp[0] < part.rows.stamp[-1]:
            for half in part.halves(steps, -np.inf if self.floats else -NEVER):
                for emission in self._run(state, half, steps):
                    yield emission
                    state = emission.state
            return
        index, lo, hi = _without(lo, hi, number, opened, holed, len(on))
        some = hi > lo
        group, number, lo, hi, stamp = (a[some] for a in (group, number, lo, hi, stamp))

        begin, end = self.starts.edge(number), self.closes.edge(number)
        tag = begin.view(np.int64)
        named = mix_pair(block.groups.hash[group], tag)
        closed = Closed(group, stamp, named, Origin(*block.places(*extent(block, lo, hi, index)), tag), end)
        open_ = steps.reaches(self.closes.edge(last)) >= part.limit
        after = self.keep(block, open_, per_group(open_, block.bounds) > 0)
        table = block.table if index is None else block.table.take(pa.array(index))
        yield self.emission(block.groups, closed, self.aggregated(table, lo, hi), after)

    def _by_value(self, block: Block) -> Block:
        """The block with each group's rows by (on, place)."""
        on, group = block.extra[ON], block.group()
        if ((on[1:] >= on[:-1]) | (group[1:] != group[:-1])).all():
            return block
        return block.take(sort_by(group, on, block.stamp, block.pos))

    def _windows(self, block: Block, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Group, number, and rows `lo` to `hi` of every window that holds a row.

        Row i stands in windows `first[i]` to `last[i]`, both ascending within a group. So each window
        has one row that opens it (its number is above the `last` of the row before) and one that ends
        it (below the `first` of the row behind): listing them by either gives the same windows in the
        same order, by the one with `lo`, by the other with `hi`.
        """
        edge = _edges(block)
        above = np.append(0, last[:-1] + 1)
        opened = np.where(edge[:-1], first, np.maximum(first, above))
        counts = np.maximum(last - opened + 1, 0)
        if int(counts.sum()) > MOST_WINDOWS:
            raise BoxFailed(
                f"would open {int(counts.sum()):,} windows in one call",
                hint=f"the slide is far below the span or the gaps between values of '{self.column}'",
            )
        number, lo = spread(opened, counts)
        below = np.append(first[1:] - 1, 0)
        ended = np.where(edge[1:], last, np.minimum(last, below))
        hi = np.repeat(np.arange(1, len(last) + 1), np.maximum(ended - first + 1, 0))
        return block.group()[lo], number, lo, hi


def _without(lo: Ints, hi: Ints, number: Ints, opened: Ints, holed: Bools, rows: int) -> tuple[Ints | None, Ints, Ints]:
    """Ranges of windows, with the rows left out that stand only in later ones (`opened` above the number).

    Those of windows marked as `holed` become lists behind all rows: the ranges are then ranges of the index.
    """
    if not holed.any():
        return None, lo, hi
    where = np.flatnonzero(holed)
    row, owner = spread(lo[where], (hi - lo)[where])
    enters = opened[row] <= number[where][owner]
    row, sizes = row[enters], np.bincount(owner[enters], minlength=len(where))
    lo, hi = lo.copy(), hi.copy()
    hi[where] = rows + np.cumsum(sizes)
    lo[where] = hi[where] - sizes
    return np.concatenate([np.arange(rows), row]), lo, hi


def _edges(block: Block) -> Bools:
    """Whether a group begins at each row; one more at the end."""
    edge = np.zeros(len(block.stamp) + 1, np.bool_)
    edge[block.bounds] = True
    return edge
