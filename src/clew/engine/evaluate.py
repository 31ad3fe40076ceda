"""One pass of an epoch's rows through the steps of a plan, whichever lane the steps run in."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from clew.archive.record import FileEntry
from clew.archive.store import Store
from clew.engine.pieces import Batch
from clew.engine.plan import KernelStep, Plan, SourceStep, Stateless, Step, compiled, placed, rule
from clew.errors import BoxFailed
from clew.model.axis import INFINITE, Axis, Number, axis_end, axis_of, column_at, is_orderable
from clew.model.places import among
from clew.model.rows import Ints, Rows, Stamps
from clew.model.steps import Steps
from clew.operators.band import within_end
from clew.operators.base import Origin, Refused, State
from clew.operators.lineage import Known

Flow = TypeVar("Flow")


@dataclass(frozen=True, eq=False)
class BoxStates:
    """What the boxes hold between epochs: kernels' state, and progress that follows from rows emitted."""

    kernels: Mapping[str, State] = field(default_factory=dict)
    progress: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Named:
    """Places and origins of the rows that a kernel emitted."""

    stamp: Ints
    pos: Ints
    origin: Origin


@dataclass(eq=False)
class StepMetrics:
    rows_in: int = 0
    rows_out: int = 0
    ms: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    lane: str = "driver"


@dataclass(frozen=True, eq=False)
class Ran:
    """What a stateless step did: how many rows it left, and those on which it failed."""

    step: Stateless
    rows_out: int
    refused: tuple[Refused, ...]


@dataclass(eq=False)
class KernelResult(Generic[Flow]):
    flow: Flow
    named: Named
    state: State
    late: tuple[Refused, ...]
    rejected: tuple[Refused, ...]
    ran: tuple[Ran, ...] = ()  # stateless steps that had waited for the kernel


class Lane(Protocol[Flow]):
    """Where steps run. A flow is a lane's form of the rows of one stream."""

    name: str

    def source(self, stream: str, batch: Batch, stamps: Stamps, first_seq: int) -> Flow: ...
    def stateless(self, step: Stateless, flow: Flow, shared: bool) -> tuple[Flow, tuple[Ran, ...]]:
        """The step's flow, and which steps have run; one that is not shared may wait for the next."""

    def kernel(
        self, step: KernelStep, state: State, flows: list[Flow], progress: list[Steps]
    ) -> KernelResult[Flow]: ...
    def count(self, flow: Flow) -> int: ...
    def column(self, flow: Flow, column: str) -> tuple[Ints, pa.ChunkedArray]: ...
    def rows_of(self, flow: Flow, columns: tuple[str, ...]) -> Rows:
        """Some columns of the rows of a flow that is shared."""

    def rows(self, flow: Flow) -> Rows: ...
    def write(self, store: Store, name: str, flow: Flow, first_seq: int, epoch: int) -> list[FileEntry]:
        """The rows of a box as buckets of a stored stream, numbered from `first_seq` on."""

    def write_ahead(
        self, store: Store, name: str, flow: Flow, first_seq: int, epoch: int
    ) -> Callable[[], list[FileEntry]]:
        """Begin to write a source's rows while boxes run; what it gives waits for the buckets."""

    def close(self) -> None: ...


@dataclass(eq=False)
class Pass(Generic[Flow]):
    """The result of a pass."""

    flows: dict[str, Flow]
    states: BoxStates
    named: dict[str, Named]
    late: dict[str, list[Refused]]
    rejected: dict[str, list[Refused]]
    metrics: dict[str, StepMetrics]
    logs: dict[tuple[str, int], Known] = field(default_factory=dict)  # by kernel step and input


@dataclass(frozen=True, eq=False)
class Sources(Generic[Flow]):
    """An epoch's admitted rows, how far each source's order has come, and the stamp of `finish()` if it ends."""

    flows: Mapping[str, Flow]
    steps: Mapping[str, Steps]
    finish: int | None = None


