"""Windows again, in plain Python over lists: what the kernels are tested against.

Rows are dicts of visible and hidden columns, in place order; steps are (stamp, progress on the axis).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clew.expressions.aggregates import AggregateCall
from clew.model.axis import axis_end, axis_of, is_float_axis, span_of, value_on_axis
from clew.network.boxes import CountWindow, Landmark, Latch, ValueWindow, WindowKind
from clew.operators.aggregation.reference import reference as value_of
from clew.operators.base import NO_FLOOR
from clew.operators.windows.grid import FAR, FLOAT_STEPS

Row = dict[str, Any]
Steps = Sequence[tuple[int, Any]]


@dataclass
class Expected:
    """One emitted row: its trigger, its place among those of one step, and the rows it is made of."""

    stamp: int
    end: Any
    group: tuple[Any, ...]
    rows: list[Row]
    tag: int = 0
    floor: int = NO_FLOOR

    def told(self, calls: Sequence[AggregateCall]) -> tuple[Any, ...]:
        """Stamp, group, values, first and last place, tag, floor."""
        places = sorted((r["_stamp"], r["_pos"]) for r in self.rows)
        values = [value_of(c, self.rows) for c in calls]
        return self.stamp, *self.group, *values, *places[0], *places[-1], self.tag, self.floor


def reference(
    window: WindowKind, by: Sequence[str], schema: pa.Schema, rows: Sequence[Row], steps: Steps
) -> tuple[list[Expected], list[tuple[int, int]]]:
    """The windows in the order of the algebra, and the places of late rows."""
    on = None if isinstance(window, CountWindow) else window.on
    late: list[Row] = []
    taken: list[Row] = []
    far = _far(window, schema)
    for row in rows:
        values, valid = axis_of(pa.array([row[on]], schema.field(on).type)) if on else (np.zeros(1), np.ones(1))
        ours = taken if valid[0] and abs(values[0]) < far else late
        ours.append({**row, "_on": values[0].item()})
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in taken:
        groups.setdefault(tuple(_rank(row[b]) for b in by), []).append(row)
    found: list[tuple[Any, Expected]] = []
    for key, members in groups.items():
        for made in _windows(window, schema, members, steps, late):
            made.group = tuple(members[0][b] for b in by)
            found.append(((made.stamp, made.end, key), made))
    found.sort(key=lambda pair: pair[0])
    return [made for _, made in found], sorted((r["_stamp"], r["_pos"]) for r in late)


def _far(window: WindowKind, schema: pa.Schema) -> float:
    """How far from zero a row belongs to no window: on a float axis there are no separate edges there."""
    if isinstance(window, CountWindow) or window.on is None:
        return math.inf
    kind, every = schema.field(window.on).type, window.slide if isinstance(window, ValueWindow) else window.every
    if not is_float_axis(kind):
        return FAR
    if isinstance(window, ValueWindow) and window.anchor == "tuple":
        return math.inf
    return float(span_of(every, kind, "slide") * FLOAT_STEPS)


def _windows(
    window: WindowKind, schema: pa.Schema, rows: list[Row], steps: Steps, late: list[Row]
) -> Iterator[Expected]:
    if isinstance(window, CountWindow):
        return _count(window, rows)
    if window.on is None:
        assert isinstance(window, (Landmark, Latch))
        assert isinstance(window.every, int)
        return _by_rows(rows[window.start if isinstance(window, Landmark) else 0 :], window.every)
    kind = schema.field(window.on).type
    if isinstance(window, ValueWindow):
        span, slide = span_of(window.span, kind, "span"), span_of(window.slide, kind, "slide")
        define = _clock if window.anchor == "clock" else _anchored
        return define(rows, steps, span, slide, late, is_float_axis(kind))
    every = span_of(window.every, kind, "every")
    if isinstance(window, Latch):
        return _latch(rows, steps, every, late)
    return _landmark(rows, steps, value_on_axis(window.start, kind), every, axis_end(kind))


def _count(window: CountWindow, rows: list[Row]) -> Iterator[Expected]:
    for end in range(1, len(rows) + 1):
        start = end - window.rows
        if end % window.slide == 0 if window.partial else start >= 0 and start % window.slide == 0:
            yield Expected(rows[end - 1]["_stamp"], 0, (), rows[max(start, 0) : end])


def _by_rows(rows: list[Row], every: int) -> Iterator[Expected]:
    for end in range(every, len(rows) + 1, every):
        yield Expected(rows[end - 1]["_stamp"], 0, (), rows[:end], end // every)


def _clock(rows: list[Row], steps: Steps, span: Any, slide: Any, late: list[Row], floats: bool) -> Iterator[Expected]:
    windows: dict[Any, list[Row]] = {}
    for row in rows:
        on, before = row["_on"], _before(steps, row["_stamp"])
        first, last = math.floor((on - span) / slide) - 1, math.floor(on / slide) + 1
        own = [k for k in range(first, last + 1) if k * slide <= on < k * slide + span]
        for k in own:
            if before < k * slide + span:
                windows.setdefault(k, []).append(row)
        if own and all(k * slide + span <= before for k in own):
            late.append(row)
    for k, members in windows.items():
        stamp = _first(steps, k * slide + span)
        if stamp is not None:
            members.sort(key=_by_value)
            yield Expected(stamp, k * slide + span, (), members, _bits(k * slide, floats))


def _anchored(
    rows: list[Row], steps: Steps, span: Any, slide: Any, late: list[Row], floats: bool
) -> Iterator[Expected]:
    windows: list[list[Row]] = []
    floors: list[int] = []
    for row in rows:
        on, before = row["_on"], _before(steps, row["_stamp"])
        heads = [w[0]["_on"] for w in windows]
        opens = not heads or on > heads[-1] + slide
        if opens and on + span < before:
            late.append(row)
            continue
        above = [-math.inf, *(h + slide for h in heads)]
        entered = [i for i, h in enumerate(heads) if h + span >= before and above[i] < on <= h + span]
        for i in entered:
            windows[i].append(row)
        closed = [h for h in heads if h + span < before]
        if opens:
            windows.append([row])
            floors.append(NO_FLOOR if not heads else _bits(heads[-1] + slide + 0, floats))
        elif not entered and closed and on <= closed[-1] + span:
            late.append(row)
    for members, floor in zip(windows, floors, strict=True):
        end = members[0]["_on"] + span
        stamp = _first(steps, end, beyond=True)
        if stamp is not None:
            yield Expected(stamp, end, (), members, _bits(members[0]["_on"], floats), floor)


def _landmark(rows: list[Row], steps: Steps, start: Any, every: Any, forever: Any) -> Iterator[Expected]:
    emitted: list[Row] = []
    k = 1
    for stamp, progress in steps:
        here = [r for r in rows if start <= r["_on"] and r["_stamp"] <= stamp]
        while progress == forever or start + k * every <= progress:
            held = {id(r) for r in emitted}
            fresh = [r for r in here if id(r) not in held and (progress == forever or r["_on"] < start + k * every)]
            emitted = emitted + sorted(fresh, key=_by_value)
            if progress == forever:
                while fresh and not max(r["_on"] for r in fresh) < start + k * every:
                    k += 1
            if fresh or (emitted and progress != forever):
                yield Expected(stamp, start + k * every, (), emitted, k)
            if progress == forever:
                return
            k += 1


def _latch(rows: list[Row], steps: Steps, every: Any, late: list[Row]) -> Iterator[Expected]:
    buckets: dict[Any, list[Row]] = {}
    for row in rows:
        k = math.floor(row["_on"] / every)
        k += (row["_on"] >= (k + 1) * every) - (row["_on"] < k * every)
        if (k + 1) * every <= _before(steps, row["_stamp"]):
            late.append(row)
        else:
            buckets.setdefault(k, []).append(row)
    so_far: list[Row] = []
    for k in sorted(buckets):
        so_far = so_far + sorted(buckets[k], key=_by_value)
        stamp = _first(steps, (k + 1) * every)
        if stamp is not None:
            yield Expected(stamp, (k + 1) * every, (), so_far, k + 1)


def _before(steps: Steps, stamp: int) -> Any:
    return max((p for s, p in steps if s < stamp), default=-math.inf)


def _first(steps: Steps, end: Any, beyond: bool = False) -> int | None:
    return next((stamp for stamp, progress in steps if progress > end or (progress == end and not beyond)), None)


def _bits(value: Any, floats: bool) -> int:
    return int(np.float64(value).view(np.int64)) if floats else value


def _by_value(row: Row) -> tuple[Any, int, int]:
    return row["_on"], row["_stamp"], row["_pos"]


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value)
