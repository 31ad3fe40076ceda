"""From a network to steps: stateless projections and filters, and kernels between them.

A window becomes three steps: the arguments of its aggregates projected, the kernel, the results
projected. Each step knows its schema; expressions that Arrow kernels cannot take are marked for Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol

import pyarrow as pa

from clew.errors import BatchError, ClewError, NetworkError, TypeProblem, WindowError
from clew.expressions.aggregates import AggregateCall, AggregatePlan, in_users_words, split_aggregates, users_columns
from clew.expressions.compile import Compiled, Evaluated, compile_expression, is_monotone_in
from clew.expressions.parse import too_deep
from clew.model.axis import is_orderable, span_of
from clew.model.rows import Bools, Rows
from clew.model.types import type_name
from clew.network.boxes import (
    Apply,
    Box,
    Drop,
    Filter,
    Join,
    Landmark,
    Map,
    Resample,
    Sort,
    Source,
    Union,
    Window,
    WindowKind,
)
from clew.network.drawing import box_json
from clew.network.network import Network
from clew.operators.apply import ApplyKernel
from clew.operators.band import check_pair
from clew.operators.base import Kernel, Refused
from clew.operators.drop import DropKernel
from clew.operators.join import JoinKernel
from clew.operators.resample import ResampleKernel
from clew.operators.sort import SortKernel
from clew.operators.union import UnionKernel
from clew.operators.windows import window_kernel

Columns = tuple[tuple[str, str], ...]


class Typer(Protocol):
    """Gives the types that Spark finds for expressions over a schema; raises `TypeProblem`."""

    def __call__(self, columns: Columns, schema: pa.Schema, box: Box) -> list[pa.DataType]: ...


@lru_cache(maxsize=4096)
def compiled(sql: str, schema: pa.Schema, zone: str) -> Compiled | None:
    """An expression for Arrow, compiled once a process; None if it is Spark's."""
    return compile_expression(sql, schema, zone=zone)


def plain_name(sql: str) -> str:
    """The column that an expression names, if it does no more than that."""
    return sql.strip("`")


@dataclass(frozen=True)
class Step:
    """A part of a box that runs as one."""

    name: str
    box: str
    inputs: tuple[str, ...]
    schema: pa.Schema = field(compare=False)


@dataclass(frozen=True)
class SourceStep(Step):
    source: Source = field(compare=False)


@dataclass(frozen=True)
class Stateless(Step):
    """Rows filtered by a condition, or projected; a place stays a place."""

    input_schema: pa.Schema = field(compare=False)
    zone: str
    condition: str | None = None
    columns: Columns | None = None
    calls: tuple[AggregateCall, ...] = field(default=(), compare=False)  # whose results are columns of the input

    def refused(self, rows: Rows, reasons: Iterable[str]) -> Refused:
        """Input rows on which it failed, in the user's words."""
        names = users_columns(rows.table.column_names, self.calls)
        said = tuple(in_users_words(reason, self.calls) for reason in reasons)
        return Refused(rows.with_table(rows.table.rename_columns(names)), said)

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.condition,) if self.condition is not None else tuple(sql for _, sql in self.columns or ())

    @cached_property
    def on_arrow(self) -> bool:
        """Whether all its expressions run over Arrow in clew's own evaluator."""
        return all(compiled(sql, self.input_schema, self.zone) is not None for sql in self.expressions)

    def source_of(self, column: str) -> tuple[str, str | None]:
        """How this column's progress follows from the input's: ('same', c), ('monotone', c) or ('rows', None)."""
        if self.columns is None:
            return "same", column
        sql = dict(self.columns)[column]
        known = compiled(sql, self.input_schema, self.zone) is not None
        for name in self.input_schema.names:
            if plain_name(sql).lower() == name.lower():
                return "same", name
            if known and is_orderable(self.input_schema.field(name).type) and is_monotone_in(sql, name):
                return "monotone", name
        return "rows", None


@dataclass(frozen=True)
class KernelStep(Step):
    kernel: Kernel = field(compare=False)
    merges: bool = False  # its progress is the smaller of its inputs' (union, join), else the largest value emitted
    passes: bool = False  # its progress is its input's (drop)

    def progress_inputs(self, column: str) -> list[tuple[int, str]]:
        """Which input columns' progress an output column follows; empty: the largest value emitted."""
        if self.passes:
            return [(0, column)]
        if not self.merges:
            return []
        if isinstance(self.kernel, UnionKernel):
            return [(port, column) for port in range(len(self.inputs))]
        assert isinstance(self.kernel, JoinKernel)
        return list(enumerate(self.kernel.on)) if column in self.kernel.order_columns else []


