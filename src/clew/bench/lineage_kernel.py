"""The window kernel alone, with origins and without: no engine, no store."""

from __future__ import annotations

import statistics
import time

import numpy as np

from clew.bench.lineage_networks import Tuples
from clew.bench.windows import window_plan
from clew.engine.evaluate import Named
from clew.engine.stored import index_parts, source_rows
from clew.model.rows import Ints, Rows
from clew.operators.base import Emission, Kernel
from clew.operators.windows.base import Block
from clew.operators.windows.count import CountKernel


class Untold(Block):
    """A block that does not look up where the rows of its windows stand."""

    def places(self, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        del last
        nothing: Ints = np.broadcast_to(np.int64(0), first.shape)
        return nothing, nothing, nothing, nothing


class WithoutOrigins(CountKernel):
    """A count window that tells no origins: what the kernel would do if nobody ever asked."""

    def layout(self, state, rows, extra=None):  # type: ignore[no-untyped-def]
        return Untold(**vars(super().layout(state, rows, extra)))


def kernel_ratio(size: int, rows: int, calls: int) -> tuple[float, dict[str, list[float]]]:
    """Seconds of a call that tells origins and makes the index of them, over one that does neither; and all seconds."""
    (step,) = window_plan(size, "avg").kernels.values()
    assert isinstance(step.kernel, CountKernel)
    off = WithoutOrigins.__new__(WithoutOrigins)
    vars(off).update(vars(step.kernel))
    kernels: dict[str, Kernel] = {"off": off, "exact": step.kernel}
    states = {mode: kernel.empty() for mode, kernel in kernels.items()}
    seconds: dict[str, list[float]] = {mode: [] for mode in kernels}
    tuples = Tuples()
    for call in range(calls + 1):
        taken = _rows(tuples, rows, call)
        for mode in ("off", "exact") if call % 2 else ("exact", "off"):
            started = time.process_time()
            made = kernels[mode].run(states[mode], [taken], [])
            if mode == "exact":
                _index(made)
            if call:
                seconds[mode].append(time.process_time() - started)
            states[mode] = made.state
    return statistics.median(seconds["exact"]) / statistics.median(seconds["off"]), seconds


def _index(made: Emission) -> None:
    index_parts({"window": Named(made.rows.stamp, made.rows.pos, made.origin)}, {})


def _rows(tuples: Tuples, rows: int, call: int) -> Rows:
    table = tuples.batch(rows)["s"]
    table = table.select(["ts", "kind", "a"]).rename_columns(["ts", "kind", "value"])
    return source_rows("readings", table, np.arange(call * rows + 1, (call + 1) * rows + 1), call * rows + 1)
