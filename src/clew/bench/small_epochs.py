"""Small epochs: 220 epochs of 100 tuples under a window of 20,000 rows, whether they stay cheap and the store small.

`late_over_early` starts with an empty store: the window is full, and emits, from epoch 200 on, so its late epochs
do more than the early ones: 20 of them write outputs and origins too. `late_over_early_full` fills the window
first: every epoch does the same, and only what grows with the number of epochs is left. A run of twenty times as
many epochs shows whether the files stay bounded, and by how many of each kind.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import clew
from clew.archive import layout
from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case

if TYPE_CHECKING:
    from clew.session import Engine

EPOCHS, ROWS, WINDOW = 220, 100, 20_000
LONG_EPOCHS = 20 * EPOCHS
WARM_UP, COMPARED = 20, 100
COUNTED_EVERY = 4

CASES = (
    Case("late_over_early", "seconds of the last 100 epochs over the first 100 after 20", "ratio", "lower", 1.2),
    Case("late_over_early_full", "the same, the window full from the first epoch on", "ratio", "lower", 1.2),
    Case("files", "files and log entries in the store at the end", "files", "lower"),
    Case("files_most", "the most there were after any epoch: they come and go with compaction", "files", "lower"),
    Case("latency_seconds", "100 tuples fed, and what they gave read through Spark", "s", "lower", 0.5),
)

NOTES = {
    "epochs": EPOCHS,
    "tuples_per_epoch": ROWS,
    "window_rows": WINDOW,
    "lane": "driver",
    "durable": True,
    "grace_s": 0,
    "grace": "removed files and old log entries wait for readers for clew.open(..., grace_s=300) seconds; 0 here, "
    "so that what is counted is what stays",
    "bounded_by": {
        "epoch records": "64, and two bases",
        "buckets of a stream": "32 of fewer than 65,536 rows, and larger ones by the number of rows; what a merge "
        "replaced stays for one epoch more",
        "a Delta log": "32 entries and two checkpoints",
        "checkpoints": "the newest 8, a few files each",
        "seen ids": "32 segments, and larger ones by the number of ids",
    },
}


def network() -> clew.Network:
    """An average over the last 20,000 readings, at every reading."""
    net = clew.Network("small_epochs")
    readings = net.stream("readings", "ts LONG, value DOUBLE", order="ts", key="ts")
    readings.window(rows=WINDOW, slide=1).agg(ts="max(ts)", value="avg(value)").output("averages")
    return net


def batch(first: int, rows: int) -> pa.Table:
    """Readings `first` to `first + rows`."""
    random = np.random.default_rng([3, first])
    return pa.table({"ts": np.arange(first, first + rows), "value": random.normal(50, 5, rows)})


def run(quick: bool, progress: Progress) -> Samples:
    rounds = 1 if quick else 25
    samples = Samples(notes={**NOTES, "rounds": rounds, "counted_every": COUNTED_EVERY})
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        feed_all(Path(folder) / "warm-up", 0, 30)
        for number in range(rounds):
            for case, filled in (("late_over_early", 0), ("late_over_early_full", WINDOW)):
                progress(f"{case}, round {number + 1} of {rounds}")
                _round(Path(folder) / f"{case}-{number}", case, filled, number, samples)
        if not quick:
            progress(f"{LONG_EPOCHS} epochs")
            _long(Path(folder) / "long", samples)
        progress("latency")
        _latency(Path(folder) / f"late_over_early_full-{rounds - 1}", 5 if quick else 20, samples)
    return samples


def _round(store: Path, case: str, filled: int, number: int, samples: Samples) -> None:
    seconds, files = feed_all(store, filled, EPOCHS)
    early, late = sum(seconds[WARM_UP : WARM_UP + COMPARED]), sum(seconds[-COMPARED:])
    samples.add(case, late / early)
    totals = {epoch: kinds.total() for epoch, kinds in files.items()}
    samples.measured(
        case=case, round=number, early_s=early, late_s=late, epoch_ms=[round(s * 1000, 2) for s in seconds],
        median_ms=statistics.median(seconds) * 1000, files_after=totals, files_at_end=files[EPOCHS],
    )  # fmt: skip
    if filled:
        samples.add("files", totals[EPOCHS])
        samples.add("files_most", max(totals.values()))


def _long(store: Path, samples: Samples) -> None:
    """Many epochs: the most files of each kind in the first half and in the second."""
    seconds, files = feed_all(store, WINDOW, LONG_EPOCHS)
    most: dict[str, list[int]] = {}
    for epoch, kinds in files.items():
        for kind, count in kinds.items():
            half = most.setdefault(kind, [0, 0])
            half[epoch > LONG_EPOCHS // 2] = max(half[epoch > LONG_EPOCHS // 2], count)
    parts = range(0, LONG_EPOCHS, COMPARED)
    samples.measured(
        case="long", epochs=LONG_EPOCHS, files_after={e: k.total() for e, k in files.items()},
        most_in_each_half=dict(sorted(most.items())),
        mean_ms={p + COMPARED: round(statistics.mean(seconds[p : p + COMPARED]) * 1000, 3) for p in parts},
    )  # fmt: skip


def feed_all(store: Path, filled: int, epochs: int) -> tuple[list[float], dict[int, Counter[str]]]:
    """The seconds of each epoch over a new store, and the files there are after some, by kind."""
    seconds, files = [], {}
    with clew.open(store, network(), lane="driver", grace_s=0) as engine:
        if filled:
            engine.feed("readings", batch(0, filled), id="fill")
        for number in range(epochs):
            table = batch(filled + number * ROWS, ROWS)
            started = time.perf_counter()
            engine.feed("readings", table, id=f"batch {number}")
            seconds.append(time.perf_counter() - started)
            if (number + 1) % COUNTED_EVERY == 0:
                files[number + 1] = files_by_kind(store)
    return seconds, files


def files_by_kind(store: Path) -> Counter[str]:
    """All files of a store, by what they are and whose."""
    return Counter(_kind(path.relative_to(store)) for path in store.rglob("*") if path.is_file())


def _kind(path: Path) -> str:
    top, name = path.parts[0], path.name
    if top == "_epochs":
        if layout.record_epoch(name) is not None:
            return "epoch records"
        return "epoch bases" if layout.base_epoch(name) is not None else "seen ids"
    if top in layout.KINDS:
        if "_delta_log" in path.parts:
            return f"Delta log of {path.parts[1]}"
        return f"buckets of {path.parts[1]}" if layout.is_bucket(name) else f"other files of {path.parts[1]}"
    return top if len(path.parts) > 1 else "the store's own"


def _latency(store: Path, rounds: int, samples: Samples) -> None:
    """A small epoch over the store of 220, in a warm session: fed, and its averages collected."""
    with clew.open(store, network(), lane="driver", grace_s=0) as engine:
        first = WINDOW + EPOCHS * ROWS
        for number in range(-3, rounds):  # the first ones warm up
            table = batch(first, ROWS)
            started = time.perf_counter()
            engine.feed("readings", table, id=f"latency {first}")
            fed = time.perf_counter()
            found = _averages_from(engine, first)
            done = time.perf_counter()
            if sorted(row.ts for row in found) != table.column("ts").to_pylist():
                raise AssertionError(f"{len(found)} averages of {ROWS} can be read")
            first += ROWS
            if number >= 0:
                samples.add("latency_seconds", done - started)
                samples.measured(case="latency_seconds", round=number, feed_s=fed - started, read_s=done - fed)


def _averages_from(engine: Engine, first: int) -> list[Any]:
    rows: list[Any] = engine.read("averages").where(f"ts >= {first}").collect()
    return rows


BENCH = Bench("small-epochs", "Small epochs under a large window", CASES, run)