@dataclass(frozen=True)
class Plan:
    """The steps in the order in which they run, and what of them is stored."""

    network: Network
    steps: dict[str, Step]
    ends: dict[str, str]  # box -> its last step
    stored: dict[str, str]  # stream -> step
    prints: dict[str, str]  # box -> fingerprint of it and all behind it
    typed: dict[str, dict[str, str]] = field(default_factory=dict)  # box -> expression -> the type that Spark found

    @cached_property
    def consumers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.steps}
        for step in self.steps.values():
            for parent in step.inputs:
                found[parent].append(step.name)
        return found

    @cached_property
    def kernels(self) -> dict[str, KernelStep]:
        return {n: s for n, s in self.steps.items() if isinstance(s, KernelStep)}

    @cached_property
    def sources(self) -> dict[str, SourceStep]:
        return {n: s for n, s in self.steps.items() if isinstance(s, SourceStep)}

    @cached_property
    def asked_of_rows(self) -> frozenset[tuple[str, str]]:
        """All (step, column) whose progress is the largest value emitted and that some kernel goes by."""
        found: set[tuple[str, str]] = set()
        stack = [
            (name, column)
            for step in self.kernels.values()
            for name, column in zip(step.inputs, step.kernel.progress_on, strict=True)
            if column is not None
        ]
        while stack:
            name, column = stack.pop()
            step = self.steps[name]
            if isinstance(step, SourceStep) and column == step.source.order:
                continue
            follows = rule(step, column)
            if follows is None:
                found.add((name, column))
            else:
                stack.extend(follows)
        return frozenset(found)


def rule(step: Step, column: str) -> list[tuple[str, str]] | None:
    """Which progress this one follows, as (step, column); None: the largest value of the step's own rows."""
    if isinstance(step, Stateless):
        how, name = step.source_of(column)
        return None if how == "rows" else [(step.inputs[0], str(name))]
    if isinstance(step, KernelStep):
        return [(step.inputs[port], c) for port, c in step.progress_inputs(column)] or None
    return None


def build_plan(network: Network, typer: Typer, zone: str = "UTC") -> Plan:
    """Type every box, make its kernel; errors name the box and the user's line."""
    builder = _Builder(network, typer, zone)
    for box in network.boxes:
        builder.box(box)
    ends = builder.ends
    stored = {stream: ends[box] for stream, box in network.stored.items()}
    return Plan(network, builder.steps, ends, stored, fingerprints(network), builder.typed)


def fingerprints(network: Network) -> dict[str, str]:
    """A mark per box that changes when it, or anything that feeds it, means something else. Names don't count.

    Of boxes that mean the same each has a mark of its own: what one holds is not the other's.
    """
    marks: dict[str, str] = {}
    alike: Counter[str] = Counter()
    for box in network.boxes:
        facts = {k: v for k, v in box_json(box).items() if k not in ("name", "at", "inputs")}
        if isinstance(box, Source):  # what only bounds the archive or the waiting may change
            facts = {k: v for k, v in facts.items() if k not in ("retention", "max_ahead", "lateness")} | {
                "name": box.name
            }
        text = json.dumps([facts, [marks[p] for p in box.inputs]], sort_keys=True, default=str)
        mark = hashlib.sha256(text.encode()).hexdigest()[:24]
        alike[mark] += 1
        marks[box.name] = mark if alike[mark] == 1 else f"{mark}-{alike[mark]}"
    return marks


