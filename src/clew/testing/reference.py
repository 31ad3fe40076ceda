"""A whole network in plain Python: what the engine is tested against.

It composes the references that lie beside the operators and does progress and projections itself, row by
row, over all that was ever admitted at once: no epochs, no state, no lanes.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from clew.expressions.aggregates import AggregateCall, split_aggregates, users_columns
from clew.expressions.compile import Compiled, compile_expression, is_monotone_in
from clew.model.axis import INFINITE, axis_end, axis_of, from_axis, is_float_axis, is_orderable, span_of
from clew.network.boxes import (
    Apply,
    Box,
    Drop,
    Filter,
    Join,
    Map,
    Resample,
    Sort,
    Source,
    Union,
    Window,
    joined_columns,
)
from clew.network.network import Network
from clew.operators import apply, drop, join, resample, sort, union
from clew.operators.aggregation import result_type
from clew.operators.aggregation.reference import reference as value_of
from clew.operators.base import NO_FLOOR
from clew.operators.join import join_schema
from clew.operators.windows.reference import reference as windows_of

Row = dict[str, Any]
Progress = list[tuple[int, Any]]
Place = tuple[int, int, int]  # number of the input, stamp, position


@dataclass(frozen=True)
class Admitted:
    """All that was ever admitted: rows by stream, with `_stamp` and `_seq`; moves of progress; the end."""

    rows: Mapping[str, Sequence[Row]]
    moves: Sequence[tuple[str, int, Any]] = ()  # stream, stamp, point of the axis
    finish: int | None = None


@dataclass
class Made:
    """One row that a box emits: its values, its place, and the rows of the box's inputs it is made of."""

    values: Row
    stamp: int
    pos: int = 0
    ident: int | None = None  # None where naming it takes more than its inputs' names
    made_of: tuple[Place, ...] = ()
    origin: tuple[int, ...] = ()  # as the origin index holds it

    def row(self, number: int) -> Row:
        return {**self.values, "_stamp": self.stamp, "_pos": self.pos, "_ident": self.ident, "_n": number}


@dataclass
class Told:
    """What a box emits over the whole run. `inner`: before the results of its aggregates were computed."""

    schema: pa.Schema
    rows: list[Made]
    inner: list[Made] = field(default_factory=list)
    late: list[tuple[int, int]] | None = None  # places in its input; None: not said
    rejected: list[tuple[int, Row]] | None = None  # with the stamp; None: not said


def interpret(network: Network, admitted: Admitted) -> dict[str, Told]:
    """What each box of the network emits, by its name."""
    run = _Interpreter(network, admitted)
    for box in network.boxes:
        run.told[box.name] = getattr(run, f"_{box.kind}")(box)
    return run.told


