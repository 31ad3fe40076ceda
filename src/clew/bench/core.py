"""What a benchmark is, and how one is run and written down."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clew.bench.figures import Case, Figure, figure

Progress = Callable[[str], None]


@dataclass
class Samples:
    """All that a run measured: per case the value of each round, and the raw seconds, bytes and counts behind it."""

    cases: dict[str, list[float]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, case: str, value: float) -> None:
        self.cases.setdefault(case, []).append(value)

    def measured(self, **facts: Any) -> None:
        self.raw.append(facts)


@dataclass(frozen=True)
class Bench:
    """A benchmark: its cases, and the function that measures them. `quick` ends within a minute."""

    name: str
    title: str
    cases: tuple[Case, ...]
    run: Callable[[bool, Progress], Samples]

    def to_json(self) -> dict[str, Any]:
        """Its name, what its module says about it, and its cases with their aims."""
        about = inspect.getdoc(inspect.getmodule(self.run)) or self.title
        return {"name": self.name, "title": self.title, "about": about, "cases": [asdict(c) for c in self.cases]}


def environment() -> dict[str, Any]:
    """Where a benchmark ran, and how busy it is there."""
    packages = ("clew", "pyspark", "pyarrow", "numpy", "pandas", "deltalake")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "load": round(os.getloadavg()[0], 2),
        "packages": {name: version(name) for name in packages},
    }


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def measure(bench: Bench, quick: bool, progress: Progress) -> dict[str, Any]:
    """Run a benchmark; its JSON: environment, figures, every sample."""
    started_at, started = dt.datetime.now(dt.UTC), time.perf_counter()
    found_there = environment()
    samples = bench.run(quick, progress)
    return {
        "bench": bench.name,
        "title": bench.title,
        "quick": quick,
        "started_at": started_at.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "environment": found_there,
        **{key: bench.to_json()[key] for key in ("about", "cases")},
        "figures": [f.to_json() for f in figures(bench.cases, samples.cases)],
        "samples": samples.cases,
        "raw": samples.raw,
        "notes": samples.notes,
    }


def figures(cases: Sequence[Case], samples: Mapping[str, Sequence[float]]) -> list[Figure]:
    return [figure(case, samples[case.name]) for case in cases if samples.get(case.name)]
