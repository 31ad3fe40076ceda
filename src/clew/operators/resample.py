"""Resample: one stream predicted at the places of another (ρ of Aurora, Appendix 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clew.errors import DuplicateName
from clew.expressions.aggregates import AggregateCall
from clew.model.axis import Axis, Number, axis_of, is_float_axis
from clew.model.groups import group_hash, sort_by
from clew.model.places import Places
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.operators.aggregation import aggregate, result_type
from clew.operators.band import (
    Band,
    admitted,
    check_pair,
    expanded,
    met_in_time,
    pair_codes,
    raised,
    shifted,
    within_end,
)
from clew.operators.base import NO_FLOOR, Emission, Kernel, Origin, Refused, State, positions
from clew.operators.lineage import Asked, Known, Links, Picked, Ranged, Span, covered, heads, within
from clew.operators.progress import after_step, cut, differing
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches

UNTIL, FLOOR = "_until", "_floor"
BEHIND = "too late: every row it could meet is gone, and no more can come"


@dataclass(frozen=True)
class _Side:
    """One input in place order: what was kept, then what has arrived; `until`: the last step in which a row is met.

    `floor`: of rows of the second, below which rows that had come before can be used no more.
    """

    rows: Rows
    on: Axis
    until: Ints
    floor: Ints


@dataclass(frozen=True)
class _Windows:
    """Per emitted row the range `lo[i]:hi[i]` of `members`, numbers of rows of the first input in place order."""

    members: Ints
    lo: Ints
    hi: Ints


class ResampleKernel(Kernel):
    """For each row of the second input, aggregates over the rows of the first within `within` of it.

    *Meaning.* The rows with `|first.on - second.on| <= within` and equal `by` columns (nulls are a group)
    that came up to the step in which the first input's progress passes `second.on + within`, in place
    order; that step, or the row's own if later, is its stamp. A row of the first can be used until the
    second input's progress passes `first.on + within`, and by the rows that wait then. Where there is
    none, aggregates are those of nothing: null, 0 for a count.

    *Schema*: the second input's columns, then one per call. *State*: `rows` of the first that can still be
    used (`_until`: by rows up to that stamp), `waiting` rows of the second. *Progress*: on both order
    columns. *Order in a step*: by `second.on + within`, then place in the second input. *Origin*: first: the
    second input's row; last: the last row used of the first (-1, -1 if none); tag: stamp of the first row
    used (-1 if none). Ident: the second input's row's. *Late*: rows with null or NaN in the order column;
    rows of either input that come when all they could meet is gone and no more can come. *Rejected*: rows of
    the second on which an aggregate failed; they are emitted all the same, with null.
    """

    def __init__(
        self,
        on: tuple[str, str],
        within: Number,
        by: Sequence[tuple[str, str]],
        calls: Sequence[AggregateCall],
        schemas: tuple[pa.Schema, pa.Schema],
    ) -> None:
        check_pair(schemas, on, by)
        self.on = on
        self.band = Band(-within, within)
        self.by = tuple(by)
        self.calls = tuple(calls)
        self.schemas = schemas
        self.schema = resample_schema(schemas, self.calls)
        self._floats = is_float_axis(schemas[1].field(on[1]).type)
        self.keys = (tuple(k for k, _ in by), tuple(k for _, k in by))
        self.progress_on = on
        self.grouped_by = self.keys[1]
        self.state_keys: Mapping[str, tuple[str, ...]] = {"rows": self.keys[0], "waiting": self.keys[1]}
        self.holding = ("rows", "waiting")

    def empty(self) -> State:
        used, waiting = (Rows.empty(schema).to_table() for schema in self.schemas)
        none = pa.array([], pa.int64())
        return {"rows": used.append_column(UNTIL, none), "waiting": waiting.append_column(FLOOR, none)}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        used, used_late = self._side(0, state["rows"], inputs[0], (progress[1], progress[0]))
        asking, asking_late = self._side(1, state["waiting"], inputs[1], (progress[1], progress[0]))
        of_asking, of_used = pair_codes((asking.rows.table, used.rows.table), [(b, a) for a, b in self.by])
        order, lo, hi = self.band.ranges(asking.on, of_asking, used.on, of_used)

        target = shifted(asking.on, self.band.high)
        stamp = np.maximum(asking.rows.stamp, asking.until)
        due = np.flatnonzero(asking.until != NEVER)
        due = due[sort_by(stamp[due], target[due], due)]
        windows = self._windows(asking, used, due, (order, lo[due], hi[due]), in_order=sort_by(of_used))
        emitted = asking.rows.take(due)
        columns, refused = self._aggregates(used, windows, emitted)
        pos = positions(stamp[due])
        rows = Rows(
            pa.Table.from_arrays([*emitted.table.columns, *columns], schema=self.schema), stamp[due], pos, emitted.ident
        )
        waiting = asking.until == NEVER
        needed = used.until == NEVER
        needed[order] |= _covered(lo[waiting], hi[waiting], len(order))
        state = {
            "rows": used.rows.filter(needed).to_table().append_column(UNTIL, pa.array(used.until[needed])),
            "waiting": asking.rows.filter(waiting).to_table().append_column(FLOOR, pa.array(asking.floor[waiting])),
        }
        tie = (pa.array(target[due]), pa.array(emitted.stamp), pa.array(emitted.pos))
        origin = _origin(emitted, used.rows, windows, asking.floor[due])
        return Emission(rows, tie, origin, state, used_late + asking_late, refused)

    # --- what explanations ask ---

    def asks(self) -> tuple[Asked | None, ...]:
        return tuple(Asked(by, on) for by, on in zip(self.keys, self.on, strict=True))

    def spans(self, port: int, origin: Origin) -> Span:
        """`tag` is the stamp of the first row used; where none was, no row lies between."""
        if port:
            return Span(origin.first, origin.first)
        return Span(Places(origin.tag, np.zeros_like(origin.tag)), origin.last)

    def ends(self, port: int) -> tuple[str, str]:
        return ("first_stamp", "first_stamp") if port else ("tag", "last_stamp")

    def links(self, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None) -> tuple[Links, ...]:
        used = (wanted or known)[0]
        owner, row = self.ranged(0, origin, known, wanted).pairs()
        return Links(owner, Places(used.stamp[row], used.pos[row])), Links.one_each(*origin.arrays()[:2])

    def covers(self, origin: Origin, known: Sequence[Known]) -> tuple[Places, ...]:
        """All rows of the first input between the first and the last used, of the asking row's group."""
        some = np.flatnonzero(origin.last_stamp >= 0)
        asks = heads(known[1], origin.first)
        return covered(self.spans(0, origin).take(some), known[1].group[asks[some]], known[0]), origin.first

    def ranged(
        self, port: int, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None
    ) -> Ranged:
        """Of the first input the rows of the group within reach; of the second the row itself."""
        asking = known[1]
        asks = heads(asking, origin.first)
        if port == 1:
            return Ranged(asks, np.arange(len(asks)), np.arange(1, len(asks) + 1))
        used = (wanted or known)[0]
        found = within(self.spans(0, origin), asking.group[asks], used)
        target = self._axis(asking.on[asks])

        def inside(owner: Ints, row: Ints) -> Bools:
            on, floor = self._axis(used.on[row]), origin.floor[owner]
            keep = (on >= shifted(target[owner], self.band.low)) & (on <= shifted(target[owner], self.band.high))
            keep &= (used.stamp[row] >= origin.first_stamp[owner]) | (floor == NO_FLOOR) | (on >= self._axis(floor))
            return keep

        hi = np.where(origin.last_stamp >= 0, found.hi, found.lo)  # where it is below, no row was used
        return Ranged(found.order, found.lo, hi, inside)

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:
        used = picked[0].ordered(inputs[0].stamp[picked[0].row], inputs[0].pos[picked[0].row])
        lo, hi = used.ranges(len(origin))
        table = inputs[0].table.take(pa.array(used.row)).combine_chunks()
        asking = inputs[1].table.take(pa.array(picked[1].row))
        columns = [aggregate(call, table, lo, hi).values for call in self.calls]
        return pa.Table.from_arrays([*asking.combine_chunks().columns, *columns], schema=self.schema)

    def _axis(self, bits: Ints) -> Axis:
        return bits.view(np.float64) if self._floats else bits

    # --- what revisions ask ---

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """Of a row of the second, the step in which it is emitted. Of one of the first, the steps in which rows of the
        second within reach of it may be. Where progress differs, the steps in which it does, and likewise those
        in which rows are emitted that came then."""
        del history
        found, within = Reaches(bool(self.by)), self.band.high
        for port, change in enumerate(changes):
            versions = [(change.gone, (before[1], before[0])), (change.come, (after[1], after[0]))]
            ons = [axis_of(rows.table.column(self.on[port])) for rows, _ in versions]
            groups = [group_hash(rows.table, self.keys[port]) for rows, _ in versions]
            same = change.equal(*(mix_pair(on.view(np.int64), g) for (on, _), g in zip(ons, groups, strict=True)))
            for (rows, steps), (on, stands), group, stays in zip(versions, ons, groups, same, strict=True):
                late = (self.band.right_behind, self.band.left_behind)[port](on, rows.stamp, steps)
                if port:
                    low = high = np.maximum(rows.stamp, self.band.left_until(on, steps[1]))
                else:
                    low = np.maximum(rows.stamp, steps[1].passes(within_end(on)))
                    ends = shifted(shifted(raised(on, within), within), within)
                    high = np.maximum(self.band.right_until(on, steps[0]), steps[1].passes(within_end(ends)))
                    high = np.maximum(high, rows.stamp)
                lives = stands & ~late
                found.add(low[lives], high[lives], group[lives], moves=(port == 1) & ~stays[lives])
        found.add(*differing(before[0], after[0]))
        low, high = differing(before[1], after[1])
        for steps_ in (before, after):
            last = after_step(steps_[1], high)
            asked = shifted(raised(last, within), within)
            high = np.where(high < NEVER, np.maximum(high, steps_[0].passes(within_end(asked))), NEVER)
        found.add(low, high)
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...] | None:
        """Of the second, from the first row that waited: it was emitted later, or waits now. Of the first, from where
        its progress came to values that those, or rows to come, can use; if it is not ahead of the rows, only
        the nearest checkpoint serves."""
        if not history.leading[0]:
            return None
        asked_later = history.origin.first_stamp[history.stamp >= stamp]
        waits = Rows.from_table(history.state["waiting"]).stamp
        second = int(np.concatenate([asked_later, waits]).min(initial=stamp))
        came = [cut(steps, stamp).end for steps in progress]
        first = self.band.first_right(came[1], progress[0], stamp)
        if second < stamp:
            waiting = None if came[0] is None else shifted(self.band.point(came[0]), -self.band.high)[0].item()
            first = min(first, self.band.first_right(waiting, progress[0], stamp))
        return first, second

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """The rows of the second that were not due, and the rows of the first that they or later ones can use."""
        if checkpoint is not None or not history.leading[0]:
            return super().resume(stamp, past, progress, history, checkpoint)
        told = [cut(steps, stamp) for steps in progress]
        on, stands = axis_of(past[1].table.column(self.on[1]))
        waiting = past[1].filter(stands & (self.band.left_until(on, told[0]) == NEVER))
        return self.run(self.empty(), [past[0], waiting], told).state

    def _side(
        self, port: int, kept: pa.Table, arrived: Rows, progress: tuple[Steps, Steps]
    ) -> tuple[_Side, tuple[Refused, ...]]:
        """In the band's terms the second input is the left, the first the right."""
        on, _ = axis_of(arrived.table.column(self.on[port]))
        behind = (self.band.right_behind, self.band.left_behind)[port](on, arrived.stamp, progress)
        arrived, late = admitted(arrived, self.on[port], port, behind, BEHIND)
        carried = (UNTIL, FLOOR)[port]
        fresh = self._floor(arrived, progress[0]) if port else np.full(len(arrived), NEVER)
        known = np.concatenate([np.asarray(kept.column(carried)), fresh])
        rows = Rows.concat([Rows.from_table(kept.drop_columns([carried])), arrived])
        order = sort_by(rows.stamp, rows.pos)  # state that was partitioned otherwise comes in another order
        if (np.diff(order) < 0).any():
            rows, known = rows.take(order), known[order]
        on, _ = axis_of(rows.table.column(self.on[port]))
        until = self.band.left_until(on, progress[1]) if port else self.band.right_until(on, progress[0])
        if port:
            return _Side(rows, on, until, known), late
        return _Side(rows, on, np.where(known == NEVER, until, known), np.full(len(rows), NO_FLOOR)), late

    def _windows(
        self, asking: _Side, used: _Side, due: Ints, ranges: tuple[Ints, Ints, Ints], in_order: Ints
    ) -> _Windows:
        order, lo, hi = ranges
        some = np.flatnonzero(hi > lo)

        def met(i: Ints, j: Ints) -> Bools:
            return met_in_time(asking.rows.stamp[i], asking.until[i], used.rows.stamp[j], used.until[j])

        # In a group whose values ascend with place, what could not be met stands at a range's ends.
        at_ends = met(due[some], order[lo[some]]) & met(due[some], order[hi[some] - 1])
        if np.array_equal(order, in_order) and at_ends.all():
            return _Windows(order, lo, hi)
        members, counts = [np.empty(0, np.int64)], np.zeros(len(due), np.int64)
        for rows, at in expanded(lo, hi):
            ok = met(due[rows], order[at])
            rows, found = rows[ok], order[at[ok]]
            members.append(found[sort_by(rows, found)])
            counts += np.bincount(rows, minlength=len(due))
        ends = np.cumsum(counts)
        return _Windows(np.concatenate(members), ends - counts, ends)

    def _floor(self, asking: Rows, asked: Steps) -> Ints:
        """Below it, rows of the first that had come before the row that asks could not be used any more."""
        none = -np.inf if self._floats else NO_FLOOR
        before = asked.before(asking.stamp, none)
        moved = shifted(before, self.band.low)
        if moved.dtype == np.float64:
            return np.where(before == none, NO_FLOOR, (moved + 0.0).view(np.int64))
        return np.where(before == none, NO_FLOOR, moved)

    def _aggregates(self, used: _Side, windows: _Windows, emitted: Rows) -> tuple[list[pa.Array], tuple[Refused, ...]]:
        table = used.rows.table.take(pa.array(windows.members)).combine_chunks()
        columns, refused = [], []
        for call in self.calls:
            result = aggregate(call, table, windows.lo, windows.hi)
            columns.append(result.values)
            if result.failed is not None and result.failed.any():
                rows = emitted.filter(result.failed)
                refused.append(Refused(rows, tuple(result.why(int(i)) for i in np.flatnonzero(result.failed)), port=1))
        return columns, tuple(refused)