class _Interpreter:
    def __init__(self, network: Network, admitted: Admitted) -> None:
        self.boxes = {b.name: b for b in network.boxes}
        self.admitted = admitted
        self.told: dict[str, Told] = {}
        self.inner_schemas: dict[str, pa.Schema] = {}  # of boxes with aggregates: groups and calls
        self.after: dict[str, dict[str, str]] = {}  # and what they project at last

    # --- one row at a time ---

    def _source(self, box: Source) -> Told:
        seed = zlib.crc32(box.name.encode())
        rows = sorted(self.admitted.rows.get(box.name, ()), key=lambda r: r["_stamp"])
        made = [Made(_visible(r), r["_stamp"], 0, _mix(r["_seq"], seed)) for r in rows]
        return Told(box.schema, made)

    def _filter(self, box: Filter) -> Told:
        parent = self.told[box.inputs[0]]
        told = Told(parent.schema, [], rejected=[])
        for made in parent.rows:
            value, failed = evaluate(box.condition, parent.schema, made.values)
            if failed:
                _listed(told.rejected).append((made.stamp, made.values))
            elif value is True:
                told.rows.append(made)
        return told

    def _map(self, box: Map) -> Told:
        parent = self.told[box.inputs[0]]
        rows, rejected = _projected(parent.rows, box.columns, parent.schema)
        return Told(_schema_of(box.columns, parent.schema), rows, rejected=rejected)

    def _drop(self, box: Drop) -> Told:
        parent = self.told[box.inputs[0]].rows
        kept = drop.reference(_rows(parent), box.every, box.fraction, box.seed)
        rows = [parent[r["_n"]] for r in kept]
        return self._kernel(self.told[box.inputs[0]].schema, [_one_to_one(m) for m in rows], dense=False)

    def _apply(self, box: Apply) -> Told:
        parent = self.told[box.inputs[0]]
        found = apply.reference(_rows(parent.rows), box.how, _over_lists(box, parent.schema))
        rows = []
        for stamp, values, first, last in found:
            a, b = parent.rows[first], parent.rows[last]
            within = [(0, m.stamp, m.pos) for m in parent.rows[first : last + 1]]
            ident = a.ident if box.how == "rows" else None
            rows.append(Made(values, stamp, 0, ident, tuple(within), (a.stamp, a.pos, b.stamp, b.pos, 0)))
        return self._kernel(box.schema, rows)

    # --- order ---

    def _sort(self, box: Sort) -> Told:
        parent = self.told[box.inputs[0]]
        end = self.admitted.finish
        emitted = sort.reference(_rows(parent.rows), box.on, box.slack, end)
        kind = parent.schema.field(box.on).type
        rows = []
        for stamp, row in emitted:
            made = _one_to_one(parent.rows[row["_n"]])
            tag = axis_of(pa.array([row[box.on]], kind))[0].view("int64")[0].item() if is_orderable(kind) else 0
            rows.append(Made(made.values, stamp, 0, made.ident, made.made_of, (*made.origin[:4], tag)))
        told = self._kernel(parent.schema, rows)
        told.late = [(m.stamp, m.pos) for m in parent.rows if not _stands(m.values[box.on])]
        return told

    def _union(self, box: Union) -> Told:
        parents = [self.told[name] for name in box.inputs]
        rows = []
        for stamp, number, row in union.reference(*(_rows(p.rows) for p in parents)):
            made = parents[number].rows[row["_n"]]
            origin = (made.stamp, made.pos, made.stamp, made.pos, number)
            rows.append(Made(made.values, stamp, 0, made.ident, ((number, made.stamp, made.pos),), origin))
        return self._kernel(parents[0].schema, rows)

    # --- two streams ---

    def _join(self, box: Join) -> Told:
        left, right = (self.told[name] for name in box.inputs)
        kind = left.schema.field(box.on[0]).type
        schema = join_schema((left.schema, right.schema), box.keys, box.suffix)
        kept = joined_columns(left.schema.names, right.schema.names, box.keys, box.suffix)

        def values(x: Mapping[str, Any], y: Mapping[str, Any] | None) -> Row:
            other = right.rows[y["_n"]].values if y is not None else dict.fromkeys(right.schema.names)
            both = [*left.rows[x["_n"]].values.values(), *(other[c] for c in kept)]
            return dict(zip(schema.names, both, strict=True))

        rejected: list[tuple[int, Row]] = []

        def where(x: Mapping[str, Any], y: Mapping[str, Any]) -> bool:
            value, failed = (True, False) if box.where is None else evaluate(box.where, schema, values(x, y))
            if failed:
                rejected.append((max(x["_stamp"], y["_stamp"]), values(x, y)))
            return value is True and not failed

        pairs = join.reference(
            _on_axis(left, box.on[0]), _on_axis(right, box.on[1]),
            [self.progress(name, on) for name, on in zip(box.inputs, box.on, strict=True)],
            box.on, span_of(box.low, kind, "within"), span_of(box.high, kind, "within"), box.keys, box.how, where,
        )  # fmt: skip
        rows = []
        for stamp, x, y in pairs:
            a, b = left.rows[x["_n"]], right.rows[y["_n"]] if y is not None else None
            origin = (a.stamp, a.pos, b.stamp if b else -1, b.pos if b else -1, 0)
            made_of = ((0, a.stamp, a.pos), *([(1, b.stamp, b.pos)] if b else []))
            ident = _mix_pair(a.ident, b.ident if b else 0)
            rows.append(Made(values(x, y), stamp, 0, ident, made_of, origin))
        told = self._kernel(schema, rows)
        told.rejected = rejected
        return told

    def _resample(self, box: Resample) -> Told:
        first, second = (self.told[name] for name in box.inputs)
        plan = split_aggregates(box.aggregations, (), what="", at="", columns=self.told[box.inputs[0]].schema.names)
        ready, rejected = self._before(first, plan.before)
        kind = second.schema.field(box.on[1]).type
        progress = [self.progress(name, on) for name, on in zip(box.inputs, box.on, strict=True)]
        within = span_of(box.within, kind, "within")
        found = resample.reference(
            _on_axis(ready, box.on[0]), _on_axis(second, box.on[1]), progress, box.on, within, box.by
        )
        rows = []
        for stamp, y, near in found:
            asks = second.rows[y["_n"]]
            used = [ready.rows[x["_n"]] for x in near]
            results = {c.out: value_of(c, [m.values for m in used]) for c in plan.calls}
            last = (used[-1].stamp, used[-1].pos) if used else (-1, -1)
            floor = _floor([value for at, value in progress[1] if at < asks.stamp], within, is_float_axis(kind))
            origin = (asks.stamp, asks.pos, *last, used[0].stamp if used else -1, floor)
            made_of = ((1, asks.stamp, asks.pos), *((0, m.stamp, m.pos) for m in used))
            rows.append(Made({**asks.values, **results}, stamp, 0, asks.ident, made_of, origin))
        calls = [pa.field(c.out, result_type(c, ready.schema)) for c in plan.calls]
        after = (*((n, f"`{n}`") for n in second.schema.names), *plan.after)
        return self._results(box, pa.schema([*second.schema, *calls]), rows, after, rejected, plan.calls)

    # --- windows ---

    def _window(self, box: Window) -> Told:
        parent = self.told[box.inputs[0]]
        plan = split_aggregates(box.aggregations, box.by, what="", at="", columns=parent.schema.names)
        ready, rejected = self._before(parent, plan.before)
        on = getattr(box.window, "on", None)
        steps = self.progress(box.inputs[0], on) if on else []
        expected, late = windows_of(box.window, box.by, ready.schema, _rows(ready.rows), steps)
        rows = []
        for window in expected:
            places = sorted((r["_stamp"], r["_pos"]) for r in window.rows)
            results = {c.out: value_of(c, window.rows) for c in plan.calls}
            groups = {b: _normal(v) for b, v in zip(box.by, window.group, strict=True)}
            made_of = tuple((0, *place) for place in places)
            origin = (*places[0], *places[-1], window.tag, window.floor)
            rows.append(Made({**groups, **results}, window.stamp, 0, None, made_of, origin))
        fields = [ready.schema.field(b) for b in box.by]
        fields += [pa.field(c.out, result_type(c, ready.schema)) for c in plan.calls]
        after = (*((b, f"`{b}`") for b in box.by), *plan.after)
        told = self._results(box, pa.schema(fields), rows, after, rejected, plan.calls)
        told.late = late
        return told

    # --- parts ---

    def _kernel(self, schema: pa.Schema, rows: list[Made], *, dense: bool = True) -> Told:
        for _, step in itertools.groupby(rows, key=lambda m: m.stamp) if dense else ():
            for pos, made in enumerate(step):
                made.pos = pos
        return Told(schema, rows, rows)

    def _before(self, parent: Told, columns: Sequence[tuple[str, str]]) -> tuple[Told, list[tuple[int, Row]]]:
        if not columns:
            return parent, []
        kept = [*((n, f"`{n}`") for n in parent.schema.names), *columns]
        rows, rejected = _projected(parent.rows, kept, parent.schema)
        return Told(_schema_of(kept, parent.schema), rows), rejected

    def _results(
        self, box: Box, schema: pa.Schema, rows: list[Made], after: Sequence[tuple[str, str]], rejected: Any,
        calls: Sequence[AggregateCall],
    ) -> Told:  # fmt: skip
        inner = self._kernel(schema, rows)
        self.inner_schemas[box.name], self.after[box.name] = schema, dict(after)
        out, failed = _projected(rows, after, schema)
        names = users_columns(schema.names, calls)
        told_of = [(stamp, dict(zip(names, row.values(), strict=True))) for stamp, row in failed]
        return Told(_schema_of(after, schema), out, inner.rows, rejected=[*rejected, *told_of])

    # --- progress ---

    def progress(self, name: str, column: str) -> Progress:
        """How far a column of a box's output has come, as (stamp, point of the axis), ascending."""
        box, told = self.boxes[name], self.told[name]
        kind = told.schema.field(column).type
        if isinstance(box, Source) and column == box.order:
            moves = [(stamp, to) for stream, stamp, to in self.admitted.moves if stream == name]
            return _peaks([*((m.stamp, _point(m.values[column], kind)) for m in told.rows), *moves])
        if isinstance(box, Filter | Drop):
            return self.progress(box.inputs[0], column)
        if isinstance(box, Map):
            parent = self.told[box.inputs[0]].schema
            return self._through(
                dict(box.columns)[column], parent, lambda c: self.progress(box.inputs[0], c), told, column
            )
        if isinstance(box, Window | Resample):
            schema = self.inner_schemas[name]
            inner = Told(schema, told.inner)
            return self._through(self.after[name][column], schema, lambda c: self._largest(inner, c), told, column)
        if isinstance(box, Union):
            return _slowest([self.progress(i, column) for i in box.inputs])
        if isinstance(box, Join):
            left = [c.lower() for c in self.told[box.inputs[0]].schema.names]
            right = box.on[1] + box.suffix if box.on[1].lower() in left else box.on[1]
            if column == box.on[0] or (column == right and box.on[1] not in [theirs for _, theirs in box.keys]):
                return _slowest([self.progress(i, on) for i, on in zip(box.inputs, box.on, strict=True)])
        return self._largest(told, column)

    def _through(
        self, sql: str, schema: pa.Schema, progress: Callable[[str], Progress], told: Told, column: str
    ) -> Progress:
        """Through a projection: the same, carried through a nondecreasing expression, or the largest value emitted."""
        for name in schema.names:
            if sql.strip("`").lower() == name.lower():
                return progress(name)
        for name in schema.names:
            kind = schema.field(name).type
            if is_orderable(kind) and is_monotone_in(sql, name):
                return self._mapped(sql, schema, name, progress(name), told.schema.field(column).type)
        return self._largest(told, column)

    def _mapped(self, sql: str, schema: pa.Schema, name: str, steps: Progress, out: pa.DataType) -> Progress:
        kind = schema.field(name).type
        found = []
        for stamp, point in steps:
            if point == axis_end(kind):
                found.append((stamp, axis_end(out)))
                continue
            row = {**dict.fromkeys(schema.names), name: from_axis(point, kind)}
            value, failed = evaluate(sql, schema, row)
            if not failed and _stands(value):
                found.append((stamp, _before_end(_point(value, out), out)))
        return _peaks(found)

    def _largest(self, told: Told, column: str) -> Progress:
        kind, finish = told.schema.field(column).type, self.admitted.finish
        ordered = is_orderable(kind)
        end = [] if finish is None else [(finish, axis_end(kind) if ordered else INFINITE)]
        rows = [m for m in told.rows if _stands(m.values[column])] if ordered else []
        points = [(m.stamp, _point(m.values[column], kind)) for m in rows]
        return _peaks([*((stamp, _before_end(p, kind)) for stamp, p in points if abs(p) != math.inf), *end])


