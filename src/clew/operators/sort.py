"""B-sort: a bounded-pass sort (ρ of Glavic et al., "Efficient Stream Provenance", §3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappushpop
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.model.axis import Axis, Number, axis_end, axis_of, is_float_axis, is_orderable
from clew.model.groups import codes_of
from clew.model.places import among, place_codes
from clew.model.rows import NEVER, Bools, Ints, Rows
from clew.model.steps import Steps
from clew.operators.base import Emission, Kernel, Origin, Refused, State, positions
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches


class SortKernel(Kernel):
    """Emits its input approximately sorted on column `on`.

    *Meaning.* A buffer holds `slack` rows besides the newest; each arrival beyond that emits the
    smallest, ties by place. When progress on `on` is at the end of the axis (`finish()`), all that is
    left comes out in order, at that step's stamp; rows that come afterwards leave in their own step.

    *Schema*: the input's. *State*: `buffer`, at most `slack` rows. *Progress*: on `on`; only its end
    counts. For a column without an axis (a string) the end is told by the value `INFINITE`.
    *Stamp*: the arrival that pushed the row out. *Origin*: the row itself, `tag`: where it stands on the
    axis of `on` (0 if it has none); ident: the row's.
    *Late*: rows with null or NaN in `on`.
    """

    def __init__(self, on: str, slack: int, schema: pa.Schema) -> None:
        self.on = on
        self.slack = slack
        self.schema = schema
        self.keys = ((),)
        self.progress_on = (on,)
        self.state_keys: Mapping[str, tuple[str, ...]] = {"buffer": ()}
        self.holding = ("buffer",)
        self._type = schema.field(on).type

    def empty(self) -> State:
        return {"buffer": Rows.empty(self.schema).to_table()}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        arrived = inputs[0]
        stands = _stands(arrived.table.column(self.on))
        rows = Rows.concat([Rows.from_table(state["buffer"]), arrived.filter(stands)])
        out, stamp, kept = self._order(rows, int(progress[0].reaches(np.array([axis_end(self._type)]))[0]))
        emitted = rows.take(out)
        pos = positions(stamp)
        reason = f"null or NaN in the ordering column '{self.on}'"
        late = () if stands.all() else (Refused(arrived.filter(~stands), (reason,) * int((~stands).sum())),)
        return Emission(
            rows=Rows(emitted.table, stamp, pos, emitted.ident),
            tie=(pa.array(pos),),
            origin=Origin.of_rows(emitted, self._values(emitted).view(np.int64)),
            state={"buffer": rows.take(kept).to_table()},
            late=late,
        )

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """From a row's arrival until the buffers with and without it are the same again.

        A row that goes, until the step in which it left; one that comes, until at the latest a row that sorts
        behind it left. Of a row that is replaced and sorts as before, the step in which it left alone.
        """
        found = Reaches(grouped=False)
        was, end = (int(steps[0].reaches(np.array([axis_end(self._type)]))[0]) for steps in (before, after))
        if was != end:
            found.add(min(was, end), NEVER)
        standing = (r.filter(_stands(r.table.column(self.on))) for r in (changes[0].gone, changes[0].come))
        change = Change(*standing)
        left = _Left(history, (change.gone, change.come), is_float_axis(self._type))
        columns = [r.table.column(self.on) for r in (change.gone, change.come)]
        codes = codes_of(pa.chunked_array([chunk for c in columns for chunk in c.chunks], columns[0].type))
        same, instead = change.equal(codes[: len(change.gone)], codes[len(change.gone) :])
        found.add(left.gone[same], left.gone[same])
        events = [(int(change.gone.stamp[i]), 0, i) for i in np.flatnonzero(~same)]
        events += [(int(change.come.stamp[i]), 1, i) for i in np.flatnonzero(~instead)]
        values = self._values(change.come)
        high = -1  # up to where the buffers may differ, so far
        for stamp, comes, i in sorted(events):
            high = max(high, stamp)
            if not comes:
                last = int(left.gone[i])
            else:
                last = left.next_behind(values[i], left.come[i], high) if is_orderable(self._type) else NEVER
            high = max(high, min(last, end) if stamp <= end else stamp)
            found.add(stamp, high)
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...]:
        """From the oldest row that had come and not left: it left later, or is in the buffer now."""
        del progress
        left_later = history.origin.first_stamp[history.stamp >= stamp]
        return (int(np.concatenate([left_later, Rows.from_table(history.state["buffer"]).stamp]).min(initial=stamp)),)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """The rows that had come, less those whose origins say that they had left."""
        if checkpoint is not None:
            return super().resume(stamp, past, progress, history, checkpoint)
        rows = past[0].filter(_stands(past[0].table.column(self.on)))
        left = history.stamp < stamp
        held = ~among(rows, history.origin.first_stamp[left], history.origin.first_pos[left])
        return {"buffer": rows.filter(held).to_table()}

    def _values(self, rows: Rows) -> Axis:
        """Where rows stand on the axis; 0 if there is none."""
        if is_orderable(self._type):
            return axis_of(rows.table.column(self.on))[0]
        return np.zeros(len(rows), np.int64)

    def _order(self, rows: Rows, end: int) -> tuple[Ints, Ints, Ints]:
        """Which rows leave, at which stamps, and which stay, if progress is at its end from `end` on."""
        column = rows.table.column(self.on)
        values = axis_of(column)[0] if is_orderable(self._type) else codes_of(column)
        cut = int(np.searchsorted(rows.stamp, end, side="right"))
        out, rest = bsort(values[:cut], self.slack)
        stamp = rows.stamp[self.slack : self.slack + len(out)]
        if end == NEVER:
            return out, stamp, np.sort(rest)
        parts = [out, rest]
        starts = np.flatnonzero(np.diff(rows.stamp[cut:], prepend=end)) + cut
        for start, stop in zip(starts, np.append(starts[1:], len(rows)), strict=False):
            parts += [start + part for part in bsort(values[start:stop], self.slack)]
        stamps = np.concatenate([stamp, np.full(len(rest), end), rows.stamp[cut:]])
        return np.concatenate(parts), stamps, rest[:0]


class _Left:
    """Which rows a sort emitted and when, beside rows that go and rows that come (numbered by place)."""

    def __init__(self, history: History, changed: tuple[Rows, Rows], floats: bool) -> None:
        origin = history.origin
        places = [(origin.first_stamp, origin.first_pos), *((r.stamp, r.pos) for r in changed)]
        self._place, gone, self.come = place_codes(*places)
        self._stamp = history.stamp
        self._value: Axis = origin.tag.view(np.float64) if floats else origin.tag
        order = np.argsort(self._place)
        known = np.append(self._place[order], NEVER)
        at = np.searchsorted(known, gone)
        self.gone: Ints = np.where(known[at] == gone, np.append(self._stamp[order], NEVER)[at], NEVER)

    def next_behind(self, value: Number, place: int, stamp: int) -> int:
        """When, later than `stamp`, a row first left that sorts behind this one; NEVER if none has."""
        start = int(np.searchsorted(self._stamp, stamp, side="right"))
        values, places = self._value[start:], self._place[start:]
        found = np.flatnonzero((values > value) | ((values == value) & (places > place)))
        return int(self._stamp[start + found[0]]) if len(found) else NEVER


def bsort(values: Axis, slack: int) -> tuple[Ints, Ints]:
    """The rows a b-sort emits while `values` arrive, and those left in its buffer, smallest first.

    >>> [part.tolist() for part in bsort(np.array([3, 1, 2, 0]), 1)]
    [[1, 2, 3], [0]]
    """
    order = np.argsort(values, kind="stable")
    emitted = max(0, len(values) - slack)
    # If every row has arrived by the time sorting it fully would need it, that is what a b-sort does.
    if (order[:emitted] <= slack + np.arange(emitted)).all():
        return order[:emitted], order[emitted:]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    heap = rank[:slack].tolist()
    heapify(heap)
    out = [heappushpop(heap, r) for r in rank[slack:].tolist()]
    return order[np.array(out, np.int64)], order[np.array(sorted(heap), np.int64)]


def _stands(column: pa.ChunkedArray) -> Bools:
    if pa.types.is_floating(column.type):
        return axis_of(column)[1]
    return np.asarray(pc.is_valid(column))


def reference(
    rows: Sequence[Mapping[str, Any]], on: str, slack: int, end: int | None = None
) -> list[tuple[int, Mapping[str, Any]]]:
    """What a b-sort emits, as (stamp, row), from rows in place order; `end`: the stamp of `finish()`."""
    out: list[tuple[int, Mapping[str, Any]]] = []
    buffer: list[Mapping[str, Any]] = []

    def emit(stamp: int, size: int) -> None:
        while len(buffer) > size:
            smallest = min(buffer, key=lambda row: row[on])  # the first of equals, so ties go by place
            buffer.remove(smallest)
            out.append((stamp, smallest))

    for step in sorted({row["_stamp"] for row in rows} | ({end} if end is not None else set())):
        for row in rows:
            if row["_stamp"] == step and row[on] is not None and row[on] == row[on]:
                buffer.append(row)
                emit(step, slack)
        if end is not None and step >= end:
            emit(step, 0)
    return out