class _Builder:
    def __init__(self, network: Network, typer: Typer, zone: str) -> None:
        self.network, self.typer, self.zone = network, typer, zone
        self.steps: dict[str, Step] = {}
        self.ends: dict[str, str] = {}
        self.typed: dict[str, dict[str, str]] = {}

    def box(self, box: Box) -> None:
        try:
            getattr(self, f"_{box.kind}")(box)
        except ClewError as error:
            raise placed(error, box, self.network.name) from error
        except RecursionError as error:
            raise placed(too_deep("has"), box, self.network.name) from error

    def _end(self, step: Step) -> None:
        self.steps[step.name] = step
        self.ends[step.box] = step.name

    def _inputs(self, box: Box) -> list[Step]:
        return [self.steps[self.ends[name]] for name in box.inputs]

    def _source(self, box: Source) -> None:
        self._end(SourceStep(box.name, box.name, (), box.schema, box))

    def _filter(self, box: Filter) -> None:
        (parent,) = self._inputs(box)
        (kind,) = self._types((("condition", box.condition),), parent.schema, box)
        if not pa.types.is_boolean(kind):
            raise TypeProblem(f"filters by '{box.condition}', which is {type_name(kind).upper()}, not BOOLEAN")
        self._end(Stateless(box.name, box.name, (parent.name,), parent.schema, parent.schema, self.zone, box.condition))

    def _map(self, box: Map) -> None:
        (parent,) = self._inputs(box)
        self._end(self._projection(box.name, box, parent, box.columns))

    def _window(self, box: Window) -> None:
        (parent,) = self._inputs(box)
        names = parent.schema.names
        plan = split_aggregates(box.aggregations, box.by, what=f"box '{box.name}' (window)", at=box.at, columns=names)
        _flat(parent.schema, box.by, "groups by")
        ready = self._before(box, parent, plan)
        kernel = window_kernel(self._in_zone(box.window, parent.schema), box.by, plan.calls, ready.schema)
        step = KernelStep(f"{box.name}:windows", box.name, (ready.name,), kernel.schema, kernel)
        self.steps[step.name] = step
        self._end(self._projection(box.name, box, step, _keep(box.by) + plan.after, plan.calls))

    def _in_zone(self, window: WindowKind, schema: pa.Schema) -> WindowKind:
        """The window with its landmark as a value of the column, a time without a zone taken in the store's."""
        if not isinstance(window, Landmark) or window.on is None:
            return window
        from clew.engine.batches import one_value  # a network is checked without waiting for pandas

        field = schema.field(window.on)
        try:
            return replace(window, start=one_value(window.start, field, "a landmark", self.zone))
        except BatchError as error:
            raise WindowError(
                f"a landmark at {window.start!r}: not a value of type {type_name(field.type).upper()}"
            ) from error

    def _resample(self, box: Resample) -> None:
        rows, ticks = self._inputs(box)
        names = rows.schema.names
        plan = split_aggregates(box.aggregations, (), what=f"box '{box.name}' (resample)", at=box.at, columns=names)
        ready = self._before(box, rows, plan)
        check_pair((rows.schema, ticks.schema), box.on, box.by)
        for parent, keys in ((rows, [mine for mine, _ in box.by]), (ticks, [theirs for _, theirs in box.by])):
            _flat(parent.schema, keys, "matches by")
        within = span_of(box.within, ticks.schema.field(box.on[1]).type, "within")
        if within < 0:
            raise NetworkError(f"has within={box.within!r}, which holds nothing")
        kernel = ResampleKernel(box.on, within, box.by, plan.calls, (ready.schema, ticks.schema))
        step = KernelStep(f"{box.name}:windows", box.name, (ready.name, ticks.name), kernel.schema, kernel)
        self.steps[step.name] = step
        self._end(self._projection(box.name, box, step, _keep(ticks.schema.names) + plan.after, plan.calls))

    def _join(self, box: Join) -> None:
        left, right = self._inputs(box)
        check_pair((left.schema, right.schema), box.on, box.keys)
        _flat(left.schema, [mine for mine, _ in box.keys], "joins by")
        order = left.schema.field(box.on[0]).type
        low, high = span_of(box.low, order, "within"), span_of(box.high, order, "within")
        if low > high:
            raise NetworkError(f"joins within ({box.low!r}, {box.high!r}), which holds nothing")
        schemas, inputs = (left.schema, right.schema), (left.name, right.name)
        kernel = JoinKernel(box.on, low, high, box.keys, None, box.how, schemas, box.suffix)
        if box.where is not None:
            (kind,) = self._types((("where", box.where),), kernel.schema, box)
            if not pa.types.is_boolean(kind):
                raise TypeProblem(f"has a condition '{box.where}', which is {type_name(kind).upper()}, not BOOLEAN")
            if compiled(box.where, kernel.schema, self.zone) is None:
                pairs = KernelStep(f"{box.name}:pairs", box.name, inputs, kernel.schema, kernel, merges=True)
                self._filtered_join(box, box.where, pairs)
                return
            residual = Residual(box.where, kernel.schema, self.zone)
            kernel = JoinKernel(box.on, low, high, box.keys, residual, box.how, schemas, box.suffix)
        self._end(KernelStep(box.name, box.name, inputs, kernel.schema, kernel, merges=True))

    def _filtered_join(self, box: Join, where: str, pairs: KernelStep) -> None:
        """A condition that Spark evaluates, on the pairs that there are without it: those of an inner join."""
        if box.how != "inner":
            raise NetworkError(
                f"has a condition that only Spark can evaluate, in a left join: '{where}'",
                hint="compute its parts in a .map(...) before the join, as numbers, texts or times to compare here",
            )
        self.steps[pairs.name] = pairs
        schema = pairs.schema
        self._end(Stateless(box.name, box.name, (pairs.name,), schema, schema, self.zone, condition=where))

    def _union(self, box: Union) -> None:
        parents = self._inputs(box)
        for other in parents[1:]:
            for mine, theirs in zip(parents[0].schema, other.schema, strict=True):
                if mine.type != theirs.type:
                    kinds = f"{type_name(mine.type).upper()} and {type_name(theirs.type).upper()}"
                    raise TypeProblem(
                        f"joins column '{mine.name}' as {kinds}",
                        hint="cast one of them in a .map(...) before",
                    )
        kernel = UnionKernel(parents[0].schema, len(parents))
        self._end(KernelStep(box.name, box.name, tuple(p.name for p in parents), kernel.schema, kernel, merges=True))

    def _sort(self, box: Sort) -> None:
        (parent,) = self._inputs(box)
        _flat(parent.schema, (box.on,), "sorts by")
        self._kernel(box, parent, SortKernel(box.on, box.slack, parent.schema))

    def _drop(self, box: Drop) -> None:
        (parent,) = self._inputs(box)
        kernel = DropKernel(box.every, box.fraction, box.seed, parent.schema)
        self._end(KernelStep(box.name, box.name, (parent.name,), kernel.schema, kernel, passes=True))

    def _apply(self, box: Apply) -> None:
        (parent,) = self._inputs(box)
        self._kernel(box, parent, ApplyKernel(box.function, box.schema, box.how, parent.schema))

    # --- parts ---

    def _kernel(self, box: Box, parent: Step, kernel: Kernel) -> None:
        self._end(KernelStep(box.name, box.name, (parent.name,), kernel.schema, kernel))

    def _before(self, box: Box, parent: Step, plan: AggregatePlan) -> Step:
        if not plan.before:
            return parent
        step = self._projection(f"{box.name}:arguments", box, parent, _keep(parent.schema.names) + plan.before)
        self.steps[step.name] = step
        return step

    def _projection(
        self, name: str, box: Box, parent: Step, columns: Columns, calls: tuple[AggregateCall, ...] = ()
    ) -> Stateless:
        try:
            types = self._types(columns, parent.schema, box)
        except TypeProblem as error:
            said, *details = (in_users_words(text, calls) for text in (error.message, *error.details))
            raise TypeProblem(said, details=details, hint=error.hint, at=error.at) from error
        fields = [pa.field(out, kind) for (out, _), kind in zip(columns, types, strict=True)]
        words = tuple(replace(call, user=None) for call in calls)
        return Stateless(
            name, box.name, (parent.name,), pa.schema(fields), parent.schema, self.zone, columns=columns, calls=words
        )

    def _types(self, columns: Columns, schema: pa.Schema, box: Box) -> list[pa.DataType]:
        found = [compiled(sql, schema, self.zone) for _, sql in columns]
        if all(f is not None for f in found):
            return [f.type for f in found if f is not None]
        types = self.typer(columns, schema, box)
        names = (type_name(kind) for kind in types)
        self.typed.setdefault(box.name, {}).update(zip((sql for _, sql in columns), names, strict=True))
        return types


