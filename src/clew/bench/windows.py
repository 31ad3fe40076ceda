"""Windows: what a tuple costs in a count window, and what memory, whatever the window's size.

The kernel alone, no Spark: a filter that keeps a quarter, then a window with slide 1, fed in calls as a worker
gets them. A window of 20,000 rows costs what one of 50 costs where aggregates take constant time. Sizes take turns
call by call. Most of the memory is that of a call's own tuples, a million of them, whatever the window.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case, slope
from clew.engine.lanes.driver import run_stateless
from clew.engine.plan import KernelStep, Plan, Stateless, build_plan
from clew.engine.stored import source_rows
from clew.errors import TypeProblem
from clew.model.rows import Rows
from clew.network.network import Network
from clew.operators.base import State

SIZES = (50, 100, 1_000, 5_000, 20_000)
AGGREGATES = {
    "avg": ("avg(value)",),
    "min_max": ("min(value)", "max(value)"),
    "stddev": ("stddev(value)",),
    "median": ("median(value)",),
}
ENDS = (SIZES[0], SIZES[-1])

CASES = (
    Case("cost_20000_over_50", "cost per tuple of a sliding avg: 20,000 rows over 50", "ratio", "lower", 1.25),
    Case("memory_20000_over_50", "memory above an empty worker: 20,000 rows over 50", "ratio", "lower", 2.0),
)


@dataclass(frozen=True)
class Feed:
    """How many tuples, and how many in one call."""

    calls: int
    rows: int

    def __iter__(self) -> Iterator[tuple[int, pa.Table]]:
        """The calls' first numbers and tuples; the same for every run."""
        for call in range(self.calls):
            random = np.random.default_rng([11, call])
            ts = np.arange(call * self.rows, (call + 1) * self.rows)
            kind = random.integers(0, 100, self.rows, dtype=np.int32)
            yield call * self.rows, pa.table({"ts": ts, "kind": kind, "value": random.normal(50, 5, self.rows)})


FULL, QUICK = Feed(5, 1_000_000), Feed(3, 1_000_000)


def window_plan(size: int, aggregate: str) -> Plan:
    """The network of one measurement, planned without Spark."""
    net = Network("windows")
    kept = net.stream("readings", "ts LONG, kind INT, value DOUBLE", order="ts", key="ts").filter("kind < 25")
    columns = {f"value{i}": sql for i, sql in enumerate(AGGREGATES[aggregate])}
    kept.window(rows=size, slide=1).agg(ts="max(ts)", **columns).output("result")
    return build_plan(net, _no_spark)


def _no_spark(columns: object, schema: object, box: object) -> list[pa.DataType]:
    raise TypeProblem("is measured without Spark", details=[f"{columns} over {schema} in {box}"])


class Worker:
    """Runs the steps of a plan as a task does, call after call."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._states: dict[str, State] = {n: s.kernel.empty() for n, s in plan.kernels.items()}

    def call(self, first: int, table: pa.Table) -> Rows:
        """What one call's tuples make the last box emit."""
        stamps = np.arange(first + 1, first + 1 + len(table))
        rows = source_rows("readings", table, stamps, first + 1)
        for step in self._plan.steps.values():
            if isinstance(step, Stateless):
                rows, _ = run_stateless(step, rows)
            elif isinstance(step, KernelStep):
                made = step.kernel.run(self._states[step.name], [rows], [])
                self._states[step.name], rows = made.state, made.rows
        return rows


@dataclass(frozen=True)
class Timed:
    """Seconds after each call, and what came out, so that nobody can think it was not computed."""

    seconds: tuple[float, ...]
    emitted: int
    total: float

    def per_tuple(self, rows: int) -> float:
        """What all calls but the first cost a tuple: in the first the window fills."""
        calls = len(self.seconds)
        return slope(self.seconds[0], self.seconds[-1], rows, rows * calls)


