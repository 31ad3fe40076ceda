"""Landmark and latch: windows that hold all rows of a group so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clew.errors import BoxFailed, WindowError
from clew.expressions.aggregates import AggregateCall
from clew.model.axis import Axis, Number, axis_end, axis_of, from_axis, is_float_axis, value_on_axis
from clew.model.groups import group_codes, group_hash, sort_by
from clew.model.places import place_codes
from clew.model.ranges import spread
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.model.types import type_name
from clew.network.boxes import Landmark, Latch
from clew.operators.aggregation import Aggregated, aggregate, final, is_bounded, partial
from clew.operators.base import Emission, Origin, State
from clew.operators.lineage import Known, Picked
from clew.operators.progress import differing
from clew.operators.replay import ByGroup, Change, History, Reach, Reaches
from clew.operators.windows.base import GROUPS, ON, Block, Closed, Groups, Late, WindowKernel, on_axis
from clew.operators.windows.grid import Grid
from clew.operators.windows.scan import Carried, running
from clew.operators.windows.spans import extent, positive_span

MOST_WINDOWS = 10_000_000  # of landmarks in one call
BUCKET = "_window_bucket"
SEEN, COVERED = "_window_seen", "_window_covered"
_CARRIED = ("_window_first_stamp", "_window_first_pos", "_window_last_stamp", "_window_last_pos", "_window_last_ident")


_ANY_ORDER = ("count", "sum", "avg", "min", "max", "stddev", "variance", "median")


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Some buckets of some groups, group after group: their rows in the block, and when they close."""

    group: Ints
    number: Ints
    lo: Ints
    hi: Ints
    stamp: Ints

    def take(self, index: Ints | Bools) -> _Buckets:
        return _Buckets(self.group[index], self.number[index], self.lo[index], self.hi[index], self.stamp[index])


