"""Admission: which tuples of a batch enter their stream now, in which order, and which wait or do not.

A pure function of the stream's past and the rows of the batch, not of their order in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from clew.engine.batches import Reject, row_json
from clew.engine.pieces import Batch
from clew.model.axis import Axis, Number, axis_end, axis_of, from_axis, span_of
from clew.model.groups import codes_of, group_codes, sort_by
from clew.model.rows import Bools, Ints, Stamps
from clew.model.runs import Runs
from clew.model.steps import Steps
from clew.model.values import python_rows, python_value
from clew.network.boxes import Source

FAR = 1_000_000  # without max_ahead: times the span seen so far, beyond which a tuple is held back
DAY = dt.timedelta(days=1)


@dataclass(frozen=True, eq=False)
class StreamState:
    """What admission remembers of a stream between epochs."""

    seq: int = 0  # the last one given
    first: Number | None = None  # the smallest order admitted
    progress: Number | None = None  # the largest order admitted, or admitted by advance
    newest: Number | None = None  # the largest order seen, waiting tuples included
    recent: pa.Table | None = None  # keys that a new tuple could still repeat
    pending: pa.Table | None = None
    unread: bool = False  # `recent` is in the archive, and not here


@dataclass(frozen=True, eq=False)
class Admission:
    """What becomes of a batch."""

    batch: Batch  # admitted, in order
    runs: Runs  # of the admitted orders
    late: pa.Table
    rejects: list[Reject]
    state: StreamState
    waiting: int
    warnings: list[str] = field(default_factory=list)

    @property
    def rows(self) -> pa.Table:
        """The admitted rows."""
        return self.batch.table


def admit(
    source: Source, state: StreamState, batch: Batch, *, now: dt.datetime, advance: Number | None = None
) -> Admission:
    """Admit what a batch and the waiting tuples hold.

    `advance` moves progress without a tuple (the axis' end: finish).
    """
    quick = _admit_as_it_stands(source, state, batch, now) if advance is None else None
    return quick or _admit_rows(source, state, batch.table, now, advance)


def needs_recent(state: StreamState, batch: Batch) -> bool:
    """Whether admission can ask for keys that are only in the archive."""
    if not state.unread:
        return False
    runs = batch.runs if len(batch) else None
    waits = state.pending is not None and len(state.pending) > 0
    return waits or runs is None or state.progress is None or bool(runs.value[0] <= state.progress)


def _admit_as_it_stands(source: Source, state: StreamState, batch: Batch, now: dt.datetime) -> Admission | None:
    """The usual case: all rows stand by (order, key) behind what is there. None if a row needs to be looked at."""
    waits = state.pending is not None and len(state.pending) > 0
    if waits or not len(batch) or source.order not in source.key or batch.runs is None:
        return None
    runs, end = batch.runs, axis_end(_kind(source))
    first, newest = runs.value[0].item(), runs.value[-1].item()
    if first == -end or newest == end or (state.progress is not None and first < state.progress):
        return None
    if _repeats(source, state.recent, batch) or _near(source, state, runs.value, now, None) < len(runs.value):
        return None
    newest = max(newest, newest if state.newest is None else state.newest)
    count = runs.rows_to(_bound(source, newest, None))
    pending, admitted = batch.slice(count, len(batch)).combine_chunks(), runs.first(count)
    recent, unread = state.recent, batch.memory is None and count > 0
    if count and not unread:
        recent = _recent(source, recent, batch.slice(int(admitted.starts[-1]), count), admitted.value[-1:])
    after = StreamState(
        state.seq + count,
        first if state.first is None and count else state.first,
        _largest(state.progress, admitted.value, None),
        newest,
        None if unread else recent,
        pending,
        unread,
    )
    return Admission(batch.first(count), admitted, source.schema.empty_table(), [], after, len(pending))


def _repeats(source: Source, recent: pa.Table | None, batch: Batch) -> bool:
    """Whether a row at the batch's first order has a key that is there already."""
    runs = batch.runs
    if recent is None or not len(recent) or runs is None or _axis(source, recent).max() < runs.value[0]:
        return False
    keys = list(source.key)
    both = pa.concat_tables([recent.select(keys), batch.slice(0, int(runs.until[0])).select(keys)])
    return len(group_codes(both, keys)[1]) < len(both)


def _admit_rows(
    source: Source, state: StreamState, batch: pa.Table, now: dt.datetime, advance: Number | None
) -> Admission:
    """Row by row: sets aside what is late, doubled or has no key, sorts the others among those that waited."""
    kind = _kind(source)
    rejects: list[Reject] = []
    fresh = _keyed(source, batch, rejects)
    order, _ = axis_of(fresh.column(source.order))
    floor = state.progress
    behind = order < floor if floor is not None else np.zeros(len(fresh), np.bool_)
    late = fresh.filter(pa.array(behind)) if behind.any() else fresh.slice(0, 0)
    if behind.any():
        fresh = fresh.filter(pa.array(~behind))
    waiting = state.pending if state.pending is not None else source.schema.empty_table()
    rows, order, fresh_ones = _sorted(source, waiting, fresh)
    keep, doubles = _without_duplicates(source, rows, fresh_ones, state.recent)
    if doubles:
        rejects += doubles
        rows, order = rows.filter(pa.array(keep)), order[keep]
    finishing = advance is not None and advance >= axis_end(kind)
    far = len(order) if finishing else _near(source, state, order, now, advance)
    warnings = _warnings(source, order, far)
    newest = _largest(state.newest, order[:far], advance)
    bound = newest if newest is None or finishing else _bound(source, newest, advance)
    count = 0 if bound is None else int(np.searchsorted(order[:far], bound, side="right"))
    admitted, pending = rows.slice(0, count), rows.slice(count)
    progress = _largest(state.progress, order[:count], advance)
    first = state.first if state.first is not None or not count else order[0].item()
    recent = _recent(source, state.recent, admitted, order[:count])
    after = StreamState(state.seq + count, first, progress, newest, recent, pending.combine_chunks())
    taken = Batch.of(source, admitted)
    return Admission(taken, Runs.of(order[:count]), late, rejects, after, len(pending), warnings)


def _keyed(source: Source, batch: pa.Table, rejects: list[Reject]) -> pa.Table:
    """The rows that have an order, short of the end of all orders, and a whole key."""
    order, _ = axis_of(batch.column(source.order))
    bad: Bools = np.isinf(order) if order.dtype == np.float64 else order == axis_end(_kind(source))
    if bad.any():
        reason = f"infinite in order column '{source.order}'"
        rejects += [Reject(row_json(row), reason) for row in python_rows(batch.filter(pa.array(bad)))]
    for column in dict.fromkeys((source.order, *source.key)):
        values = batch.column(column)
        missing = np.asarray(values.is_null())
        if column == source.order:
            missing = ~axis_of(values)[1]
        new = np.flatnonzero(missing & ~bad)
        word = "order" if column == source.order else "key"
        for row in python_rows(batch.take(pa.array(new))) if len(new) else ():
            rejects.append(Reject(row_json(row), f"null or NaN in {word} column '{column}'"))
        bad |= missing
    return batch.filter(pa.array(~bad)) if bad.any() else batch


def _sorted(source: Source, waiting: pa.Table, fresh: pa.Table) -> tuple[pa.Table, Axis, Ints]:
    """All of them by (order, key), the waiting ones before new ones with the same key; 1 marks the new ones."""
    rows = pa.concat_tables([waiting, fresh]) if len(waiting) else fresh
    order, _ = axis_of(rows.column(source.order))
    keys: list[Ints] = [codes_of(rows.column(k)) for k in _other_keys(source)]
    age = (np.arange(len(rows)) >= len(waiting)).astype(np.int64)
    index = sort_by(_ranks(order), *keys, age)
    rows = rows.take(pa.array(index))
    return rows, order[index], age[index]


def _ranks(order: Axis) -> Ints:
    return (
        order.astype(np.int64) if order.dtype == np.int64 else np.unique(order, return_inverse=True)[1].astype(np.int64)
    )


def _other_keys(source: Source) -> list[str]:
    return [k for k in source.key if k != source.order]


def _without_duplicates(
    source: Source, rows: pa.Table, fresh: Ints, recent: pa.Table | None
) -> tuple[Bools, list[Reject]]:
    """Which rows have a key that no row before them has; the first of equal keys stays, whatever the arrival."""
    keep = np.ones(len(rows), np.bool_)
    if not len(rows):
        return keep, []
    within = source.order not in source.key
    keys = list(source.key)
    past = recent.select([*keys, source.order] if within else keys) if recent is not None else None
    mine = rows.select([*keys, source.order] if within else keys)
    both = pa.concat_tables([past, mine]) if past is not None else mine
    offset = len(both) - len(mine)
    codes = np.zeros(len(both), np.int64)
    for key in keys:
        column = codes_of(both.column(key))
        codes = np.unique(codes * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1].astype(np.int64)
    tie = fresh * len(rows) + _payload_ranks(source, rows, codes, offset)
    when = _axis(source, both) if within else None
    tie = np.concatenate([np.full(offset, -1), tie])
    index = sort_by(codes, tie) if when is None else sort_by(codes, _ranks(when), tie)
    same = np.append(False, codes[index][1:] == codes[index][:-1])
    if when is not None:
        same = _near_same_key(index, same, when, span_of(source.key_span or 0, _kind(source), "key_span"))
    repeated = index[same] - offset
    repeated = np.sort(repeated[repeated >= 0])
    keep[repeated] = False
    return keep, [
        Reject(row_json(row), f"duplicate key ({', '.join(f'{k}={row[k]}' for k in keys)})")
        for row in (python_rows(rows.take(pa.array(repeated))) if len(repeated) else ())
    ]


def _payload_ranks(source: Source, rows: pa.Table, codes: Ints, offset: int) -> Ints:
    """Among new rows of one key the smallest by its other columns wins."""
    mine = codes[offset:]
    if len(np.unique(mine)) == len(mine):
        return np.zeros(len(rows), np.int64)
    rank = np.empty(len(rows), np.int64)
    columns = [c for c in source.schema.names if c not in source.key] + list(source.key)
    rank[sort_by(*(_exact_ranks(rows.column(c)) for c in columns))] = np.arange(len(rows))
    return rank


def _exact_ranks(column: pa.ChunkedArray) -> Ints:
    """Ranks that tell any two values apart that can be told apart: -0.0 comes before 0.0."""
    if pa.types.is_nested(column.type):
        return np.unique([repr(python_value(v)) for v in column], return_inverse=True)[1].astype(np.int64)
    codes = codes_of(column)
    return codes * 2 - np.signbit(axis_of(column)[0]) if pa.types.is_floating(column.type) else codes


def _near_same_key(index: Ints, same: Bools, when: Axis, span: Number) -> Bools:
    """Same key and within the span of the last one kept."""
    last: Number | None = None
    out = np.zeros(len(index), np.bool_)
    for i, at in enumerate(index):
        if same[i] and last is not None and when[at] - last <= span:
            out[i] = True
        else:
            last = when[at].item()
    return out


def _near(source: Source, state: StreamState, order: Axis, now: dt.datetime, advance: Number | None) -> int:
    """How many of the ascending orders are near enough to their predecessor to be believed."""
    if not len(order):
        return 0
    kind = _kind(source)
    anchor = max([v for v in (state.progress, advance) if v is not None], default=order[0].item())
    before = np.append(np.array([anchor], order.dtype), order[:-1])
    with np.errstate(over="ignore", invalid="ignore"):
        gap = order.astype(np.float64) - np.maximum(before, anchor).astype(np.float64)
    if source.max_ahead is not None:
        limit = span_of(source.max_ahead, kind, "max_ahead")
        far = gap > limit
    elif pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        clock = pa.array([now], pa.timestamp("us", tz="UTC"))
        today = axis_of(clock.cast(kind) if pa.types.is_date32(kind) else clock)[0][0]
        far = (gap > span_of(DAY, kind, "max_ahead")) & (order > today + span_of(DAY, kind, "max_ahead"))
    else:
        start = state.first if state.first is not None else order[0].item()
        seen = np.maximum(before, anchor).astype(np.float64) - float(start)
        far = (seen > 0) & (gap > FAR * seen)
    found = np.flatnonzero(far)
    return int(found[0]) if len(found) else len(order)


def _warnings(source: Source, order: Axis, far: int) -> list[str]:
    if far == len(order):
        return []
    first = from_axis(order[far].item(), _kind(source))
    count = len(order) - far
    return [
        f"stream '{source.name}': {count} tuple{'s' if count > 1 else ''} far ahead, the first with "
        f"{source.order}={first}, wait in pending; engine.advance('{source.name}', ...) admits them"
    ]


def _bound(source: Source, newest: Number, advance: Number | None) -> Number:
    late = span_of(source.lateness, _kind(source), "lateness")
    bound = newest - late
    return bound if advance is None else max(bound, advance)


def _largest(old: Number | None, order: Axis, advance: Number | None) -> Number | None:
    values = [v for v in (old, order[-1].item() if len(order) else None, advance) if v is not None]
    return max(values) if values else None


def _recent(source: Source, recent: pa.Table | None, admitted: pa.Table, order: Axis) -> pa.Table | None:
    """The keys, with their order, that a tuple which is not late could still repeat."""
    if not len(admitted):
        return recent
    reach = 0 if source.order in source.key else span_of(source.key_span or 0, _kind(source), "key_span")
    floor = order[-1].item() - reach
    names = list(dict.fromkeys((*source.key, source.order)))
    mine = admitted.slice(int(np.searchsorted(order, floor, side="left"))).select(names).combine_chunks()
    if recent is None or not len(recent):
        return mine
    return pa.concat_tables([recent.filter(pa.array(_axis(source, recent) >= floor)), mine]).combine_chunks()


def _kind(source: Source) -> pa.DataType:
    return source.schema.field(source.order).type


def _axis(source: Source, table: pa.Table) -> Axis:
    return axis_of(table.column(source.order))[0]


# --- stamps ---


def stamp_streams(orders: Sequence[tuple[pa.DataType, Runs]], last: int) -> list[Stamps]:
    """Global admission numbers from `last + 1` on: merged by (order, declaration) if all orders have one type."""
    live = [i for i, (_, runs) in enumerate(orders) if len(runs)]
    stamps: list[Stamps] = []
    if len(live) < 2 or len({orders[i][0] for i in live}) > 1:
        for _, runs in orders:
            stamps.append(Stamps(last + 1, len(runs)))
            last += len(runs)
        return stamps
    for i, (_, runs) in enumerate(orders):
        rank = np.arange(len(runs), dtype=np.int64)
        for j, (_, other) in enumerate(orders):
            if i != j:
                at = np.searchsorted(other.value, runs.value, side="right" if j < i else "left")
                rank += np.repeat(np.append(0, other.until)[at], np.diff(runs.until, prepend=0))
        stamps.append(Stamps(last + 1, len(runs), last + 1 + rank))
    return stamps


def source_steps(start: Number | None, stamps: Ints, order: Axis, advance: tuple[int, Number] | None) -> Steps:
    """A source's progress over an epoch."""
    if advance is not None:
        stamps = np.append(stamps, advance[0])
        order = np.append(order, np.array([advance[1]], order.dtype if len(order) else None))
    return Steps.running(start, stamps, order)
