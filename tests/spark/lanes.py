"""What the Spark lane does, with its tasks run here: as often, and failing as often, as a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from clew.archive.store import Store

Task = Callable[[Any], Any]
SPARK = "clew.engine.lanes.spark"


def distribute_everything(patch: pytest.MonkeyPatch) -> None:
    """Let no step with a row be too small for a job."""
    patch.setattr(f"{SPARK}.SMALL", 1)


def tasks_here(patch: pytest.MonkeyPatch, run: Callable[[Task, Any], Any] | None = None) -> list[int]:
    """Run tasks in this process, through the same serialisations; the numbers of tasks of the jobs so far."""
    sizes: list[int] = []

    def run_tasks(_: Any, task: Task, arguments: Sequence[Any]) -> list[Any]:
        if arguments:
            sizes.append(len(arguments))
        sent = [cloudpickle.loads(cloudpickle.dumps((task, a))) for a in arguments]
        return [json.loads(json.dumps(run(t, a) if run else t(a))) for t, a in sent]

    patch.setattr(f"{SPARK}.run_tasks", run_tasks)
    patch.setattr(f"{SPARK}.tasks_at_once", lambda _: 1)
    return sizes


def stray_files(store: Store) -> list[str]:
    """Files in a store's folders that no record names."""
    found: list[str] = []
    for kind in ("streams", "tables"):
        for name, folder in store.state.folders(kind).items():  # type: ignore[arg-type]
            doomed = {d.path for d in store.state.doomed if (d.kind, d.name) == (kind, name)}
            place: Path = store.layout.folder(kind, name)  # type: ignore[arg-type]
            found += [str(p) for p in place.glob("*.parquet") if p.name not in {*folder.files, *doomed}]
    return found + [str(p) for p in store.layout.cache.rglob("*") if p.is_file()]