class PrefixKernel(WindowKernel):
    """Rows fall into buckets; a window is all buckets of a group up to one.

    Landmark: bucket k >= 1 holds `L + (k-1)·s <= on < L + k·s`; when progress is at least `L + k·s`, each
    group that has a row emits all it has up to bucket k, also if bucket k is empty. A row that arrives
    after its bucket has closed enters the next one open. Rows before L are in no window. At `finish()` a
    group emits once more if it has rows that no window of it holds yet, with k of its largest row.
    Latch: bucket k holds `(k-1)·s <= on < k·s`, and only a bucket that holds a row emits; a row that
    arrives after its bucket has closed is late. Without `on`, buckets are s rows of the group (landmark:
    after skipping `start` rows), and a window's trigger is its last row; `finish()` emits nothing.

    Rows are ordered by bucket, then (on, place). Origin: the first and the last place among them, k as the
    tag. Named by group, last row and k. State: partials of what has been emitted, and the rows of open buckets.
    The rows already emitted are kept only for calls whose partials would hold them anyway (median,
    collect, user functions); for count distinct, one row for each distinct value.
    No origin holds what is summed up, so only a checkpoint serves to resume.
    """

    def __init__(
        self, window: Landmark | Latch, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
    ) -> None:
        self.landmark = isinstance(window, Landmark)
        start = window.start if isinstance(window, Landmark) else None
        self.floats = False
        if window.on is None:
            every, first = window.every, 0 if start is None else start
            if not isinstance(every, int) or every < 1:
                raise WindowError(f"a window every={every!r} rows: it must be a whole number of at least 1")
            if not isinstance(first, int) or first < 0:
                raise WindowError(f"a landmark at row {first!r}: it must be a whole number of at least 0")
            self.grid = Grid(every, first, False)
        else:
            kind = schema.field(window.on).type
            self.kind, self.floats, self.end = kind, is_float_axis(kind), axis_end(kind)
            every_ = positive_span(window.every, kind, "every")
            self.grid = Grid(every_, _start_of(start, kind) if self.landmark else 0, self.floats)
        super().__init__(by, calls, schema, window.on)
        self.bounded = tuple(c for c in calls if is_bounded(c))
        self.unbounded = tuple(c for c in calls if not is_bounded(c))
        in_order = any(c.function not in _ANY_ORDER for c in calls)
        self.remakes = not (self.landmark and window.on is not None and in_order)  # a row may enter a later bucket
        self.row_columns = ((ON, pa.float64() if self.floats else pa.int64()), (BUCKET, pa.int64()))
        none = self._partials(schema.empty_table(), np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.nothing = Carried(tuple(np.full(1, -1, np.int64) for _ in _CARRIED), none)
        kept = [(f"_window_partial_{i}", p.type) for i, p in enumerate(none)]
        self.group_columns = (*((n, pa.int64()) for n in (SEEN, COVERED, *_CARRIED)), *kept)

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        steps = progress[0]
        late = Late(inputs[0])
        rows, on, bucket = self._bucketed(inputs[0], steps, late)
        block = self.layout(state, rows, {ON: on, BUCKET: bucket})
        seen, covered = (block.groups.carry(state[GROUPS].column(n), 0) for n in (SEEN, COVERED))
        carried = self._carried(block.groups, state[GROUPS])
        total = seen + np.diff(block.bounds) - block.kept
        begin = block.bounds[:-1]  # where the rows of windows begin
        if self.on is None:
            self._count_off(block, seen)
            begin = begin + np.clip(np.minimum(total, int(self.grid.offset)) - seen, 0, None)
        else:
            block = _in_order(block)
        buckets = self._closing(block, begin + covered, total, steps)

        # Per group: what the state holds, then the buckets that close; `hi` is where the rows so far end.
        had = np.flatnonzero(carried.numbers[0] >= 0)
        own = Carried.concat([carried.take(had), self._summed(block, buckets)])
        group = np.concatenate([had, buckets.group])
        order = np.argsort(group, kind="stable")
        group, hi = group[order], np.concatenate([(begin + covered)[had], buckets.hi])[order]
        first = np.concatenate([np.full(len(had), -NEVER), buckets.number])[order]
        sums = running(own.take(order), group, self.bounded)

        node, number = self._due(group, first, steps)
        stamp = steps.reaches(self.grid.edge(number))
        if self.on is None:
            stamp = buckets.stamp  # the nodes due are the buckets, in their order
        *places, last_ident = (n[node] for n in sums.numbers)
        named = mix_pair(last_ident, number)
        closed = Closed(
            group[node],
            stamp,
            mix_pair(block.groups.hash[group[node]], named),
            Origin(places[0], places[1], places[2], places[3], number),
            None if self.on is None else self.grid.edge(number),
        )
        results = self._results(block, sums, begin[group], hi, node)
        covered[buckets.group] = buckets.hi - begin[buckets.group]
        ends = np.flatnonzero(np.append(group[1:] != group[:-1], True)[: len(group)])
        place = np.arange(len(carried))
        place[group[ends]] = len(carried) + np.arange(len(ends))
        carried = Carried.concat([carried, sums.take(ends)]).take(place)
        after = self._after(block, begin, covered, total, carried)
        return self.emission(block.groups, closed, results, after, late.refused())

    # --- what explanations ask ---

    def inside(self, origin: Origin, head: Ints, on: Ints) -> Bools | None:
        """A row that came before the window closed is in it if its own bucket is, whichever it entered."""
        del head
        if self.on is None:
            return None
        values: Axis = on.view(np.float64) if self.floats else on
        bucket = self.grid.index(values) + 1
        inside = self.grid.holds(values) & (bucket <= origin.tag)
        return inside & (bucket >= 1) if self.landmark else inside

    def in_order(self, rows: Rows, picked: Picked) -> Picked:
        if self.on is None:
            return super().in_order(rows, picked)
        on, _ = axis_of(rows.table.column(self.on))
        on, stamp, pos = (key[picked.row] for key in (on, rows.stamp, rows.pos))
        return picked.ordered(self.grid.index(on), on, stamp, pos)

    def holds(self, state: State, port: int, known: Known) -> Bools:
        """All windows to come hold all rows so far."""
        del state, port
        if not self.landmark or self.on is None:
            return np.ones(len(known), np.bool_)
        values: Axis = known.on.view(np.float64) if self.floats else known.on
        return self.grid.index(values) >= 0

    # --- what revisions ask ---

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """All later windows of the group, from the one on whose bucket the changed row enters; of all groups from
        where progress no longer passes the ends of buckets in the same steps."""
        found = Reaches(bool(self.by))
        change = changes[0]
        if self.on is None:
            self._reach_by_count(change, history, found)
            return found.done()
        first, _ = differing(before[0], after[0], self._edges_seen)
        found.add(first, NEVER)
        entered = []
        for rows, steps in ((change.gone, before[0]), (change.come, after[0])):
            taken, on, bucket = self._bucketed(rows, steps, Late(rows))
            low = np.maximum(steps.reaches(self.grid.edge(bucket)), taken.stamp)
            entered.append((taken, low, mix_pair(on.view(np.int64), group_hash(taken.table, self.by))))
        same = Change(entered[0][0], entered[1][0]).equal(entered[0][2], entered[1][2])
        for (taken, low, _), stays in zip(entered, same, strict=True):
            found.add(low, NEVER, group_hash(taken.table, self.by), moves=~stays)
        return found.done()

    def _reach_by_count(self, change: Change, history: History, found: Reaches) -> None:
        """A row replaced in place differs from the next window on; one that goes or comes may bring it forward."""
        hashes = [group_hash(rows.table, self.by) for rows in (change.gone, change.come)]
        index, origin = ByGroup(history.group), history.origin
        for rows, group, stays in zip((change.gone, change.come), hashes, change.equal(*hashes), strict=True):
            found.add(rows.stamp[~stays], NEVER, group[~stays])
            for i in np.flatnonzero(stays).tolist():
                mine = index.of(int(group[i]))
                last, place = place_codes(
                    (origin.last_stamp[mine], origin.last_pos[mine]), (rows.stamp[i : i + 1], rows.pos[i : i + 1])
                )
                at = int(np.searchsorted(last, place[0], side="left"))
                found.add(int(np.append(history.stamp[mine], NEVER)[at]), NEVER, group[i], moves=False)

    def _edges_seen(self, values: Axis) -> Ints:
        """How many ends of buckets progress has passed; the end of the axis is behind all."""
        return np.where(values == self.end, NEVER, self.grid.index(values))

    # --- rows into buckets ---

    def _bucketed(self, rows: Rows, steps: Steps, late: Late) -> tuple[Rows, Axis, Ints]:
        """The rows that belong somewhere, where they stand, and the buckets they enter."""
        if self.on is None:
            none = np.zeros(len(rows), np.int64)
            return rows, none, none
        on, valid = on_axis(rows.table, self.on, late)
        inside = valid & self.grid.holds(on)
        late.add(valid & ~inside, f"'{self.on}' is too far from zero for windows of this size")
        bucket = self.grid.index(on if inside.all() else np.where(inside, on, on.dtype.type(0))) + 1
        before = steps.before(rows.stamp, -np.inf if self.floats else -NEVER)
        if self.landmark:
            taken = inside & (bucket >= 1)
            bucket = np.maximum(bucket, self.grid.index(before) + 1)
        else:
            behind = inside & (self.grid.edge(bucket) <= before)
            late.add(behind, f"the window that its '{self.on}' falls into has closed")
            taken = inside & ~behind
        return rows.filter(taken), on[taken], bucket[taken]

    def _count_off(self, block: Block, seen: Ints) -> None:
        """Put the new rows of each group into buckets by their ordinals."""
        new = block.source >= 0
        ordinal = np.arange(len(new)) + (seen - block.kept - block.bounds[:-1])[block.group()]
        block.extra[BUCKET][new] = self.grid.index(ordinal[new]) + 1

    def _closing(self, block: Block, start: Ints, total: Ints, steps: Steps) -> _Buckets:
        """The buckets that close in this call; their rows begin at `start` in each group."""
        group, bucket = block.group(), block.extra[BUCKET]
        free = np.flatnonzero(np.arange(len(group)) >= start[group])
        if not len(free):
            return _Buckets(*(np.empty(0, np.int64) for _ in range(5)))
        g, b = group[free], bucket[free]
        change = np.flatnonzero((g[1:] != g[:-1]) | (b[1:] != b[:-1]))
        lo, hi = free[np.append(0, change + 1)], free[np.append(change, len(free) - 1)] + 1
        g, b = group[lo], bucket[lo]
        edge = self.grid.edge(b)
        stamp = np.where(edge <= total[g], block.stamp[hi - 1], NEVER) if self.on is None else steps.reaches(edge)
        return _Buckets(g, b, lo, hi, stamp).take((stamp >= 0) & (stamp < NEVER))

    # --- windows ---

    def _due(self, group: Ints, first: Ints, steps: Steps) -> tuple[Ints, Ints]:
        """Which nodes are emitted, each with the number of its window; a landmark's node more than once."""
        if not self.landmark or self.on is None:
            node = np.flatnonzero(first > -NEVER)
            return node, first[node]
        finished = steps.end == self.end and steps.start != self.end
        reached = [steps.start, *steps.value.tolist()][-2 if finished else -1] if len(steps.value) else steps.start
        opened, stop = (self._reached(p) for p in (steps.start, reached))
        last = np.append(group[1:] != group[:-1], True)[: len(group)]
        until = np.where(last, stop, np.minimum(np.append(first[1:], 0)[: len(group)] - 1, stop))
        begin = np.maximum(first, opened + 1)
        counts = np.maximum(until - begin + 1, 0)
        if finished:
            counts[last & (first > stop)] = 1
        if int(counts.sum()) > MOST_WINDOWS:
            assert reached is not None
            came = "" if steps.start is None else f" from {from_axis(steps.start, self.kind)}"
            raise BoxFailed(
                f"would emit {int(counts.sum()):,} windows in one call: "
                f"progress of '{self.on}' comes{came} to {from_axis(reached, self.kind)}",
                hint="a larger slide makes fewer; is one value far ahead, or a gap in the data?",
            )
        number, node = spread(begin, counts)
        return node, number

    def _reached(self, progress: Number | None) -> int:
        index = self.grid.index_of(progress)
        return 0 if index is None else max(index, 0)

    def _results(self, block: Block, sums: Carried, lo: Ints, hi: Ints, node: Ints) -> list[Aggregated]:
        used, again = np.unique(node, return_inverse=True)
        partials = dict(zip((c.out for c in self.bounded), sums.partials, strict=True))
        results = []
        for call in self.calls:
            if call.out in partials:
                found = final(call, partials[call.out].take(pa.array(used)))
            else:
                found = aggregate(call, block.table, lo[used], hi[used])
            results.append(found if len(used) == len(node) else _repeated(found, again))
        return results

    # --- state ---

    def _partials(self, table: pa.Table, lo: Ints, hi: Ints) -> tuple[pa.Array, ...]:
        return tuple(partial(call, table, lo, hi) for call in self.bounded)

    def _summed(self, block: Block, buckets: _Buckets) -> Carried:
        first, last = extent(block, buckets.lo, buckets.hi)
        partials = self._partials(block.table, buckets.lo, buckets.hi)
        return Carried((*block.places(first, last), block.ident[last]), partials)

    def _carried(self, groups: Groups, old: pa.Table) -> Carried:
        numbers = (groups.carry(old.column(n), -1) for n in _CARRIED)
        index = pa.array(np.where(groups.was >= 0, groups.was, len(old)))
        columns = (old.column(n).chunks for n, _ in self.group_columns[2 + len(_CARRIED) :])
        both = (pa.concat_arrays([*c, none]) for c, none in zip(columns, self.nothing.partials, strict=True))
        return Carried(tuple(numbers), tuple(c.take(index) for c in both))

    def _after(self, block: Block, begin: Ints, covered: Ints, total: Ints, carried: Carried) -> State:
        group = block.group()
        ordinal = np.arange(len(group)) - begin[group]
        kept = ordinal >= covered[group]
        past = self._past(block, np.flatnonzero((ordinal >= 0) & ~kept), group)
        kept[past] = True
        numbers = dict(zip(_CARRIED, carried.numbers, strict=True))
        numbers |= {SEEN: total, COVERED: np.bincount(group[past], minlength=len(begin))}
        arrays = [pa.array(numbers[n]) for n, _ in self.group_columns[: len(numbers)]] + list(carried.partials)
        columns = {n: a for (n, _), a in zip(self.group_columns, arrays, strict=True)}
        return self.keep(block, kept, columns=columns)

    def _past(self, block: Block, rows: Ints, group: Ints) -> Ints:
        """Those of the emitted rows that later windows need."""
        if not all(call.function == "count" for call in self.unbounded):
            return rows
        needed = [np.empty(0, np.int64)]
        for call in self.unbounded if len(rows) else ():
            values = block.table.select(list(call.args)).take(pa.array(rows)).append_column(ON, pa.array(group[rows]))
            needed.append(group_codes(values, values.column_names)[1])
        return rows[np.unique(np.concatenate(needed))]


def _start_of(start: object, kind: pa.DataType) -> Number:
    try:
        return value_on_axis(start, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise WindowError(f"a landmark at {start!r}: not a value of type {type_name(kind).upper()}") from error


def _in_order(block: Block) -> Block:
    """The block with each group's rows by bucket, then (on, place)."""
    group, bucket, on = block.group(), block.extra[BUCKET], block.extra[ON]
    ascends = (bucket[1:] > bucket[:-1]) | ((bucket[1:] == bucket[:-1]) & (on[1:] >= on[:-1]))
    if (ascends | (group[1:] != group[:-1])).all():
        return block
    return block.take(sort_by(group, bucket, on, block.stamp, block.pos))


def _repeated(found: Aggregated, index: Ints) -> Aggregated:
    if found.failed is None:
        return Aggregated(found.values.take(pa.array(index)))
    failed = found.failed[index]
    reasons = {i: found.why(int(index[i])) for i in np.flatnonzero(failed).tolist()}
    return Aggregated(found.values.take(pa.array(index)), failed, found.reason, reasons)
