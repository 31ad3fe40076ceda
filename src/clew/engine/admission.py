"""Admission: which tuples of a batch enter their stream now, in which order, and which wait or do not.

A pure function of the stream's past and the rows of the batch, not of their order in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.engine.batches import Reject, row_json
from clew.engine.far_ahead import Stand
from clew.engine.pieces import Batch
from clew.model.axis import Axis, Number, axis_end, axis_of, from_axis, span_of
from clew.model.groups import codes_of, group_codes, sort_by
from clew.model.rows import Bools, Ints, Stamps
from clew.model.runs import Runs
from clew.model.steps import Steps
from clew.model.values import python_rows, python_value
from clew.network.boxes import Source


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
    """Whether admission can ask for keys that are only in the archive; what waits stands behind them all."""
    if not state.unread or not len(batch):
        return False
    runs = batch.runs
    return runs is None or state.progress is None or bool(runs.value[0] <= state.progress)


def _admit_as_it_stands(source: Source, state: StreamState, batch: Batch, now: dt.datetime) -> Admission | None:
    """The usual case: all rows stand by (order, key) behind what was admitted; those that waited are put among them.

    None if a row needs to be looked at.
    """
    if not len(batch) or source.order not in source.key or batch.runs is None:
        return None
    runs, end = batch.runs, axis_end(_kind(source))
    first, last = runs.value[0].item(), runs.value[-1].item()
    if first == -end or last == end or (state.progress is not None and first < state.progress):
        return None
    near, far = _waiting(source, state)
    orders: Axis = np.append(runs.value, _axis(source, far))  # type: ignore[assignment]
    if len(far) and orders[len(runs.value)] <= last:
        return None
    if _stand(source, state, now).first_jump(orders) != len(runs.value):
        return None
    if not len(near) and _repeats(source, state.recent, batch):
        return None
    whole, runs, rejects = _put_among(source, state, near, batch, runs)
    newest = max(last, last if state.newest is None else state.newest)
    count = runs.rows_to(_bound(source, newest, None))
    pending = pa.concat_tables([whole.slice(count, len(whole)), far]).combine_chunks()
    admitted = runs.first(count)
    recent, unread = state.recent, state.unread if not count else whole.memory is None
    if count and not unread:
        recent = _recent(source, recent, whole.slice(int(admitted.starts[-1]), count), admitted.value[-1:])
    after = StreamState(
        state.seq + count,
        admitted.value[0].item() if state.first is None and count else state.first,
        _largest(state.progress, admitted.value, None),
        newest,
        None if unread else recent,
        pending,
        unread,
    )
    warnings = _warnings(source, orders, len(orders) - len(far))
    return Admission(whole.first(count), admitted, source.schema.empty_table(), rejects, after, len(pending), warnings)


def _waiting(source: Source, state: StreamState) -> tuple[pa.Table, pa.Table]:
    """Those that wait for their elders, and those that are too far ahead."""
    waiting = state.pending if state.pending is not None else source.schema.empty_table()
    near = 0 if state.newest is None else int(np.searchsorted(_axis(source, waiting), state.newest, side="right"))
    return waiting.slice(0, near), waiting.slice(near)


def _put_among(
    source: Source, state: StreamState, waiting: pa.Table, batch: Batch, runs: Runs
) -> tuple[Batch, Runs, list[Reject]]:
    """The waiting rows and the batch as one: only rows up to the last waiting order are sorted."""
    if not len(waiting):
        return batch, runs, []
    rows, order, rejects = waiting, _axis(source, waiting), list[Reject]()
    cut = batch.cut_behind(runs.rows_to(order[-1]))
    if cut:
        rows, order, fresh = _sorted(source, waiting, batch.slice(0, cut))
        keep, rejects = _without_duplicates(source, rows, fresh, state.recent)
        if rejects:
            rows, order = rows.filter(pa.array(keep)), order[keep]
    return batch.from_row(cut, rows), Runs.concat([Runs.of(order), runs.from_row(cut)]), rejects


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
        rows, order, fresh_ones = rows.filter(pa.array(keep)), order[keep], fresh_ones[keep]
    finishing = advance is not None and advance >= axis_end(kind)
    far = len(order) if finishing else _stand(source, state, now, advance).believed(order, fresh_ones > 0)
    warnings = _warnings(source, order, far)
    newest = _largest(state.newest, order[:far], advance)
    bound = newest if newest is None or finishing else _bound(source, newest, advance)
    count = 0 if bound is None else int(np.searchsorted(order[:far], bound, side="right"))
    admitted, pending = rows.slice(0, count), rows.slice(count)
    progress = _largest(state.progress, order[:count], advance)
    first = state.first if state.first is not None or not count else order[0].item()
    recent = _recent(source, state.recent, admitted, order[:count])
    unread = state.unread and not count
    after = StreamState(state.seq + count, first, progress, newest, recent, pending.combine_chunks(), unread)
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
    names = [*keys, source.order] if within else keys
    mine = rows.select(names)
    past = mine.slice(0, 0) if recent is None else _repeatable(recent.select(names), mine, keys)
    both = pa.concat_tables([past, mine])
    offset = len(past)
    codes = group_codes(both, keys)[0]
    when = _axis(source, both) if within else None
    ranks = [codes] if when is None else [codes, _ranks(when)]
    index = sort_by(*ranks)  # the past comes first, then what waited
    same, equal = (
        np.append(False, np.logical_and.reduce([r[index][1:] == r[index][:-1] for r in some]))
        for some in (ranks[:1], ranks)
    )
    if equal.any():
        tied = index[equal | np.append(equal[1:], False)]
        index = sort_by(*ranks, _ties(source, rows, fresh, tied[tied >= offset] - offset, offset))
    if when is not None:
        same = _near_same_key(index, same, when, span_of(source.key_span or 0, _kind(source), "key_span"))
    repeated = index[same] - offset
    repeated = np.sort(repeated[repeated >= 0])
    keep[repeated] = False
    return keep, [
        Reject(row_json(row), f"duplicate key ({', '.join(f'{k}={row[k]}' for k in keys)})")
        for row in (python_rows(rows.take(pa.array(repeated))) if len(repeated) else ())
    ]


def _ties(source: Source, rows: pa.Table, fresh: Ints, tied: Ints, offset: int) -> Ints:
    """Among new rows of one key the smallest by its other columns wins; what was there before stays."""
    ties = np.full(offset + len(rows), -1, np.int64)
    some = rows.take(pa.array(tied))
    columns = [c for c in source.schema.names if c not in source.key] + list(source.key)
    best = tied[sort_by(*(_exact_ranks(some.column(c)) for c in columns))]
    ties[offset + best] = fresh[best] * len(rows) + np.arange(len(best))
    return ties


def _exact_ranks(column: pa.ChunkedArray) -> Ints:
    """Ranks that tell any two values apart that can be told apart: -0.0 comes before 0.0."""
    if pa.types.is_nested(column.type):
        return np.unique([repr(python_value(v)) for v in column], return_inverse=True)[1].astype(np.int64)
    codes = codes_of(column)
    return codes * 2 - np.signbit(axis_of(column)[0]) if pa.types.is_floating(column.type) else codes


def _repeatable(past: pa.Table, mine: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Those of the past keys, part for part, that stand in the batch: mostly few of many."""
    for key in keys:
        kind = mine.column(key).type
        if not pa.types.is_nested(kind) and not pa.types.is_floating(kind):  # zeros of both signs are one key
            past = past.filter(pc.is_in(past.column(key), mine.column(key).combine_chunks()))
    return past


def _near_same_key(index: Ints, same: Bools, when: Axis, span: Number) -> Bools:
    """Same key and within the span of the last one kept. Rows come by key, then order."""
    at = when[index]
    with np.errstate(over="ignore"):
        step = at[1:] - at[:-1]  # below zero where it is too long for its type
    close: Bools = same & np.append(False, (step >= 0) & (step <= span))[: len(same)]
    out: Bools = close.copy()
    last: Number = 0
    for i in (np.flatnonzero(close[1:] & close[:-1]) + 1).tolist():  # the others stand behind one that is kept
        if not close[i - 2]:
            last = at[i - 2].item()
        out[i] = at[i].item() - last <= span
        last = last if out[i] else at[i].item()
    return out


def _stand(source: Source, state: StreamState, now: dt.datetime, advance: Number | None = None) -> Stand:
    reached = max([v for v in (state.progress, state.newest, advance) if v is not None], default=None)
    return Stand(source, state.first, reached, state.seq, now)


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