def timed(sizes: Sequence[int], aggregate: str, feed: Sequence[tuple[int, pa.Table]]) -> dict[int, Timed]:
    """Run all calls through a fresh worker per size, call by call in turn: whatever else goes on hits them alike."""
    workers = {size: Worker(window_plan(size, aggregate)) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    emitted, total = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0.0)
    for number, (first, table) in enumerate(feed):
        for size in sizes if number % 2 else sizes[::-1]:
            started = time.perf_counter()
            rows = workers[size].call(first, table)
            emitted[size] += len(rows)
            total[size] += pc.sum(rows.table.column("value0")).as_py() or 0.0
            seconds[size].append(time.perf_counter() - started)
    return {size: Timed(tuple(accumulate(seconds[size])), emitted[size], total[size]) for size in sizes}


def run(quick: bool, progress: Progress) -> Samples:
    feed, rounds = (QUICK, 5) if quick else (FULL, 15)
    samples = Samples(
        notes={
            "tuples": feed.calls * feed.rows,
            "tuples_per_call": feed.rows,
            "kept_by_filter": 0.25,
            "cost": "seconds of all calls but the first, over their tuples, those that the filter drops included",
            "memory": "peak resident bytes of a process that ran all calls, less those of one that imported the same",
        }
    )
    calls = list(feed)
    for number in range(-1, rounds):  # the first round warms up
        progress(f"cost, round {number + 1} of {rounds}")
        _cost_round("avg", SIZES if number % 2 else SIZES[::-1], number, calls, samples)
    for aggregate in [a for a in AGGREGATES if a != "avg"]:
        for number in range(1 if quick else 5):
            progress(f"{aggregate}, round {number + 1}")
            _cost_round(aggregate, ENDS if quick else SIZES, number, calls, samples)
    del calls
    for number in range(1 if quick else 5):
        progress(f"memory, round {number + 1}")
        _memory_round(feed, number, samples)
    return samples


def _cost_round(
    aggregate: str, sizes: Sequence[int], number: int, calls: Sequence[tuple[int, pa.Table]], samples: Samples
) -> None:
    cost = {}
    for size, made in timed(sizes, aggregate, calls).items():
        cost[size] = made.per_tuple(len(calls[0][1]))
        if number >= 0:
            samples.measured(
                aggregate=aggregate, size=size, round=number, us_per_tuple=cost[size] * 1e6,
                seconds=made.seconds, emitted=made.emitted, total=made.total,
            )  # fmt: skip
    if number >= 0 and aggregate == "avg":
        samples.add(CASES[0].name, cost[ENDS[1]] / cost[ENDS[0]])


# --- memory: each measurement in a process of its own ---


def _memory_round(feed: Feed, number: int, samples: Samples) -> None:
    told = {size: _in_process(size, feed) for size in (0, *SIZES)}
    above = {size: t["peak_bytes"] - told[0]["peak_bytes"] for size, t in told.items()}
    for size, facts in told.items():
        samples.measured(memory_of=size or "empty worker", round=number, above_empty_bytes=above[size], **facts)
    samples.add(CASES[1].name, above[ENDS[1]] / above[ENDS[0]])


def _in_process(size: int, feed: Feed) -> dict[str, Any]:
    command = [sys.executable, "-m", "clew.bench.windows", str(size), str(feed.calls), str(feed.rows)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def peak_bytes() -> int:
    """The most memory this process ever had resident."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held before this program was started
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _measure_memory(size: int, calls: int, rows: int) -> dict[str, Any]:
    """All calls through a window of `size`; of size 0: no call at all, the empty worker."""
    worker = Worker(window_plan(size or ENDS[0], "avg"))
    emitted = 0
    for first, table in Feed(calls if size else 0, rows):
        emitted += len(worker.call(first, table))
    return {"peak_bytes": peak_bytes(), "emitted": emitted}


BENCH = Bench("windows", "Count windows of every size: cost and memory of a tuple", CASES, run)

if __name__ == "__main__":
    print(json.dumps(_measure_memory(*(int(text) for text in sys.argv[1:4]))))
