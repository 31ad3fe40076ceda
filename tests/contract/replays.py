"""Boxes with generated input, changes of it, and what a box did: what the laws of `reach` and `resume` run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests.unit.kernels import stamps

from clew.model.axis import axis_end, axis_of
from clew.model.groups import group_hash, sort_by
from clew.model.places import among
from clew.model.rows import NEVER, Rows, mix
from clew.model.steps import Steps
from clew.operators.band import within_end
from clew.operators.base import Emission, Kernel, State, positions
from clew.operators.progress import between
from clew.operators.replay import Change, History

Told = tuple[int, int, int, tuple[int, ...], str, int]  # stamp, pos, ident, origin, values, group
Row = dict[str, Any]


@dataclass(frozen=True)
class Clock:
    """How an input's progress follows from its rows: `lag` behind the largest value, and told from elsewhere."""

    column: str | None
    lag: float = 0
    told: tuple[tuple[int, float], ...] = ()
    finish: int | None = None

    def steps(self, rows: Rows) -> Steps:
        if self.column is None:
            return Steps.none()
        kind = rows.table.schema.field(self.column).type
        stamp, values = np.empty(0, np.int64), np.empty(0, np.int64)
        if _ordered(kind):
            values, valid = axis_of(rows.table.column(self.column))
            more = [np.array(a) for a in zip(*self.told, strict=True)] or [np.empty(0), np.empty(0)]
            stamp = np.concatenate([rows.stamp[valid], more[0].astype(np.int64)])
            values = np.concatenate([within_end(values[valid]) - self.lag, more[1]]).astype(values.dtype)
        if self.finish is not None:
            stamp, values = np.append(stamp, self.finish), np.append(values, _end(kind)).astype(values.dtype)
        order = np.argsort(stamp, kind="stable")
        return Steps.running(None, stamp[order], values[order])

    def until(self, stamp: int) -> Clock:
        finished = self.finish is not None and self.finish < stamp
        return replace(self, told=tuple(t for t in self.told if t[0] < stamp), finish=self.finish if finished else None)


@dataclass(frozen=True)
class Case:
    """A kernel over its whole input."""

    kernel: Kernel
    inputs: tuple[Rows, ...]
    clocks: tuple[Clock, ...]
    row: tuple[st.SearchStrategy[Row], ...]  # other rows that the inputs might have

    @property
    def steps(self) -> list[Steps]:
        return [clock.steps(rows) for clock, rows in zip(self.clocks, self.inputs, strict=True)]

    def run(self) -> Emission:
        return self.kernel.run(self.kernel.empty(), self.inputs, self.steps)

    def run_from(self, stamp: int, state: State, groups: frozenset[int] | None = None, stop: int = NEVER) -> Emission:
        """On from `state`, just before the step `stamp`, to just before `stop`; some groups alone, or all."""
        rows = [self.part(port, stamp, stop, groups) for port in range(len(self.inputs))]
        return self.kernel.run(state, rows, [between(s, stamp - 1, stop) for s in self.steps])

    def resumed(self, stamp: int, history: History, groups: frozenset[int] | None = None) -> State:
        """The state just before `stamp`, from the rows that are needed and no others; from all where none are named."""
        needs = self.kernel.needs(stamp, self.steps, history)
        since = (0,) * len(self.inputs) if needs is None else needs
        past = [self.part(port, low, stamp, groups) for port, low in enumerate(since)]
        return self.kernel.resume(stamp, past, self.steps, history)

    def part(self, port: int, low: int, stop: int, groups: frozenset[int] | None) -> Rows:
        rows = self.inputs[port]
        rows = rows.filter((rows.stamp >= low) & (rows.stamp < stop))
        if groups is None:
            return rows
        return rows.filter(np.isin(group_hash(rows.table, self.kernel.keys[port]), sorted(groups)))

    def until(self, stamp: int) -> Case:
        """The same, before the step `stamp`."""
        clocks = tuple(c.until(stamp) for c in self.clocks)
        return replace(self, inputs=tuple(r.filter(r.stamp < stamp) for r in self.inputs), clocks=clocks)

    def history(self, made: Emission) -> History:
        late = tuple(self._late(made, port) for port in range(len(self.inputs)))
        leading = tuple(clock.lag <= 0 for clock in self.clocks)
        return History(made.rows.stamp, made.origin, self.kernel.group_of(made.rows.table), late, leading, made.state)

    def last(self) -> int:
        return max([0, *(int(s.max(initial=0)) for r, t in zip(self.inputs, self.steps, strict=True)
                         for s in (r.stamp, t.stamp))])  # fmt: skip

    def groups(self) -> set[int]:
        return {g for r, k in zip(self.inputs, self.kernel.keys, strict=True) for g in group_hash(r.table, k).tolist()}

    def _late(self, made: Emission, port: int) -> Rows:
        parts = [r.rows for r in made.late if r.port == port]
        rows = Rows.concat([*parts, Rows.empty(self.inputs[port].table.schema)])
        return rows.take(np.argsort(rows.stamp, kind="stable"))