@dataclass(frozen=True)
class Residual:
    """A join's further condition, as its kernel calls it; crosses processes as text."""

    sql: str
    schema: pa.Schema
    zone: str

    def keep(self, table: pa.Table) -> tuple[Bools, Evaluated]:
        found = compiled(self.sql, self.schema, self.zone)
        assert found is not None
        return found.keep(table)


def _keep(names: Sequence[str]) -> Columns:
    return tuple((n, f"`{n}`") for n in names)


def _flat(schema: pa.Schema, columns: Sequence[str], verb: str) -> None:
    for column in columns:
        if pa.types.is_nested(schema.field(column).type):
            raise TypeProblem(f"{verb} '{column}', which is {type_name(schema.field(column).type).upper()}")


def placed(error: ClewError, box: Box, network: str) -> ClewError:
    """The error with the box's name, kind and line, unless it has them."""
    if error.message.startswith("box "):
        return error
    where = f"box '{network}.{box.name}' ({box.kind})"
    return type(error)(f"{where} {error.message}", details=error.details, hint=error.hint, at=error.at or box.at)


__all__ = [
    "KernelStep",
    "Plan",
    "Residual",
    "SourceStep",
    "Stateless",
    "Step",
    "build_plan",
    "compiled",
    "fingerprints",
    "rule",
]