def evaluate(
    plan: Plan,
    lane: Lane[Flow],
    sources: Sources[Flow],
    states: BoxStates,
    logged: Collection[tuple[str, int]] = (),
) -> Pass[Flow]:
    """Run every step once, inputs first; log the inputs that shall be (kernel step and number of its input)."""
    run = _Run(plan, lane, sources, states, logged)
    for step in plan.steps.values():
        started = time.perf_counter()
        run.step(step)
        run.result.metrics[step.name].ms = (time.perf_counter() - started) * 1000
    result = run.result
    for name, metrics in result.metrics.items():
        metrics.rows_in = sum(result.metrics[parent].rows_out for parent in plan.steps[name].inputs)
    result.states = BoxStates(
        {name: run.kernel_states.get(name, {}) for name in plan.kernels},
        {**states.progress, **{k: s.end for k, s in run.from_rows.items() if s.end is not None}},
    )
    return result


class _Run(Generic[Flow]):
    def __init__(
        self,
        plan: Plan,
        lane: Lane[Flow],
        sources: Sources[Flow],
        states: BoxStates,
        logged: Collection[tuple[str, int]],
    ) -> None:
        self.plan, self.lane, self.sources, self.states, self.logged = plan, lane, sources, states, logged
        self.read_too = {plan.steps[name].inputs[port] for name, port in logged}
        self.result: Pass[Flow] = Pass({}, states, {}, {}, {}, {})
        self.kernel_states: dict[str, State] = {}
        self.from_rows: dict[str, Steps] = {}  # progress as the running maximum of a column, by "step column"
        self.memo: dict[str, Steps] = {}

    def step(self, step: Step) -> None:
        metrics = self.result.metrics[step.name] = StepMetrics(lane=self.lane.name)
        flows = [self.result.flows[name] for name in step.inputs]
        if isinstance(step, SourceStep):
            flow = self.result.flows[step.name] = self.sources.flows[step.name]
            metrics.rows_out = self.lane.count(flow)
        elif isinstance(step, Stateless):
            asked = bool(self._columns_asked(step)) or step.name in self.read_too
            shared = asked or len(self.plan.consumers[step.name]) != 1 or step.name in self.plan.stored.values()
            self.result.flows[step.name], ran = self.lane.stateless(step, flows[0], shared)
            self._ran(ran)
        elif isinstance(step, KernelStep):
            self._kernel(step, flows, metrics)
        for column in self._columns_asked(step):
            self.progress(step.name, column)

    def _kernel(self, step: KernelStep, flows: list[Flow], metrics: StepMetrics) -> None:
        state = self.states.kernels.get(step.name) or step.kernel.empty()
        wanted = zip(step.inputs, step.kernel.progress_on, strict=True)
        progress = [Steps.none() if c is None else self.progress(name, c) for name, c in wanted]
        try:
            made = self.lane.kernel(step, state, flows, progress)
        except BoxFailed as error:
            raise placed(error, self.plan.network.box(step.box), self.plan.network.name) from error
        self.result.flows[step.name] = made.flow
        self.result.named[step.name] = made.named
        self.kernel_states[step.name] = made.state
        self._log(step, flows, made.late)
        self._ran(made.ran)
        self._keep(self.result.late, step.box, made.late)
        self._keep(self.result.rejected, step.box, made.rejected)
        metrics.rows_out = self.lane.count(made.flow)
        metrics.state_rows = sum(len(t) for t in made.state.values())
        metrics.state_bytes = sum(t.nbytes for t in made.state.values())

    def _log(self, step: KernelStep, flows: list[Flow], late: tuple[Refused, ...]) -> None:
        """What is known of the rows that the kernel took, at the inputs that are logged."""
        for port, asked in enumerate(step.kernel.asks()):
            if asked is None or (step.name, port) not in self.logged:
                continue
            rows = self.lane.rows_of(flows[port], asked.columns)
            for refused in late:
                if refused.port == port:
                    rows = rows.filter(~among(rows, refused.rows.stamp, refused.rows.pos))
            self.result.logs[step.name, port] = Known.of(rows, asked)

    def _ran(self, ran: tuple[Ran, ...]) -> None:
        for each in ran:
            self.result.metrics[each.step.name].rows_out = each.rows_out
            self._keep(self.result.rejected, each.step.box, each.refused)

    def _keep(self, where: dict[str, list[Refused]], box: str, refused: tuple[Refused, ...]) -> None:
        found = [r for r in refused if len(r.rows)]
        if found:
            where.setdefault(box, []).extend(found)

    def _columns_asked(self, step: Step) -> list[str]:
        """Columns whose progress follows from this step's rows alone, so that it must be seen in every epoch."""
        return sorted(column for name, column in self.plan.asked_of_rows if name == step.name)

    # --- progress ---

    def progress(self, name: str, column: str) -> Steps:
        key = f"{name}\0{column}"
        if key not in self.memo:
            self.memo[key] = self._progress(self.plan.steps[name], column, key)
        return self.memo[key]

    def _progress(self, step: Step, column: str, key: str) -> Steps:
        if isinstance(step, SourceStep) and column == step.source.order:
            return self.sources.steps[step.name]
        follows = rule(step, column)
        if follows is None:
            return self._running(step, column, key)
        if isinstance(step, Stateless) and step.source_of(column)[0] == "monotone":
            mapped = self.from_rows[key] = self._mapped(step, column, self.progress(*follows[0]), key)
            return mapped
        return Steps.slowest([self.progress(*f) for f in follows])

    def _running(self, step: Step, column: str, key: str) -> Steps:
        kind = step.schema.field(column).type
        finish = self.sources.finish
        if not is_orderable(kind):
            done = np.array([] if finish is None else [finish], np.int64)
            return Steps(None, done, np.full(len(done), INFINITE, np.int64))
        stamp, values = self.lane.column(self.result.flows[step.name], column)
        axis, valid = axis_of(values)
        valid = valid & np.isfinite(axis)  # an infinite value says nothing of how far the stream has come
        if not valid.all():
            stamp, axis = stamp[valid], axis[valid]
        axis = within_end(axis)
        if finish is not None:
            stamp = np.append(stamp, finish)
            axis = _joined(axis, axis_end(kind))
        steps = Steps.running(self.states.progress.get(key), stamp, axis)
        self.from_rows[key] = steps
        return steps

    def _mapped(self, step: Stateless, column: str, steps: Steps, key: str) -> Steps:
        """Progress through a nondecreasing expression of one column; where that fails, it stays where it was."""
        sql = dict(step.columns or ())[column]
        _, name = step.source_of(column)
        kind = step.input_schema.field(str(name)).type
        made = compiled(sql, step.input_schema, step.zone)
        end, new_end = axis_end(kind), axis_end(step.schema.field(column).type)

        def through(values: Axis) -> Axis:
            ended = values == end
            plain = column_at(np.where(ended, 0, values), kind)
            table = pa.table({f.name: pa.nulls(len(plain), f.type) for f in step.input_schema})
            table = table.set_column(step.input_schema.get_field_index(str(name)), str(name), plain)
            mapped, valid = axis_of(made.evaluate(table).values)  # type: ignore[union-attr]
            mapped = within_end(mapped)
            return np.where(
                ended, new_end, np.where(valid, mapped, np.iinfo(np.int64).min if mapped.dtype == np.int64 else -np.inf)
            )

        start = None if steps.start is None else through(_point(steps.start))[0].item()
        before = self.states.progress.get(key)
        start = before if start is None or (before is not None and before > start) else start
        return Steps.running(start, steps.stamp, through(steps.value))


def _joined(axis: Axis, end: Number) -> Axis:
    return np.append(axis.astype(np.float64), end) if isinstance(end, float) else np.append(axis.astype(np.int64), end)


def _point(value: Number) -> Axis:
    return np.array([value], np.float64) if isinstance(value, float) else np.array([value], np.int64)