def told(kernel: Kernel, made: Emission) -> list[Told]:
    """Every emitted row, in order; NaN as text."""
    rows = made.rows
    values = [repr(v) for v in rows.table.to_pylist()]
    origins = zip(*(a.tolist() for a in made.origin.arrays()), strict=True)
    group = kernel.group_of(rows.table).tolist()
    return list(zip(rows.stamp.tolist(), rows.pos.tolist(), rows.ident.tolist(), origins, values, group, strict=True))


def refused(made: Emission) -> list[tuple[Any, ...]]:
    """Every row refused: its stamp, whether it was late, its input, name, values and the reason."""
    return sorted(
        (stamp, how, r.port, ident, repr(values), why)
        for how, parts in (("late", made.late), ("rejected", made.rejected))
        for r in parts
        for stamp, ident, values, why in zip(
            r.rows.stamp.tolist(), r.rows.ident.tolist(), r.rows.table.to_pylist(), r.reasons, strict=True
        )
    )


def rows_of(table: pa.Table, stamp: Sequence[int], seed: int = 0) -> Rows:
    """Rows at even positions, so that others can come between them."""
    at = np.array(stamp, np.int64)
    return Rows(table, at, 2 * positions(at), mix(np.arange(len(at)), seed + 100))


@st.composite
def inputs(draw: st.DrawFn, schema: pa.Schema, row: st.SearchStrategy[Row], seed: int, most: int = 18) -> Rows:
    at = draw(stamps(most))
    values = draw(st.lists(row, min_size=len(at), max_size=len(at)))
    if draw(st.booleans()) and "t" in schema.names:  # in order, as streams mostly are
        column = pa.array([v["t"] for v in values], schema.field("t").type)
        on, valid = axis_of(column) if _ordered(column.type) else (np.arange(len(at)), np.ones(len(at), np.bool_))
        values = [values[i] for i in np.argsort(np.where(valid, on, on.max(initial=0)), kind="stable")]
    return rows_of(pa.Table.from_pylist(values, schema), at, seed)


@st.composite
def clocks(draw: st.DrawFn, column: str | None, most: int, finish: int | None) -> Clock:
    lag = draw(st.sampled_from([0, 0, 0, -1, 2]))
    more = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(-4, most)), max_size=2))
    return Clock(column, lag, tuple(more) if draw(st.booleans()) else (), finish)


@st.composite
def changes(draw: st.DrawFn, case: Case, stop: int = 21) -> tuple[list[Change], Case]:
    """Rows deleted, replaced and inserted before `stop`, in one input or several; and the case with them."""
    made, after = [], []
    for port, rows in enumerate(case.inputs):
        change, now = draw(_changed(rows, case.row[port], port, stop))
        made.append(change)
        after.append(now)
    return made, replace(case, inputs=tuple(after))


@st.composite
def _changed(draw: st.DrawFn, rows: Rows, row: st.SearchStrategy[Row], port: int, stop: int) -> tuple[Change, Rows]:
    schema = rows.table.schema
    old = {(s, p): (v, i) for s, p, v, i in zip(
        rows.stamp.tolist(), rows.pos.tolist(), rows.table.to_pylist(), rows.ident.tolist(), strict=True)}  # fmt: skip
    new = dict(old)
    for edit in range(draw(st.integers(0, 2))):
        what = draw(st.sampled_from(["delete", "replace", "touch", "insert"]))
        place = draw(st.sampled_from(sorted(old))) if old else (draw(st.integers(0, stop - 1)), 0)
        if what == "insert" or not old:
            stamp, pos = place
            place = (draw(st.integers(0, stop - 1)), 0) if draw(st.booleans()) else (stamp, pos + 1)
            if place not in old:
                new[place] = draw(row), int(mix(np.array([edit]), 900 + port)[0])
        elif what == "delete":
            new.pop(place, None)
        else:
            value, ident = old[place]
            other = draw(row)
            new[place] = ({**value, "x": other["x"]} if what == "touch" else other), ident
    differ = [p for p in {**old, **new} if repr(old.get(p)) != repr(new.get(p))]
    gone = _as_rows({p: old[p] for p in differ if p in old}, schema)
    come = _as_rows({p: new[p] for p in differ if p in new}, schema)
    return Change(gone, come), _as_rows(new, schema)


def with_change(rows: Rows, change: Change) -> Rows:
    """The rows as the change leaves them."""
    stays = rows.filter(~among(rows, change.gone.stamp, change.gone.pos))
    both = Rows.concat([stays, change.come])
    return both.take(sort_by(both.stamp, both.pos))


def _as_rows(found: dict[tuple[int, int], tuple[Row, int]], schema: pa.Schema) -> Rows:
    places = sorted(found)
    table = pa.Table.from_pylist([found[p][0] for p in places], schema)
    return Rows(table, *(np.array(a, np.int64) for a in (
        [s for s, _ in places], [p for _, p in places], [found[p][1] for p in places])))  # fmt: skip


def _ordered(kind: pa.DataType) -> bool:
    return not pa.types.is_string(kind)


def _end(kind: pa.DataType) -> float:
    return axis_end(kind) if _ordered(kind) else axis_end(pa.int64())
