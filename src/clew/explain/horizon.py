"""How far back rows to come can reach, told by the network alone.

The static analysis of Glavic et al., "Efficient Stream Provenance", §4.3: where intervals cannot reach further into
the past than so many rows, or so long a span of the order, what lies before may be pruned. Count windows compose as
long as each row of their input stands for a known number of tuples. A b-sort may hold a tuple for any length of time,
so a source behind one has no static bound; nor has one whose groups may pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clew.engine.plan import KernelStep, Plan, SourceStep, Stateless, Step, rule
from clew.network.boxes import LINEAGE, Join, Resample, Window
from clew.network.boxes import ValueWindow as Value
from clew.operators.apply import ApplyKernel
from clew.operators.drop import DropKernel
from clew.operators.sort import SortKernel
from clew.operators.union import UnionKernel
from clew.operators.windows.count import CountKernel
from clew.operators.windows.prefix import PrefixKernel


@dataclass(frozen=True)
class Bound:
    """So many tuples from the newest back, and further by these spans."""

    rows: int
    spans: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " and ".join([f"the newest {self.rows:,}" if self.rows > 1 else "the newest", *self.spans])


@dataclass(frozen=True)
class Reach:
    """How far back into a source the rows of a step reach, along all paths.

    `spacing`: each of its rows stands for so many source tuples at most; None if that is not known, because of
    `uncounted`. `unbounded` says why nothing can be said beforehand; `forever`: no tuple can ever be let go.
    """

    bounds: tuple[Bound, ...] = (Bound(1),)
    spacing: int | None = 1
    uncounted: str = ""
    unbounded: str | None = None
    forever: bool = False

    def further(self, rows: int = 0, span: str | None = None) -> Reach:
        spans = () if span is None else (span,)
        return replace(self, bounds=tuple(Bound(b.rows + rows, (*b.spans, *spans)) for b in self.bounds))

    def without_bound(self, why: str, *, forever: bool = False) -> Reach:
        first = why if self.unbounded is None or (forever and not self.forever) else self.unbounded
        return replace(self, unbounded=first, forever=self.forever or forever)

    def uncountable(self, box: str) -> Reach:
        return self if self.spacing is None else replace(self, spacing=None, uncounted=box)

    @staticmethod
    def merged(parts: Sequence[Reach]) -> Reach:
        """Along several paths at once."""
        if len(parts) == 1:
            return parts[0]
        longest: dict[tuple[str, ...], int] = {}
        for bound in (b for part in parts for b in part.bounds):
            longest[bound.spans] = max(longest.get(bound.spans, 0), bound.rows)
        known = [part.spacing for part in parts if part.spacing is not None]
        worst = next((p for p in parts if p.forever), next((p for p in parts if p.unbounded is not None), parts[0]))
        return Reach(
            tuple(Bound(rows, spans) for spans, rows in longest.items()),
            min(known, default=None),
            parts[0].uncounted,
            worst.unbounded,
            worst.forever,
        )


@dataclass(frozen=True)
class SourceReach:
    """What is known beforehand of one source: how far rows to come reach back into it; None: none is made of it."""

    stream: str
    asked: bool  # its retention is "lineage"
    reach: Reach | None

    @property
    def bounded(self) -> bool:
        """Whether there is a static bound."""
        return self.reach is None or self.reach.unbounded is None

    def to_json(self) -> dict[str, Any]:
        reach = self.reach
        bounds = [] if reach is None else [{"rows": b.rows, "spans": list(b.spans)} for b in reach.bounds]
        return {
            "stream": self.stream, "lineage": self.asked, "bounds": bounds if self.bounded else None,
            "unbounded": None if reach is None else reach.unbounded, "forever": bool(reach and reach.forever),
        }  # fmt: skip

    def __str__(self) -> str:
        if self.reach is None:
            told = "no output is made of it"
        elif self.reach.forever:
            told = f"all of it may be asked for, for good: {self.reach.unbounded}"
        elif self.reach.unbounded is not None:
            told = f"no bound known beforehand: {self.reach.unbounded}; what boxes hold is looked at"
        else:
            told = f"rows to come reach back to {', or '.join(map(str, self.reach.bounds))}"
        return f"{self.stream}: {told}" + ("" if self.asked else " (nothing is pruned: its retention is not 'lineage')")


@dataclass(frozen=True)
class RetentionPlan:
    """Per source which of its tuples rows to come can be made of, by the network alone."""

    sources: tuple[SourceReach, ...]

    def __getitem__(self, stream: str) -> SourceReach:
        return next(s for s in self.sources if s.stream == stream)

    def to_json(self) -> list[dict[str, Any]]:
        return [s.to_json() for s in self.sources]

    def __str__(self) -> str:
        return "\n".join(map(str, self.sources))

    __repr__ = __str__


def retention_plan(plan: Plan) -> RetentionPlan:
    """What is known beforehand of all sources."""
    reaches: dict[str, dict[str, Reach]] = {}
    for step in plan.steps.values():
        reaches[step.name] = _through(plan, step, reaches)
    ends = {step for stream, step in plan.stored.items() if stream not in plan.sources}
    found = []
    for name, source in plan.sources.items():
        parts = [reaches[end][name] for end in plan.steps if end in ends and name in reaches[end]]
        reach = Reach.merged(parts) if parts else None
        found.append(SourceReach(name, source.source.retention == LINEAGE, reach))
    return RetentionPlan(tuple(found))


def leading_to_stored(plan: Plan) -> set[str]:
    """The steps that outputs and kept streams are made of; what another step holds is nothing to them."""
    found = {step for stream, step in plan.stored.items() if stream not in plan.sources}
    for step in reversed(plan.steps.values()):
        if step.name in found:
            found |= set(step.inputs)
    return found


def _through(plan: Plan, step: Step, reaches: Mapping[str, Mapping[str, Reach]]) -> dict[str, Reach]:
    if isinstance(step, SourceStep):
        return {step.name: Reach()}
    found = {}
    for source in dict.fromkeys(s for name in step.inputs for s in reaches[name]):
        before = Reach.merged([reaches[name][source] for name in step.inputs if source in reaches[name]])
        if isinstance(step, KernelStep):
            found[source] = _kernel(plan, step, before)
        else:
            filters = isinstance(step, Stateless) and step.condition is not None
            found[source] = before.uncountable(step.box) if filters else before
    return found


def _kernel(plan: Plan, step: KernelStep, before: Reach) -> Reach:
    kernel, box = step.kernel, f"box '{step.box}'"
    if isinstance(kernel, UnionKernel) or (isinstance(kernel, ApplyKernel) and kernel.how == "rows"):
        return before
    if isinstance(kernel, DropKernel):
        return before.uncountable(step.box)
    if isinstance(kernel, SortKernel):
        return before.uncountable(step.box).without_bound(f"{box} (sort) may hold a tuple for any length of time")
    if isinstance(kernel, PrefixKernel):
        kind = "landmark" if kernel.landmark else "latch"
        return before.without_bound(f"{box} ({kind}) makes its rows of all that there were", forever=True)
    if isinstance(kernel, ApplyKernel):
        return before.without_bound(f"{box} ({kernel.how}) may remember any tuple", forever=True)
    if isinstance(kernel, CountKernel):
        return _counted(kernel, box, before)
    return _by_value(plan, step, before)


def _counted(kernel: CountKernel, box: str, before: Reach) -> Reach:
    if kernel.by:
        told = f"{box} counts rows by {', '.join(kernel.by)}, and a group may pause"
        return before.without_bound(told).uncountable(box)
    if before.spacing is None:
        return before.without_bound(f"{box} counts rows, and box '{before.uncounted}' leaves some out")
    further = before.further(rows=(kernel.size - 1) * before.spacing)
    return replace(further, spacing=before.spacing * kernel.slide)


def _by_value(plan: Plan, step: KernelStep, before: Reach) -> Reach:
    """Windows, joins and resamples by value hold rows until progress has passed them by a span."""
    orders = [(name, c) for name, c in zip(step.inputs, step.kernel.progress_on, strict=True) if c is not None]
    after = before.uncountable(step.box)
    followed = set[tuple[str, str]]()
    for name, column in orders:
        leaves = _followed(plan, name, column)
        if leaves is None:
            told = f"box '{step.box}' goes by column '{column}' of rows that boxes make, and none may come"
            return after.without_bound(told)
        followed |= leaves
    span = _span(plan, step)
    slowest = sorted({name for name, _ in followed})
    return after.further(span=span + (f" behind the slowest of {', '.join(slowest)}" if len(slowest) > 1 else ""))


def _followed(plan: Plan, name: str, column: str) -> set[tuple[str, str]] | None:
    """The sources whose orders a column's progress follows; None if it is told by rows that boxes make."""
    step = plan.steps[name]
    if isinstance(step, SourceStep):
        return {(name, column)} if column == step.source.order else None
    follows = rule(step, column)
    if follows is None:
        return None
    parts = [_followed(plan, *each) for each in follows]
    return None if any(p is None for p in parts) else set().union(*_known(parts))


def _known(parts: Iterable[set[tuple[str, str]] | None]) -> list[set[tuple[str, str]]]:
    return [part for part in parts if part is not None]


def _span(plan: Plan, step: KernelStep) -> str:
    box = plan.network.box(step.box)
    if isinstance(box, Window) and isinstance(box.window, Value):
        return f"{box.window.span} of {box.window.on}"
    if isinstance(box, Join):
        return f"{box.low} to {box.high} of {box.on[0]}"
    assert isinstance(box, Resample)
    return f"{box.within} of {box.on[1]}"
