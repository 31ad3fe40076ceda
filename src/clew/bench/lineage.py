"""Lineage: what it costs a tuple, what is stored and held, and how long an explanation takes.

The cost of a tuple is the slope between two sizes of epochs, in CPU seconds of all processes, and its ratio to
`off`, epoch by epoch in turn; the networks are those of the paper (Basic, four nested aggregations, Complex). Boxes
know their origins in every mode: `off` does not write them. The kernel alone is also compared with one that does not
know them. Generation only, but for `why`, which is of one random output, warm, down to the input tuples' values.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import clew
from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case
from clew.bench.lineage_cost import Plan, costs, latencies, opener
from clew.bench.lineage_kernel import kernel_ratio
from clew.bench.lineage_networks import Tuples, basic, complex_network, nested
from clew.bench.lineage_peer import overheads
from clew.engine import stored
from clew.model.rows import POS, STAMP
from clew.network.network import Network
from clew.operators.windows.base import ROWS

MODES = ("off", "interval", "exact")
OUTPUTS = 100_000  # of the archive that is asked about
SHARES = (0.0005, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0)
FEW_ROUNDS = 5  # of what is a count, or takes long

CASES = (
    Case("interval_ws100", "interval over off, Basic with a window of 100, slide 1", "ratio", "lower", 1.05),
    Case("exact_ws100", "exact over off, the same", "ratio", "lower", 1.10),
    Case("exact_ws20000", "exact over off, windows of 5,000 and 20,000, the worse", "ratio", "lower", 1.15),
    Case("exact_ws500000", "exact over off, a window of 500,000, slide 50,000, half kept", "ratio", "lower", 1.25),
    Case("exact_nested4", "exact over off, four nested aggregations of 10, slide 1", "ratio", "lower", 1.5),
    Case("exact_complex", "exact over off, Complex, front windows of 2 to 100, the worst", "ratio", "lower", 1.3),
    Case("kernel_exact_ws100", "the kernel alone, origins told and indexed, over one that tells none",
         "ratio", "lower", 1.3),
    Case("state_bytes_ws20000", "lineage that a window of 20,000 holds between epochs", "bytes", "lower", 384 * 1024),
    Case("stored_bytes_per_output", "lineage written for an output, Basic with a window of 100", "bytes", "lower", 8),
    Case("latency_exact", "epochs of 10 to 100 tuples: exact over off, the worst", "ratio", "lower", 1.1),
    Case("why_seconds", "why of one of 100,000 outputs over an archive of 10 million tuples", "s", "lower", 1.0),
    Case("why_100M_over_10M", "the same over 100 million, compared with that", "ratio", "lower", 1.3),
    Case("overhead_group", "a TPC-H-like group-by: exact over off, all of it, archive included", "ratio", "lower"),
    Case("overhead_group_peer", "the same in SmokedDuck: capture over its plain run, in memory", "ratio", "lower"),
    Case("overhead_group_peer_read", "and with the first reading of what it captured", "ratio", "lower"),
    Case("overhead_join", "a TPC-H-like join: exact over off", "ratio", "lower"),
    Case("overhead_join_peer", "the same in SmokedDuck", "ratio", "lower"),
    Case("overhead_join_peer_read", "and with the first reading of what it captured", "ratio", "lower"),
    Case("lazy_crossover", "share of outputs asked for from which on exact costs no more than interval, nested",
         "share", "lower", None),
)  # fmt: skip


def run(quick: bool, progress: Progress) -> Samples:
    samples = Samples(notes={"lane": "driver", "modes": list(MODES)})
    rounds = 3 if quick else 9
    for number in range(FEW_ROUNDS):
        _held(samples, number)
    for number in range(-1, rounds):  # the first round warms up
        for name, networks, plan in _generation(quick):
            progress(f"{name}, round {number + 1} of {rounds}")
            _cost_round(name, networks, plan, number, samples)
        progress(f"kernel, round {number + 1} of {rounds}")
        _kernel_round(number, samples)
        progress(f"latency, round {number + 1} of {rounds}")
        _latency_round(number, 60 if quick else 80, samples)
    overheads(quick, samples, progress)
    for number in range(2 if quick else FEW_ROUNDS):
        progress(f"retrieval, round {number + 1}")
        _crossover(samples, 60_000 if quick else 2_000_000, number)
    _why(samples, (1_000_000, 3_000_000) if quick else (10_000_000, 100_000_000), progress)
    return samples


# --- what a tuple costs ---


def _generation(quick: bool) -> list[tuple[str, list[tuple[str, Network]], Plan]]:
    """The cases by the mode and the thing that they measure, their networks, and how these are fed."""
    epochs = 5 if quick else 13
    sizes = (50_000, 190_000) if quick else (50_000, 400_000)
    usual = Plan(0, sizes, epochs // 2 + 2)
    return [
        ("ws100", [("100", basic(100))], Plan(0, sizes, epochs)),
        ("ws20000", [("5000", basic(5_000)), ("20000", basic(20_000))], Plan(190_000, sizes, usual.batches)),
        ("ws500000", [("500000", basic(500_000, 50_000, 50))], Plan(1_100_000, sizes, usual.batches)),
        ("nested4", [("nested4", nested(4))], usual),
        ("complex", [(str(n), complex_network(n)) for n in (2, 100)], usual),
    ]


def _cost_round(name: str, networks: Sequence[tuple[str, Network]], plan: Plan, number: int, samples: Samples) -> None:
    modes = MODES if name == "ws100" else ("off", "exact")
    worst: dict[str, float] = {}
    for label, network in networks:
        cost = costs(network, {mode: opener(mode) for mode in modes}, plan)
        for mode in modes[1:]:
            worst[mode] = max(worst.get(mode, 0.0), cost[mode] / cost["off"])
        if number >= 0:
            each = {mode: seconds * 1e6 for mode, seconds in cost.items()}
            samples.measured(network=name, of=label, round=number, us_per_tuple=each)
    if number >= 0:
        for mode, ratio in worst.items():
            samples.add(f"{mode}_{name}", ratio)


def _kernel_round(number: int, samples: Samples) -> None:
    ratio, seconds = kernel_ratio(100, 200_000, 7)
    if number >= 0:
        samples.add("kernel_exact_ws100", ratio)
        samples.measured(kernel=100, round=number, seconds=seconds)


def _latency_round(number: int, batches: int, samples: Samples) -> None:
    worst = 0.0
    for rows in (10, 30, 100):
        seconds = latencies(basic(100), MODES, rows, batches)
        worst = max(worst, seconds["exact"] / seconds["off"])
        if number >= 0:
            samples.measured(latency_of=rows, round=number, ms={m: s * 1000 for m, s in seconds.items()})
    if number >= 0:
        samples.add("latency_exact", worst)


# --- what is held and stored ---


def _held(samples: Samples, seed: int) -> None:
    """Bytes that lineage takes in the window's state (the places of its rows) and in the store."""
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        with clew.open(Path(folder) / "held", basic(20_000), lane="driver", durable=False) as engine:
            engine.feed_all(Tuples(seed=seed).batch(190_000))
            state = engine._runtime.memory.boxes.kernels["window:windows"][ROWS]
            held = sum(state.column(name).nbytes for name in (STAMP, POS))
            samples.add("state_bytes_ws20000", float(held))
            samples.measured(state_rows=len(state), place_bytes=held, state_bytes=state.nbytes)
        with clew.open(Path(folder) / "stored", basic(100), lane="driver", durable=False) as engine:
            tuples = Tuples(seed=seed)
            for _ in range(4):
                engine.feed_all(tuples.batch(100_000))
            store = engine._store.state
            tables = [f for name, f in store.tables.items() if name.startswith(stored.ORIGINS)]
            written = sum(entry.bytes for folder_ in tables for entry in folder_.files.values())
            outputs = store.streams["result"].rows
            samples.add("stored_bytes_per_output", written / outputs)
            samples.measured(origins_bytes=written, outputs=outputs)


