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

    `past`: streams of earlier networks that this one lacks, by the mark of the box that fed each. `left`: the marks of
    boxes that this one lacks, each with the stamp up to which it has run; all others have run up to the last.
    """
    kernels = sorted(step_mark(plan, name) for name in plan.kernels)
    past: dict[str, str] = {}
    left: dict[str, int] = {}
    before = state.network
    if before is not None:
        past = dict(before.get("past", {}))
        past |= {s: before["prints"][box] for s, box in {**before["outputs"], **before["kept"]}.items()}
        left = dict(before.get("left", {})) | dict.fromkeys(before["prints"].values(), state.stamp)
    past = {s: mark for s, mark in past.items() if s not in plan.stored}
    left = {mark: stamp for mark, stamp in left.items() if mark not in plan.prints.values()}
    return {**as_json(plan.network), "prints": plan.prints, "kernels": kernels, "past": past, "left": left}


def boxes_behind(plan: Plan, known: Mapping[str, Any]) -> dict[str, int]:
    """The boxes that the stored network lacks, each with the stamp up to which an earlier one has run it."""
    running, left = set(known["prints"].values()), known.get("left", {})
    return {
        box: left.get(mark, 0) for box, mark in plan.prints.items() if mark not in running and box not in plan.sources
    }


def is_current(plan: Plan, known: Mapping[str, Any] | None) -> bool:
    """Whether the facts in the store are this network's; they name boxes, so a new name is a difference too."""
    if known is None:
        return False
    now = {**plan.network.outputs, **plan.network.kept}
    then = {**known["outputs"], **known["kept"]}
    return bool(known["prints"] == plan.prints and now == then)
