"""What lineage a run writes: its mode for each box, and which inputs are logged for it.

`exact` writes the origins of a box, and for a window over what other boxes made a log of its input: place, group and
where it stands, of each row that the box took. With these every row a window is made of is looked up, and nothing is
run again. `interval` writes origins only: what lies between the ends of a window is made again when it is asked for.
Windows over a source or a stored stream need no log in either: the archive is theirs. `off` writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.engine.marks import step_mark
from clew.engine.plan import KernelStep, Plan, Stateless, placed
from clew.errors import LineageError, nearest
from clew.network.naming import shown
from clew.operators.apply import ApplyKernel

Input = tuple[str, int]  # a kernel step, and the number of one of its inputs
MODES = ("exact", "interval", "off")


@dataclass(frozen=True)
class Modes:
    """The mode of each box, by its name; of all others `every`."""

    every: str = "exact"
    boxes: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(given: object) -> Modes:
        """From a mode, or modes by box with `"*"` for all others."""
        if isinstance(given, Modes):
            return given
        if isinstance(given, str):
            given = {"*": given}
        if not isinstance(given, Mapping) or not all(isinstance(n, str) for n in given):
            raise LineageError(
                f"lineage={shown(given)} is no mode", hint=f"one of {', '.join(MODES)}, or {{'*': mode, 'box': mode}}"
            )
        for mode in given.values():
            if mode not in MODES:
                named = f"'{mode}'" if isinstance(mode, str) else shown(mode)
                raise LineageError(
                    f"no lineage mode {named}", details=[f"modes: {', '.join(MODES)}"], hint=nearest(mode, MODES)
                )
        return Modes(given.get("*", "exact"), {n: m for n, m in given.items() if n != "*"})

    def __getitem__(self, box: str) -> str:
        return self.boxes.get(box, self.every)

    def to_json(self) -> dict[str, str]:
        return {"*": self.every, **self.boxes}


@dataclass(frozen=True)
class Chain:
    """The stateless steps that lead to an input, and the step whose rows have their places from elsewhere."""

    base: str
    steps: tuple[Stateless, ...]


def chain_to(plan: Plan, name: str, *, through_stored: bool = False) -> Chain:
    """From a step back to the first that is a source, a kernel or, unless it is passed, stored."""
    steps: list[Stateless] = []
    kept = set() if through_stored else set(plan.stored.values())
    while isinstance(step := plan.steps[name], Stateless) and name not in kept:
        steps.append(step)
        (name,) = step.inputs
    return Chain(name, tuple(reversed(steps)))


def is_stored(plan: Plan, step: str) -> bool:
    """Whether the rows of a step can be read from the store."""
    return step in plan.stored.values()


def stored_as(plan: Plan, step: str, name: str | None = None) -> str | None:
    """The stream under which the rows of a step are stored, if they are: the one of that name, or the first."""
    streams = [stream for stream, of in plan.stored.items() if of == step]
    return name if name in streams else next(iter(streams), None)


def logged_inputs(plan: Plan, modes: Modes) -> frozenset[Input]:
    """The inputs of boxes in exact mode whose rows could only be had again by running other boxes."""
    found: set[Input] = set()
    for name, step in plan.kernels.items():
        if modes[step.box] != "exact":
            continue
        for port, asked in enumerate(step.kernel.asks()):
            chain = chain_to(plan, step.inputs[port])
            plain = asked is not None and not asked.columns and all(s.condition is None for s in chain.steps)
            noted = modes[plan.steps[chain.base].box] != "off"  # then its origins tell the places
            if asked is not None and not is_stored(plan, chain.base) and not (plain and noted):
                found.add((name, port))
    return frozenset(found)


def traced_steps(plan: Plan, modes: Modes) -> frozenset[str]:
    """The steps whose origins are written."""
    return frozenset(name for name, step in plan.kernels.items() if modes[step.box] != "off")


def log_mark(plan: Plan, of: Input) -> str:
    """Under which mark the log of an input stands."""
    return f"{step_mark(plan, of[0])}<{of[1]}"


def check_modes(plan: Plan, modes: Modes) -> None:
    """Refuse modes of boxes that are not there, and `interval` where rows cannot be made again."""
    for box in modes.boxes:
        if box not in plan.ends or box in plan.sources:
            known = [name for name in plan.ends if name not in plan.sources]
            raise LineageError(
                f"a lineage mode was given for box '{box}', which network '{plan.network.name}' does not have",
                details=[f"boxes: {', '.join(known)}"],
                hint=nearest(box, known),
            )
    lacking = {}
    for step in plan.kernels.values():
        if modes[step.box] == "interval" and (found := _not_remade(plan, step)) is not None:
            lacking[step.box] = found
    for box, found in lacking.items():
        rest = {**modes.to_json(), **dict.fromkeys(lacking, "exact")}
        problem = LineageError(
            "cannot be replayed: lineage='interval' could not explain what it made",
            details=[_why_not(found), *([f"asked for box '{box}'"] if found.box != box else [])],
            hint=f"lineage={rest} traces it as it happens",
        )
        raise placed(problem, plan.network.box(found.box), plan.network.name)


def _not_remade(plan: Plan, step: KernelStep) -> KernelStep | None:
    """The box itself, or one that its windows are made of, if its rows cannot be made again."""
    asked = [i for i, a in zip(step.inputs, step.kernel.asks(), strict=True) if a is not None]
    return next((found for found in (step, *_made_again(plan, asked)) if not found.kernel.remakes), None)


def _why_not(step: KernelStep) -> str:
    if isinstance(step.kernel, ApplyKernel):
        return "its function may remember any row it has seen"
    return "its aggregates go by an order of the rows that is not told by them"


def _made_again(plan: Plan, steps: Sequence[str]) -> list[KernelStep]:
    """The kernels that must run again for the rows of these steps, each once."""
    found: dict[str, KernelStep] = {}
    stack = [chain_to(plan, name).base for name in steps]
    while stack:
        step = plan.steps[stack.pop()]
        if isinstance(step, KernelStep) and not is_stored(plan, step.name) and step.name not in found:
            found[step.name] = step
            stack += [chain_to(plan, name).base for name in step.inputs]
    return list(found.values())


def lineage_facts(plan: Plan, modes: Modes, since: Mapping[str, int], last: int) -> dict[str, Any]:
    """What an epoch's record says: its modes, and by mark the stamps it covers: up to `last`, `since` by box."""
    marks = {step_mark(plan, name): plan.steps[name].box for name in traced_steps(plan, modes)}
    marks |= {log_mark(plan, of): plan.steps[of[0]].box for of in logged_inputs(plan, modes)}
    covers = {mark: [since[box], last] for mark, box in marks.items() if box in since and since[box] <= last}
    return {"modes": modes.to_json(), "covers": covers}
