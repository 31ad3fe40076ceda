"""Value windows on the clock, pane by pane: rows are summed up before they are kept or cross a process.

A pane is as wide as the greatest common divisor of span and slide, so every window is made of whole panes
(Li et al., "No Pane, No Gain", SIGMOD Record 2005). Partials merge exactly, so the bits are those of
`ClockKernel`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

import numpy as np
import pyarrow as pa

from clew.expressions.aggregates import AggregateCall
from clew.model.axis import Axis, axis_of, is_float_axis
from clew.model.groups import group_codes, sort_by
from clew.model.places import among_places
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import ValueWindow
from clew.operators.aggregation import final, is_bounded, partial
from clew.operators.base import Emission, Origin, State
from clew.operators.lineage import Known
from clew.operators.windows.base import GROUPS, HASH, KEPT, ON, ROWS, Block, Closed, per_group
from clew.operators.windows.clock import ClockKernel, Part
from clew.operators.windows.grid import FAR
from clew.operators.windows.scan import Carried
from clew.operators.windows.spans import positive_span

FIRST_STAMP, FIRST_POS = "_window_first_stamp", "_window_first_pos"
MOST_PANES = 16  # in a window; with more, keeping rows costs less than merging panes


def takes_panes(window: ValueWindow, calls: Sequence[AggregateCall], schema: pa.Schema) -> bool:
    """Whether these windows can be made of few panes whose partials are bounded and merge in any order."""
    kind = schema.field(window.on).type
    if window.anchor != "clock" or is_float_axis(kind):
        return False
    if not all(is_bounded(call) and call.function not in ("first", "last") for call in calls):
        return False
    span, slide = int(positive_span(window.span, kind, "span")), int(positive_span(window.slide, kind, "slide"))
    return span // gcd(span, slide) <= MOST_PANES


class PaneKernel(ClockKernel):
    """`ClockKernel` over panes.

    State: one row per group and open pane (its start, first and last place, a partial for each call).
    `combine` makes such rows of rows in any process; `run_combined` takes them for rows that come in order.
    """

    first_stamp = FIRST_STAMP

    def __init__(
        self, window: ValueWindow, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
    ) -> None:
        super().__init__(window, by, calls, schema)
        self.summed = list(dict.fromkeys(name for call in calls for name in call.args))
        self.encoded = tuple(name for name in by if name not in self.summed and name != self.column)
        self.width = gcd(int(self.starts.step), int(self.closes.offset))
        none = np.empty(0, np.int64)
        kept = [
            (f"_window_partial_{i}", partial(c, schema.empty_table(), none, none).type) for i, c in enumerate(calls)
        ]
        self.input = pa.schema([*(schema.field(name) for name in by), *(pa.field(*c) for c in kept)])
        self.args = [name for name, _ in kept]
        self.row_columns = ((ON, pa.int64()), (FIRST_STAMP, pa.int64()), (FIRST_POS, pa.int64()))

    def combine(self, rows: Rows, progress: Steps) -> Rows | None:
        """The panes of rows in place order: one row each, at the last place, hidden columns in the table.

        None if a row is late, or came after a window of it had closed.
        """
        on, valid = axis_of(rows.table.column(self.column))
        in_time = valid.all() and _in_time(rows.stamp, on, progress)
        if not in_time or (len(on) and not (on.min() > -FAR and on.max() < FAR)):
            return None
        return self._panes(rows, on)

    def run_combined(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        """As `run`, over the panes of consecutive slices."""
        return self._closed(state, Rows.concat(inputs), progress[0], NEVER)

    def holds(self, state: State, port: int, known: Known) -> Bools:
        del port
        groups, panes = state[GROUPS], state[ROWS]
        held = np.repeat(np.asarray(groups.column(HASH)), np.asarray(groups.column(KEPT)))
        pane = known.on // self.width * self.width
        return among_places((known.group, pane), (held, np.asarray(panes.column(ON))))

    def _run(self, state: State, part: Part, steps: Steps) -> Iterator[Emission]:
        floor = self.closes.index_of(part.start)
        first = self.closes.index(part.on) + 1
        missed = part.opened > (first if floor is None else np.maximum(first, floor + 1))
        if missed.any():
            for half in part.halves(steps, -NEVER):
                for emission in self._run(state, half, steps):
                    yield emission
                    state = emission.state
            return
        bounded = Steps(part.start, steps.stamp, steps.value)
        yield self._closed(state, self._panes(part.rows, part.on), bounded, part.limit)

    def _panes(self, rows: Rows, on: Axis) -> Rows:
        pane = on // self.width * self.width
        codes, _ = group_codes(rows.table, self.by) if self.by else (np.zeros(len(rows), np.int64), None)
        table, order = rows.table.select(self.summed) if self.summed else rows.table, None
        if not _ascend(codes, pane):
            order = sort_by(codes) if (pane[1:] >= pane[:-1]).all() else sort_by(codes, pane)
            table = table.take(pa.array(order)) if self.summed else table
            codes, pane = codes[order], pane[order]
        starts = np.flatnonzero(_changes(codes, pane))
        ends = np.append(starts[1:], len(codes))[: len(starts)]
        first, last = (starts, ends - 1) if order is None else (order[starts], order[ends - 1])
        columns = {
            name: rows.table.column(name).take(pa.array(first)).cast(self.input.field(name).type) for name in self.by
        }
        columns |= {n: partial(c, table, starts, ends) for n, c in zip(self.args, self.calls, strict=True)}
        columns |= {ON: pane[starts], FIRST_STAMP: rows.stamp[first], FIRST_POS: rows.pos[first]}
        return Rows(pa.table(columns), rows.stamp[last], rows.pos[last], rows.ident[last])

    def _closed(self, state: State, panes: Rows, steps: Steps, limit: int) -> Emission:
        extra = {n: np.asarray(panes.table.column(n)) for n in (ON, FIRST_STAMP, FIRST_POS)}
        block = self.layout(state, panes, extra)
        block, nodes = self._merged(block)
        on = block.extra[ON]
        floor = self.closes.index_of(steps.start)
        first, last = self.closes.index(on) + 1, self.starts.index(on)
        if floor is not None:
            first = np.maximum(first, floor + 1)
        group, number, lo, hi = self._windows(block, first, last)
        stamp = steps.reaches(self.closes.edge(number))
        done = (stamp >= 0) & (stamp < limit)
        group, number, lo, hi, stamp = (a[done] for a in (group, number, lo, hi, stamp))
        sums = _summed(nodes, lo, hi - lo, self.calls)
        tag = self.starts.edge(number).astype(np.int64)
        fs, fp, ls, lp, _ = sums.numbers
        closed = Closed(
            group,
            stamp,
            mix_pair(block.groups.hash[group], tag),
            Origin(fs, fp, ls, lp, tag),
            self.closes.edge(number),
        )
        open_ = steps.reaches(self.closes.edge(last)) >= limit
        results = [final(call, p) for call, p in zip(self.calls, sums.partials, strict=True)]
        return self.emission(block.groups, closed, results, self.keep(block, open_, per_group(open_, block.bounds) > 0))

    def _merged(self, block: Block) -> tuple[Block, Carried]:
        """One row per group and pane, by pane; as a block and as what windows are summed of."""
        group, on = block.group(), block.extra[ON]
        if not _ascend(group, on):
            block = block.take(sort_by(group, on, block.extra[FIRST_STAMP], block.extra[FIRST_POS]))
            on = block.extra[ON]
        starts = np.flatnonzero(_changes(group, on))
        counts = np.diff(np.append(starts, len(group)))
        nodes = _summed(_nodes(block, self.args), starts, counts, self.calls)
        if len(starts) == len(group):
            return block, nodes
        first_stamp, first_pos, stamp, pos, ident = nodes.numbers
        bounds = np.searchsorted(group[starts], np.arange(len(block.groups) + 1))
        table = pa.table(dict(zip(self.args, nodes.partials, strict=True))) if self.args else block.table
        extra = {ON: on[starts], FIRST_STAMP: first_stamp, FIRST_POS: first_pos}
        merged = Block(
            block.groups, bounds, np.zeros_like(block.kept), table, stamp, pos, ident, block.source[starts], extra
        )
        return merged, nodes


def _in_time(stamp: Ints, on: Axis, progress: Steps) -> bool:
    """Whether every row is at least as far as progress was before it."""
    if not len(on):
        return True
    if (on[1:] < on[:-1]).any():
        return bool((on >= progress.before(stamp, -NEVER)).all())
    first = int(progress.before(stamp[:1], -NEVER)[0])
    later = (progress.stamp >= stamp[0]) & (progress.stamp < stamp[-1])
    at = np.searchsorted(stamp, progress.stamp[later], side="right")
    return bool(on[0] >= first and (on[at] >= progress.value[later]).all())


def _nodes(block: Block, partials: Sequence[str]) -> Carried:
    places = (block.extra[FIRST_STAMP], block.extra[FIRST_POS], block.stamp, block.pos, block.ident)
    columns = (block.table.column(name).combine_chunks() for name in partials)
    return Carried(places, tuple(columns))


def _summed(nodes: Carried, lo: Ints, count: Ints, calls: Sequence[AggregateCall]) -> Carried:
    """For each i nodes `lo[i]` to `lo[i] + count[i]` as one; no count is 0."""
    total = nodes.take(lo)
    for step in range(1, int(count.max(initial=0))):
        more = np.flatnonzero(count > step)
        merged = total.take(more).then(nodes.take(lo[more] + step), calls)
        place = np.arange(len(lo))
        place[more] = len(lo) + np.arange(len(more))
        total = Carried.concat([total, merged]).take(place)
    return total


def _changes(group: Ints, on: Axis) -> Bools:
    """Where a group or a pane begins, rows being sorted by both."""
    if not len(group):
        return np.empty(0, np.bool_)
    return np.append(True, (group[1:] != group[:-1]) | (on[1:] != on[:-1]))


def _ascend(group: Ints, on: Axis) -> bool:
    step = group[1:] - group[:-1]
    return bool(((step > 0) | ((step == 0) & (on[1:] >= on[:-1]))).all())


__all__ = ["PaneKernel", "takes_panes"]
