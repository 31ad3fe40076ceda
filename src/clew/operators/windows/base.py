"""What all window kernels share: rows laid out group after group, late rows, and emission in the one order.

State of every window kernel: table `groups` (the grouping columns and a few numbers each) and table
`rows`: the rows that windows can still need, group after group in the order of `groups`. Splitting
the state by group and joining it again keeps that layout, so a call never encodes the rows it has
kept: it counts them off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clew.expressions.aggregates import AggregateCall, users_columns
from clew.model.axis import Axis, axis_of
from clew.model.groups import group_codes, group_hash, normal, sort_by
from clew.model.places import Places
from clew.model.rows import HIDDEN, IDENT, POS, STAMP, Bools, Ints, Rows
from clew.operators.aggregation import Aggregated, aggregate, result_type
from clew.operators.base import Emission, Kernel, Origin, Refused, State, positions
from clew.operators.lineage import Asked, Known, Links, Picked, Ranged, covered, heads, within
from clew.operators.replay import History

Numbers = NDArray[Any]
GROUPS, ROWS = "groups", "rows"
HASH, KEPT = "_window_hash", "_window_kept"
ON = "_window_on"


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that a call sees, ascending: their grouping columns, hashes, and rows in the old state (or -1)."""

    table: pa.Table
    hash: Ints
    was: Ints

    def __len__(self) -> int:
        return len(self.hash)

    def carry(self, column: pa.ChunkedArray, fill: int) -> Ints:
        """A whole-number column of the old state, group by group; `fill` for a group that is new."""
        known = self.was >= 0
        out = np.full(len(self), fill, np.int64)
        out[known] = np.asarray(column)[self.was[known]]
        return out