def resample_schema(schemas: tuple[pa.Schema, pa.Schema], calls: Sequence[AggregateCall]) -> pa.Schema:
    """The columns a resample emits: the second input's, then one for each call."""
    fields = list(schemas[1])
    for call in calls:
        if call.out.lower() in {f.name.lower() for f in fields}:
            raise DuplicateName(
                f"the output of a resample has two columns named '{call.out}'",
                details=["columns: " + ", ".join(f.name for f in fields)],
            )
        fields.append(pa.field(call.out, result_type(call, schemas[0])))
    return pa.schema(fields)


def _covered(lo: Ints, hi: Ints, count: int) -> Bools:
    """Which of `count` positions lie in one of the ranges."""
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, lo, 1)
    np.add.at(depth, hi, -1)
    return np.cumsum(depth)[:count] > 0


def _origin(emitted: Rows, used: Rows, windows: _Windows, floor: Ints) -> Origin:
    some = windows.hi > windows.lo
    first, last = np.full(len(some), -1), np.full(len(some), -1)
    first[some] = windows.members[windows.lo[some]]
    last[some] = windows.members[windows.hi[some] - 1]
    stamp, pos = np.append(used.stamp, -1), np.append(used.pos, -1)
    return Origin(emitted.stamp, emitted.pos, stamp[last], pos[last], stamp[first], floor)


