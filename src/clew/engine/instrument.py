"""Which part of a network carries annotations for P(O, I), and what each box does there.

Algorithm 1 of Glavic et al., "Efficient Stream Provenance", §3.3: a box that reads a stream of I generates annotations
(PG), one on the way from there to O propagates them (PP), and one that reads O drops them (PD). All others take no
part; neither does one behind which I is cut: what reads a stream of I starts anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from clew.engine.lineage import Input, stored_as
from clew.engine.marks import step_mark
from clew.engine.plan import KernelStep, Plan, Step

WRAPPED = ":wrapped"


@dataclass(frozen=True)
class Instrumented:
    """The part of a network that annotates some outputs: P(O, I) for each O, of one set I."""

    plan: Plan
    targets: Mapping[str, str]  # stream or box of I -> its step
    outputs: Mapping[str, str]  # stream O -> its step

    @cached_property
    def leads(self) -> dict[str, frozenset[str]]:
        """Of which streams in I the rows of each step can be made; what is in I is made of itself alone."""
        found: dict[str, frozenset[str]] = {}
        for step in self.plan.steps.values():
            own = frozenset(name for name, of in self.targets.items() if of == step.name)
            found[step.name] = own or frozenset(n for i in step.inputs for n in found[i])
        return found

    @cached_property
    def path(self) -> list[Step]:
        """The steps on a path from I to O, in the order in which they run."""
        ends, wanted, stack = set(self.targets.values()), set[str](), list(self.outputs.values())
        while stack:
            name = stack.pop()
            if name not in wanted and self.leads[name] and name not in ends:
                wanted.add(name)
                stack += self.plan.steps[name].inputs
        return [step for name, step in self.plan.steps.items() if name in wanted]

    @cached_property
    def kernels(self) -> list[KernelStep]:
        """The kernels among them."""
        return [step for step in self.path if isinstance(step, KernelStep)]

    @cached_property
    def logged(self) -> frozenset[Input]:
        """The inputs of which it must be known which rows kernels took."""
        asks = ((s.name, port, asked) for s in self.kernels for port, asked in enumerate(s.kernel.asks()))
        return frozenset((name, port) for name, port, asked in asks if asked is not None)

    @cached_property
    def roles(self) -> dict[str, str]:
        """What each box that takes part does: "PG", "PP" or "PD".

        A box that reads a stream of I and one that is not is neither PG nor PP in the paper: the stream is wrapped in
        a projection for it, which generates, and the box propagates. `readings:wrapped` is that projection; nothing
        runs for it, as each input of a box is annotated by itself.
        """
        ends = set(self.targets.values())
        named = {of: name for name, of in self.targets.items()}
        found: dict[str, str] = {}
        for box in dict.fromkeys(step.box for step in self.path):
            read = [self.plan.ends[name] for name in self.plan.network.box(box).inputs]
            mixed = any(i in ends for i in read) and not all(i in ends for i in read)
            if mixed:
                found |= {named[i] + WRAPPED: "PG" for i in read if i in ends}
            found[box] = "PG" if not mixed and any(i in ends for i in read) else "PP"
        for step in self.plan.steps.values():
            if any(i in self.outputs.values() for i in step.inputs):
                found.setdefault(step.box, "PD")
        return found


def instrumented(plan: Plan, wanted: Mapping[str, Collection[str]], steps: Mapping[str, str]) -> list[Instrumented]:
    """For each output its set I; outputs of one I share a part. `steps` names the step of each stream and box."""
    outputs: dict[frozenset[str], dict[str, str]] = {}
    for stream, names in wanted.items():
        outputs.setdefault(frozenset(names), {})[stream] = plan.stored[stream]
    return [Instrumented(plan, {n: steps[n] for n in sorted(names)}, found) for names, found in outputs.items()]


def key_of(plan: Plan, step: str) -> str:
    """Under what name annotations by a step's rows are stored: its stream's; else its mark, which stays with it."""
    return stored_as(plan, step) or step_mark(plan, step)
