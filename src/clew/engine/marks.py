"""What of a network and its states is stored, under marks that survive renaming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clew.archive.record import EpochRecord
from clew.archive.state import State
from clew.engine.evaluate import BoxStates
from clew.engine.plan import Plan
from clew.network.drawing import as_json

Tables = dict[str, dict[str, pa.Table]]


def step_mark(plan: Plan, step: str) -> str:
    """A step's name with its box's fingerprint for the box's name."""
    box = plan.steps[step].box
    return plan.prints[box] + step[len(box) :]


def checkpoint_tables(plan: Plan, states: BoxStates) -> tuple[Tables, dict[str, Any]]:
    """The states of all boxes as a checkpoint holds them."""
    tables = {step_mark(plan, name): dict(state) for name, state in states.kernels.items()}
    progress = {}
    for key, value in states.progress.items():
        step, column = key.split("\0")
        if step in plan.steps:
            progress[f"{step_mark(plan, step)}\0{column}"] = value
    return tables, {"progress": progress}


def states_from(plan: Plan, tables: Mapping[str, Mapping[str, pa.Table]], meta: Mapping[str, Any]) -> BoxStates:
    """The inverse of `checkpoint_tables`, for those steps of the plan that the checkpoint knows."""
    kernels = {n: dict(tables[m]) for n in plan.kernels if (m := step_mark(plan, n)) in tables}
    progress = {}
    for name in plan.steps:
        mark = step_mark(plan, name)
        for key, value in meta["progress"].items():
            if key.split("\0")[0] == mark:
                progress[f"{name}\0{key.split(chr(0))[1]}"] = value
    return BoxStates(kernels, progress)


def checkpoint_meta(record: EpochRecord, progress: Mapping[str, Any]) -> dict[str, Any]:
    """Where a checkpoint stands: the epoch and the stamp that it is behind, how far each source's order had come."""
    return {"epoch": record.epoch, "stamp": record.stamp, "sources": dict(progress)}


def network_facts(plan: Plan, state: State) -> dict[str, Any]:
    """What the store remembers of a network from the epoch behind `state` on, to compare the next one with.

    `past`: streams of earlier networks that this one lacks, by the mark of the box that fed each. `left`: boxes that
    it lacks, each with its mark and the stamp up to which it has run; all others have run up to the last.
    """
    kernels = sorted(step_mark(plan, name) for name in plan.kernels)
    past: dict[str, str] = {}
    before = state.network
    if before is not None:
        past = dict(before.get("past", {}))
        past |= {s: before["prints"][box] for s, box in stored_boxes(before).items()}
    past = {s: mark for s, mark in past.items() if s not in plan.stored}
    _, left = _matched(plan, state)
    typed = {"typed": plan.typed} if plan.typed else {}
    return {**as_json(plan.network), "prints": plan.prints, "kernels": kernels, "past": past, "left": left, **typed}


def stored_boxes(known: Mapping[str, Any]) -> dict[str, str]:
    """The streams of a stored network, each with the box that feeds it."""
    sources = {b["name"]: b["name"] for b in known["boxes"] if b["kind"] == "source"}
    return {**sources, **known["outputs"], **known["kept"]}


def boxes_behind(plan: Plan, state: State) -> dict[str, int]:
    """The boxes that have not run over all that the store has, each with the stamp up to which it has."""
    ran, _ = _matched(plan, state)
    behind = {box: ran.get(box, 0) for box in plan.prints if box not in plan.sources}
    return {box: stamp for box, stamp in behind.items() if stamp < state.stamp}


def _matched(plan: Plan, state: State) -> tuple[dict[str, int], list[list[Any]]]:
    """How far each box has run in this or an earlier network, and the earlier boxes that this network lacks.

    A box is the same if its mark is, and of several with one mark the one of its name.
    """
    if state.network is None:
        return {}, []
    rest = [[box, mark, state.stamp] for box, mark in state.network["prints"].items()]
    rest += state.network.get("left", [])
    ran: dict[str, int] = {}
    for by_name in (True, False):
        for box, mark in plan.prints.items():
            same = [e for e in rest if e[1] == mark and (e[0] == box or not by_name)]
            if same and box not in ran:
                ran[box] = same[0][2]
                rest.remove(same[0])
    return ran, rest


def is_current(plan: Plan, known: Mapping[str, Any] | None) -> bool:
    """Whether the facts in the store are this network's; they name boxes, so a new name is a difference too."""
    if known is None:
        return False
    now = {**plan.network.outputs, **plan.network.kept}
    then = {**known["outputs"], **known["kept"]}
    return bool(known["prints"] == plan.prints and now == then)