def reference(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]],
    progress: Sequence[Sequence[tuple[int, Any]]], on: tuple[str, str], within: Any, by: Sequence[tuple[str, str]] = (),
) -> list[tuple[int, Mapping[str, Any], list[Mapping[str, Any]]]]:  # fmt: skip
    """What a resample emits, as (stamp, row of the second, rows of the first its aggregates are over)."""

    def passed(port: int, by: Any, target: Any, row: Mapping[str, Any]) -> bool:
        return any(at < row["_stamp"] and value + by > target for at, value in progress[port])

    a, b = on
    w = within
    used = [x for x in first if _real(x[a]) and not (passed(0, 0, x[a] + w + w, x) and passed(1, -w, x[a], x))]
    asking = [y for y in second if _real(y[b]) and not (passed(1, -w, y[b] + w, y) and passed(0, 0, y[b] + w, y))]
    out = []
    for y in asking:
        for closed in [at for at, value in progress[0] if value > y[b] + w][:1]:
            stamp = max(y["_stamp"], closed)
            near = [
                x for x in used
                if y[b] - w <= x[a] <= y[b] + w and all(_same(x[k], y[m]) for k, m in by) and x["_stamp"] <= stamp
                and (y["_stamp"] <= x["_stamp"] or not passed(1, -w, x[a], y))
            ]  # fmt: skip
            out.append((stamp, y, near))
    return sorted(out, key=lambda item: (item[0], item[1][b] + w, item[1]["_stamp"], item[1]["_pos"]))


def _real(value: Any) -> bool:
    return value is not None and value == value


def _same(x: Any, y: Any) -> bool:
    return x is y or x == y or (x is not None and y is not None and x != x and y != y)
