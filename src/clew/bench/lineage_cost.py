"""What lineage costs a tuple: the same batches through engines of several modes, taking turns."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import clew
from clew.bench.figures import slope
from clew.bench.lineage_networks import Tuples
from clew.network.network import Network
from clew.session import Engine

Opener = Callable[[Path, Network], Engine]


def opener(mode: str) -> Opener:
    """Opens a store in a mode of lineage, in the driver's lane: no other process takes part."""

    def open_(place: Path, network: Network) -> Engine:
        return clew.open(place, network, lineage=mode, lane="driver", durable=False)

    return open_


@dataclass(frozen=True)
class Plan:
    """How a network is fed: batches that fill its windows first, then so many measured ones of each size."""

    fill: int
    sizes: tuple[int, int]
    batches: int


def cpu_seconds() -> float:
    """CPU seconds of this process and of all that it has started: workers, and the JVM if there is one."""
    return time.process_time() + sum(_cpu_of(pid) for pid in _below(os.getpid()))


def costs(network: Network, openers: Mapping[str, Opener], plan: Plan) -> dict[str, float]:
    """CPU seconds of a tuple in each mode: the slope between two sizes of batches."""
    small, large = (_medians(network, openers, plan, size) for size in plan.sizes)
    return {mode: slope(small[mode], large[mode], *plan.sizes) for mode in openers}


def _medians(network: Network, openers: Mapping[str, Opener], plan: Plan, size: int) -> dict[str, float]:
    """CPU seconds of a batch in each mode; modes take turns batch by batch."""
    used: dict[str, list[float]] = {mode: [] for mode in openers}
    tuples, modes = Tuples.of(network), list(openers)
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="clew-bench-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        engines = {mode: stack.enter_context(open_(root / mode, network)) for mode, open_ in openers.items()}
        filling = [plan.fill] if plan.fill else []
        for number, rows in enumerate([*filling, *[size] * (plan.batches + 1)]):  # the first of its size warms up
            batches = tuples.batch(rows)
            for mode in modes if number % 2 else modes[::-1]:
                before = cpu_seconds()
                engines[mode].feed_all(batches)
                if number > len(filling):
                    used[mode].append(cpu_seconds() - before)
    return {mode: statistics.median(seconds) for mode, seconds in used.items()}


def latencies(network: Network, modes: Sequence[str], rows: int, batches: int) -> dict[str, float]:
    """Median seconds from feeding a small batch to having it committed, durably, in each mode."""
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    tuples = Tuples.of(network)
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="clew-bench-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        engines = {m: stack.enter_context(clew.open(root / m, network, lineage=m, lane="driver")) for m in modes}
        for number in range(-20, batches):
            batch = tuples.batch(rows)
            for mode in modes if number % 2 else modes[::-1]:
                started = time.perf_counter()
                engines[mode].feed_all(batch)
                if number >= 0:
                    seconds[mode].append(time.perf_counter() - started)
    return {mode: statistics.median(each) for mode, each in seconds.items()}


def _below(pid: int) -> list[int]:
    """All processes that a process has started, and theirs; none where the system does not say."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:  # it has ended meanwhile
            continue
        found += [below for child in children for below in (child, *_below(child))]
    return found


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # as above
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
