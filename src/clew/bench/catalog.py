"""All benchmarks there are."""

from __future__ import annotations

from clew.bench import lineage, lineage_figures, recovery, small_epochs, throughput, windows
from clew.bench.core import Bench

BENCHES: tuple[Bench, ...] = (
    throughput.BENCH,
    windows.BENCH,
    small_epochs.BENCH,
    recovery.BENCH,
    lineage.BENCH,
    lineage_figures.BENCH,
)