@dataclass(frozen=True, eq=False)
class Block:
    """Kept and new rows, group after group: those of group g are `bounds[g]` to `bounds[g + 1]`.

    Within a group the kept rows come first, in the order they were kept in, then the new ones by place.
    `source` is the row's index among the new rows of the call, -1 for a kept row.
    """

    groups: Groups
    bounds: Ints
    kept: Ints  # kept rows of each group
    table: pa.Table
    stamp: Ints
    pos: Ints
    ident: Ints
    source: Ints
    extra: Mapping[str, Numbers]

    def group(self) -> Ints:
        """The group of each row."""
        return np.repeat(np.arange(len(self.groups)), np.diff(self.bounds))

    def places(self, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Stamp and pos of first rows and of last rows, as an origin holds them."""
        return self.stamp[first], self.pos[first], self.stamp[last], self.pos[last]

    def take(self, index: Ints) -> Block:
        """The same groups with their rows in another order, or some of them twice; only for reading."""
        return Block(
            self.groups, self.bounds, self.kept, self.table.take(pa.array(index)), self.stamp[index], self.pos[index],
            self.ident[index], self.source[index], {n: a[index] for n, a in self.extra.items()},
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Closed:
    """Windows to emit, group after group and by end within each; `lo` to `hi` are their rows in the block."""

    group: Ints
    stamp: Ints
    ident: Ints
    origin: Origin
    end: Axis | None = None


@dataclass(frozen=True, eq=False)
class Kept:
    """Rows in a state, the hashes of their groups, and their places."""

    table: pa.Table
    group: Ints
    stamp: Ints
    pos: Ints


@dataclass(eq=False)
class Late:
    """Collects the rows of a call that no window takes, each with its reason."""

    rows: Rows
    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, mask: Bools, reason: str) -> None:
        for i in np.flatnonzero(mask).tolist():
            self.reasons.setdefault(i, reason)

    def refused(self) -> tuple[Refused, ...]:
        if not self.reasons:
            return ()
        index = sorted(self.reasons)
        return (Refused(self.rows.take(np.array(index)), tuple(self.reasons[i] for i in index)),)


class WindowKernel(Kernel):
    """A kernel with one input, grouped `by` columns, that calls aggregates over windows."""

    #: further columns of the two tables of the state, with their types
    holding = (ROWS,)
    group_columns: tuple[tuple[str, pa.DataType], ...] = ()
    row_columns: tuple[tuple[str, pa.DataType], ...] = ()

    def __init__(
        self, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema, on: str | None = None
    ) -> None:
        self.by, self.calls, self.input, self.on = by, calls, schema, on
        self.grouped_by = by
        self.keys = (by,)
        self.progress_on = (on,)
        self.state_keys = {GROUPS: by, ROWS: by}
        results = [pa.field(call.out, result_type(call, schema)) for call in calls]
        self.schema = pa.schema([schema.field(name) for name in by] + results)
        self.args = _arguments(calls, schema)

    def empty(self) -> State:
        return {name: schema.empty_table() for name, schema in self._schemas.items()}

    @cached_property
    def _schemas(self) -> Mapping[str, pa.Schema]:
        by = [self.input.field(name) for name in self.by]
        whole = [pa.field(name, pa.int64()) for name in (HASH, KEPT)]
        kept = [self.input.field(n) for n in (*self.args, *(n for n in self.by if n not in self.args))]
        hidden = [pa.field(name, pa.int64()) for name in HIDDEN]
        return {
            GROUPS: pa.schema([*by, *whole, *(pa.field(*c) for c in self.group_columns)]),
            ROWS: pa.schema([*kept, *hidden, *(pa.field(*c) for c in self.row_columns)]),
        }

    # --- rows in, group after group ---

    def layout(self, state: State, rows: Rows, extra: Mapping[str, Numbers] | None = None) -> Block:
        """What was kept and what is new in one block; `extra` are the new rows' values of `row_columns`."""
        old_groups, old = state[GROUPS], state[ROWS]
        groups, was_rank, rank = self._groups(old_groups, rows.table)
        rank = np.concatenate([np.repeat(was_rank, np.asarray(old_groups.column(KEPT))), rank])
        hidden = {STAMP: rows.stamp, POS: rows.pos, IDENT: rows.ident, **(extra or {})}
        columns: dict[str, Numbers] = {n: np.concatenate([np.asarray(old.column(n)), v]) for n, v in hidden.items()}
        columns[_SOURCE] = np.concatenate([np.full(len(old), -1), np.arange(len(rows))])
        both = {n: _joined(old.column(n), rows.table.column(n)) for n in self.args}
        table = pa.table(both).combine_chunks()
        order = _order_of(rank, len(groups))
        if order is not None:
            columns = {n: v[order] for n, v in columns.items()}
            table = table.take(pa.array(order)) if self.args else table
        kept = np.zeros(len(groups), np.int64)
        kept[was_rank] = np.asarray(old_groups.column(KEPT))
        return Block(
            groups, _bounds(rank, len(groups)), kept, table if self.args else pa.table({STAMP: columns[STAMP]}),
            columns.pop(STAMP), columns.pop(POS), columns.pop(IDENT), columns.pop(_SOURCE), columns,
        )  # fmt: skip

    def _groups(self, old: pa.Table, new: pa.Table) -> tuple[Groups, Ints, Ints]:
        """The groups of the state and of new rows, ascending; the rank of each old one, and of each new row."""
        count = len(old)
        both = {n: _joined(old.column(n), normal(new.column(n))) for n in self.by}
        table = pa.table(both) if self.by else pa.table({STAMP: np.zeros(count + len(new), np.int64)})
        codes, first = group_codes(table, self.by)
        was = np.where(first < count, first, -1)
        if len(was) == count and (was == np.arange(count)).all():  # no new group, and the old ones in order
            return Groups(old.select(self.by), np.array(old.column(HASH)), was), codes[:count], codes[count:]
        known = was >= 0
        hashes = np.empty(len(was), np.int64)
        hashes[known] = np.asarray(old.column(HASH))[was[known]]
        hashes[~known] = group_hash(table.take(pa.array(first[~known])), self.by)
        distinct = table.combine_chunks().take(pa.array(first)).select(self.by)
        return Groups(distinct, hashes, was), codes[:count], codes[count:]

    # --- what explanations ask ---

    def asks(self) -> tuple[Asked | None, ...]:
        return (Asked(self.by, self.on),)

    def ranged(
        self, port: int, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None
    ) -> Ranged:
        """The rows of the head's group between first and last, as far as they stand in the window."""
        head, rows = known[port].take(heads(known[port], origin.first)), (wanted or known)[port]

        def inside(owner: Ints, row: Ints) -> Bools | None:
            return self.inside(origin.take(owner), head.on[owner], rows.on[row])

        return replace(within(self.spans(port, origin), head.group, rows), inside=inside)

    def links(self, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None) -> tuple[Links, ...]:
        owner, row = self.ranged(0, origin, known, wanted).pairs()
        rows = (wanted or known)[0]
        return (Links(owner, Places(rows.stamp[row], rows.pos[row])),)

    def covers(self, origin: Origin, known: Sequence[Known]) -> tuple[Places, ...]:
        """All rows of the head's group between first and last."""
        head = known[0].take(heads(known[0], origin.first))
        return (covered(self.spans(0, origin), head.group, known[0]),)

    def inside(self, origin: Origin, head: Ints, on: Ints) -> Bools | None:  # noqa: ARG002
        """Whether rows between first and last that stand at `on` are in the window; None: all are."""
        return None

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:
        rows, picked_rows = inputs[0], self.in_order(inputs[0], picked[0])
        lo, hi = picked_rows.ranges(len(origin))
        table = rows.table.take(pa.array(picked_rows.row)).combine_chunks()
        by = [normal(table.column(n).take(pa.array(lo))) for n in self.by]
        return pa.table([*by, *(r.values for r in self.aggregated(table, lo, hi))], schema=self.schema)

    def in_order(self, rows: Rows, picked: Picked) -> Picked:
        """The rows of each window in the order in which aggregates see them."""
        return picked.ordered(rows.stamp[picked.row], rows.pos[picked.row])

    # --- what revisions ask ---

    def kept(self, history: History) -> Kept:
        """The rows that the state holds now."""
        groups, rows = history.state[GROUPS], history.state[ROWS]
        group = np.repeat(np.asarray(groups.column(HASH)), np.asarray(groups.column(KEPT)))
        stamp, pos = (np.asarray(rows.column(n)) for n in (STAMP, POS))
        return Kept(rows, group, stamp, pos)

    # --- rows out ---

    def keep(
        self,
        block: Block,
        rows: Bools | Ints,
        groups: Bools | None = None,
        columns: Mapping[str, pa.Array] | None = None,
    ) -> State:
        """The state with these rows of the block (mask, or indices that ascend) and of these groups, all if None.

        `columns` holds the values of `group_columns`, for all groups of the block.
        """
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        kept = np.diff(np.searchsorted(index, block.bounds))
        by = [block.groups.table.column(name).combine_chunks() for name in self.by]
        numbers = {HASH: pa.array(block.groups.hash), KEPT: pa.array(kept), **(columns or {})}
        state = pa.table([*by, *numbers.values()], schema=self._schemas[GROUPS])

        group = pa.array(np.repeat(np.arange(len(kept)), kept))
        found = {n: v.take(group) for n, v in zip(self.by, by, strict=True) if n not in self.args}
        if self.args:
            found |= dict(zip(self.args, block.table.select(self.args).take(pa.array(index)).columns, strict=True))
        hidden = {STAMP: block.stamp, POS: block.pos, IDENT: block.ident, **block.extra}
        found |= {n: pa.array(values[index]) for n, values in hidden.items()}
        table = pa.table([found[n] for n in self._schemas[ROWS].names], schema=self._schemas[ROWS])
        return {GROUPS: state if groups is None else state.filter(pa.array(groups)), ROWS: table}

    def aggregated(self, table: pa.Table, lo: Ints, hi: Ints) -> list[Aggregated]:
        """Each call over the windows `lo` to `hi` of a table in group order."""
        return [aggregate(call, table, lo, hi) for call in self.calls]

    def emission(
        self,
        groups: Groups,
        closed: Closed,
        results: Sequence[Aggregated],
        state: State,
        late: tuple[Refused, ...] = (),
    ) -> Emission:
        """The windows as rows, by (stamp, end, group)."""
        order = sort_by(closed.stamp) if closed.end is None else sort_by(closed.stamp, closed.end, closed.group)
        same = bool((order[1:] > order[:-1]).all())
        group, stamp = (closed.group, closed.stamp) if same else (closed.group[order], closed.stamp[order])
        by = [groups.table.column(n).combine_chunks().take(pa.array(group)) for n in self.by]
        values = [r.values if same else r.values.take(pa.array(order)) for r in results]
        table = pa.table([*by, *values], schema=self.schema)
        rows = Rows(table, stamp, positions(stamp), closed.ident if same else closed.ident[order])
        rejected = []
        for result in results:
            if result.failed is not None and result.failed.any():
                bad = np.flatnonzero(result.failed[order])
                found = rows.take(bad)
                told = found.with_table(found.table.rename_columns(users_columns(table.column_names, self.calls)))
                rejected.append(Refused(told, tuple(result.why(i) for i in order[bad].tolist())))
        tie = (*(() if closed.end is None else (pa.array(closed.end[order]),)), *by)
        origin = closed.origin if same else closed.origin.take(order)
        return Emission(rows, tie, origin, state, late, tuple(rejected))


_SOURCE = "_window_source"


def on_axis(table: pa.Table, on: str, late: Late) -> tuple[Axis, Bools]:
    """Where the rows stand on column `on`, and whether they do; null and NaN go to `late`."""
    column = table.column(on)
    values, valid = axis_of(column)
    if not valid.all():
        null = np.asarray(pc.is_null(column))
        late.add(null, f"'{on}' is null")
        late.add(~valid & ~null, f"'{on}' is NaN")
    return values, valid


def from_head(rows: Rows, by: tuple[str, ...], group: Ints, stamp: Ints, pos: Ints) -> Rows:
    """The rows of these groups (ascending hashes), of each from its place on."""
    if not len(group):
        return rows.slice(0, 0)
    hashes = group_hash(rows.table, by)
    at = np.minimum(np.searchsorted(group, hashes), len(group) - 1)
    later = (rows.stamp > stamp[at]) | ((rows.stamp == stamp[at]) & (rows.pos >= pos[at]))
    return rows.filter((group[at] == hashes) & later)


def per_group(mask: Bools, bounds: Ints) -> Ints:
    """How many rows of the mask are set in each group."""
    counts: Ints = np.diff(np.append(0, np.cumsum(mask))[bounds])
    return counts


def _joined(old: pa.ChunkedArray, new: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    chunks = new.chunks if isinstance(new, pa.ChunkedArray) else [new]
    return pa.chunked_array([*old.chunks, *chunks], type=old.type)


def _arguments(calls: Sequence[AggregateCall], schema: pa.Schema) -> list[str]:
    wanted = [call.args or call.user.columns or tuple(schema.names) if call.user else call.args for call in calls]
    used = {name for names in wanted for name in names}
    return [name for name in schema.names if name in used]


def _order_of(rank: Ints, groups: int) -> Ints | None:
    """The stable order by rank; None if it is the one they are in."""
    if groups <= 1 or (rank[1:] >= rank[:-1]).all():
        return None
    return sort_by(rank)


def _bounds(rank: Ints, groups: int) -> Ints:
    return np.append(0, np.cumsum(np.bincount(rank, minlength=groups)))
