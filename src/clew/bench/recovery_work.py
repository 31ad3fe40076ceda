"""The work that the recovery benchmark kills and starts again, as a process of its own.

    python -m clew.bench.recovery_work feed STORE EPOCHS KILLED [STEP]
    python -m clew.bench.recovery_work run STORE SOURCE

`feed` feeds every batch under its id, whether it was fed before or not; `run` runs Structured Streaming over a
folder of files, one a micro-batch. Both say what they are at, a line each, so that somebody can strike in time.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

import clew
from clew.archive import faults
from clew.engine.runtime import CHECKPOINT_ROWS

EPOCHS, KILLED = 100, 50
SENSORS = 40
# Of so many rows a checkpoint falls due in the epoch that is killed: one that stands before it is as old as it gets.
ROWS = CHECKPOINT_ROWS // KILLED + SENSORS
WAITING_S = 2
SCHEMA = "ts LONG, sensor INT, value DOUBLE"


def network() -> clew.Network:
    """Something of every kind of state: rows that wait, a window that slides, windows that close, a buffer."""
    net = clew.Network("recovery")
    readings = net.stream("readings", SCHEMA, order="ts", key=["ts", "sensor"], lateness=WAITING_S)
    readings.filter("value > 60").sort("ts", slack=100).output("high")
    readings.window(rows=500, slide=1, by="sensor").agg(ts="max(ts)", value="avg(value)").output("averages")
    readings.window(span=60, on="ts", by="sensor").agg(ts="min(ts)", top="max(value)").output("minutes")
    return net


@cache
def arrivals(epochs: int) -> pa.Table:
    """The readings of all epochs as they arrive: every sensor once a second, up to `WAITING_S` seconds late."""
    random = np.random.default_rng(5)
    number = np.arange(epochs * ROWS)
    ts, sensor = number // SENSORS, (number % SENSORS).astype(np.int32)
    order = np.argsort(ts + random.uniform(0, WAITING_S, len(ts)), kind="stable")
    return pa.table({"ts": ts[order], "sensor": sensor[order], "value": random.normal(50, 5, len(ts))})


def batch(number: int, epochs: int) -> pa.Table:
    """The readings of one epoch, from 1."""
    return arrivals(epochs).slice((number - 1) * ROWS, ROWS)


def tell(*words: object) -> None:
    print(*words, flush=True)


def feed(store: Path, epochs: int, killed: int, step: str = "") -> None:
    """Feed all batches; with a `step`, this process ends there in epoch `killed`, as `kill -9` would end it."""
    arrivals(epochs)
    started = time.perf_counter()
    with clew.open(store, network()) as engine:
        tell("ready", time.perf_counter() - started)
        for number in range(1, epochs + 1):
            if number == killed and step:
                faults.trip_at = step
            tell("begun", number)
            engine.feed("readings", batch(number, epochs), id=f"batch {number}")
            tell("done", number)


def run(store: Path, source: Path) -> None:
    """Run over the files that are there, one an epoch."""
    from clew.engine.spark_session import local_session

    spark = local_session()
    started_at, started = time.time(), time.perf_counter()
    with clew.open(store, network(), spark=spark) as engine:
        tell("ready", time.perf_counter() - started, started_at)
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
        engine.run({"readings": files}, available_now=True)


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    if verb == "feed":
        feed(Path(place), int(rest[0]), int(rest[1]), *rest[2:])
    else:
        run(Path(place), Path(rest[0]))