# --- retrieval ---


def _crossover(samples: Samples, tuples: int, number: int) -> None:
    """Generation and retrieval together, by the share of outputs that is asked for (Fig. 20)."""
    total: dict[str, dict[float, float]] = {mode: {} for mode in MODES[1:]}
    network = nested(4, slide=3)
    for mode in total:
        with (
            tempfile.TemporaryDirectory(prefix="clew-bench-") as folder,
            opener(mode)(Path(folder) / "store", network) as engine,
        ):
            batches, feed = max(tuples // 190_000, 1), Tuples()
            started = time.process_time()
            for _ in range(batches):
                engine.feed_all(feed.batch(min(tuples, 190_000)))
            generated = time.process_time() - started
            count = engine._store.state.streams["result"].seq
            for share in SHARES:
                seqs = np.unique(np.linspace(1, count, max(int(count * share), 1)).astype(np.int64))
                started = time.process_time()
                pairs = retrieved(engine, "result", seqs.tolist())
                total[mode][share] = generated + time.process_time() - started
                samples.measured(
                    retrieval=mode, round=number, share=share, outputs=len(seqs), pairs=pairs,
                    generation_s=generated, total_s=total[mode][share],
                )  # fmt: skip
    cheaper = [share for share in SHARES if total["exact"][share] <= total["interval"][share]]
    samples.add("lazy_crossover", cheaper[0] if cheaper else 1.0)


def retrieved(engine: clew.Engine, output: str, seqs: Sequence[int]) -> int:
    """Explain some outputs, and join them with their input tuples in memory; how many pairs that makes."""
    found = engine.why(output, list(seqs))
    (source,) = found.targets
    layer = found.layer(source)
    joined = found.inputs(source).table.take(layer.row)
    return len(joined)


def _why(samples: Samples, sizes: tuple[int, int], progress: Progress) -> None:
    median: dict[int, float] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
            place = Path(folder) / "store"
            network = basic(100, max(size // 4 // OUTPUTS, 1))
            with clew.open(place, network, lane="driver", durable=False) as engine:
                feed, batch = Tuples(), 1_000_000
                for number in range(size // batch):
                    progress(f"an archive of {size:,} tuples: {number * batch:,}")
                    engine.feed_all(feed.batch(batch))
                outputs = engine._store.state.streams["result"].seq
                os.sync()  # what is still being written to disk is not what is measured
                seqs = np.random.default_rng(5).integers(1, outputs + 1, 41).tolist()
                _, seconds = ([_asked(engine, seq) for seq in seqs] for _ in ("warms up", "counts"))
            shutil.rmtree(place, ignore_errors=True)
        median[size] = statistics.median(seconds)
        samples.measured(why_over=size, outputs=outputs, seconds=seconds)
        if size == sizes[0]:
            for each in seconds:
                samples.add("why_seconds", each)
        else:
            for each in seconds:
                samples.add("why_100M_over_10M", each / median[sizes[0]])


def _asked(engine: clew.Engine, seq: int) -> float:
    started = time.perf_counter()
    found: Any = engine.why("result", seq)
    rows = found.inputs("s")
    assert len(rows) == len(found.tids[f"result:{seq}"]["s"]) == 100
    return time.perf_counter() - started


BENCH = Bench("lineage", "Lineage: its cost by mode, its size, and the time to explain", CASES, run)