def evaluate(sql: str, schema: pa.Schema, row: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value of an expression for one row, and whether it failed on it."""
    found = _compiled(sql, schema)
    seen = found.evaluate(pa.table([pa.array([row[f.name]], f.type) for f in schema], schema=schema))
    return seen.values.to_pylist()[0], seen.failed is not None and bool(seen.failed[0])


@lru_cache(maxsize=1024)
def _compiled(sql: str, schema: pa.Schema) -> Compiled:
    found = compile_expression(sql, schema)
    if found is None:
        raise ValueError(f"the reference cannot evaluate '{sql}'")
    return found


def _projected(
    rows: Sequence[Made], columns: Iterable[tuple[str, str]], schema: pa.Schema
) -> tuple[list[Made], list[tuple[int, Row]]]:
    out: list[Made] = []
    rejected: list[tuple[int, Row]] = []
    columns = list(columns)
    for made in rows:
        values, failures = {}, False
        for name, sql in columns:
            plain = sql.strip("`")
            values[name], failed = (
                (made.values[plain], False) if plain in made.values else evaluate(sql, schema, made.values)
            )
            failures = failures or failed
        if failures:
            rejected.append((made.stamp, made.values))
        else:
            out.append(Made(values, made.stamp, made.pos, made.ident, made.made_of, made.origin))
    return out, rejected


def _schema_of(columns: Iterable[tuple[str, str]], schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(name, _compiled(sql, schema).type) for name, sql in columns])


def _over_lists(box: Apply, schema: pa.Schema) -> Callable[..., Any]:
    """A user's function over Arrow as `apply.reference` calls it, over lists of dicts."""

    def table(rows: Sequence[Row]) -> pa.Table:
        return pa.table([pa.array([r[f.name] for r in rows], f.type) for f in schema], schema=schema)

    def one(row: Row) -> Row:
        return dict(box.function(table([row])).select(box.schema.names).to_pylist()[0])

    def stateful(state: Any, rows: Sequence[Row]) -> tuple[Any, list[tuple[int, int, Row]]]:
        after, out = box.function(state, table(rows))
        made = out.to_pylist()
        return after, [(r.get("_from", r["_row"]), r["_row"], {n: r[n] for n in box.schema.names}) for r in made]

    def opaque(rows: Sequence[Row]) -> list[Row]:
        return list(box.function(table(rows)).select(box.schema.names).to_pylist())

    forms: dict[str, Callable[..., Any]] = {"rows": one, "stateful": stateful, "opaque": opaque}
    return forms[box.how]


# --- rows and progress as the operators' references take them ---


def _rows(rows: Sequence[Made]) -> list[Row]:
    return [made.row(n) for n, made in enumerate(rows)]


def _on_axis(told: Told, column: str) -> list[Row]:
    """The rows with one column as points of its axis."""
    kind = told.schema.field(column).type
    values = [m.values[column] for m in told.rows]
    return [
        {**row, column: _point(v, kind) if _stands(v) else v} for row, v in zip(_rows(told.rows), values, strict=True)
    ]


def _one_to_one(made: Made) -> Made:
    place = made.stamp, made.pos
    return Made(made.values, made.stamp, made.pos, made.ident, ((0, *place),), (*place, *place, 0))


def _peaks(points: Iterable[tuple[int, Any]]) -> Progress:
    """The running maximum, one point a step."""
    found: Progress = []
    for stamp, value in sorted(points, key=lambda p: p[0]):
        if found and value <= found[-1][1]:
            continue
        if found and found[-1][0] == stamp:
            found.pop()
        found.append((stamp, value))
    return found


def _slowest(parts: Sequence[Progress]) -> Progress:
    """At every step the smaller; nothing before all have begun."""
    found = []
    for stamp in sorted({stamp for part in parts for stamp, _ in part}):
        seen = [[value for at, value in part if at <= stamp] for part in parts]
        if all(seen):
            found.append((stamp, min(values[-1] for values in seen)))
    return _peaks(found)


def _point(value: Any, kind: pa.DataType) -> Any:
    return axis_of(pa.array([value], kind))[0][0].item()


def _before_end(point: Any, kind: pa.DataType) -> Any:
    """A value that rows hold never ends a stream: only `finish()` does."""
    end = axis_end(kind)
    if point < end:
        return point
    return math.nextafter(end, 0) if is_float_axis(kind) else end - 1


def _stands(value: Any) -> bool:
    return value is not None and value == value


def _normal(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _visible(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _floor(before: Sequence[Any], within: Any, floats: bool) -> int:
    """Where a resample's rows begin that can still be used, as the origin index holds it."""
    if not before:
        return NO_FLOOR
    low = max(before) - within
    return int(np.float64(low).view(np.int64)) if floats else low


def _listed(rejected: list[tuple[int, Row]] | None) -> list[tuple[int, Row]]:
    assert rejected is not None
    return rejected


# --- names ---


def _mix(value: int, seed: int) -> int:
    z = (value + (seed + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    z = z ^ (z >> 31)
    return z - 2**64 if z >= 2**63 else z


def _mix_pair(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    return _mix(_mix(left, 1) ^ _mix(right, 2), 3)
