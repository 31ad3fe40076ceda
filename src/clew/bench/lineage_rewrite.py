"""Query rewrite in a process of its own, which can be given up when it takes too long.

python -m clew.bench.lineage_rewrite DEPTH SIZE TUPLES
"""

from __future__ import annotations

import json
import subprocess
import sys

from clew.bench.lineage_completion import FIRST, opened, timed
from clew.bench.lineage_cost import opener
from clew.bench.lineage_modes import OUTPUT
from clew.bench.lineage_networks import Batches, Tuples, nested
from clew.session import Engine


def rewrite_seconds(depth: int, size: int, tuples: int, most: float) -> tuple[float, int] | None:
    """Seconds of a batch through the rewritten network, and the rows of its p-join; None if it was given up.

    `most`: seconds after which it is, Python's start included.
    """
    command = [sys.executable, "-m", "clew.bench.lineage_rewrite", str(depth), str(size), str(tuples)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most, check=True)
    except subprocess.TimeoutExpired:
        return None
    seconds, joined = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), int(joined)


def run(depth: int, size: int, tuples: int) -> tuple[float, int]:
    """A batch through the rewritten network: its seconds, and the rows of all p-joins there are then."""
    network = nested(depth, size)
    source = Tuples.of(network)
    first, batch = source.batch(FIRST), source.batch(tuples)
    with opened(network, opener("rewrite")) as (engine, _):
        before = joined(engine, first)
        seconds, more = timed(joined, engine, batch)
        return seconds, before + more


def joined(engine: Engine, batch: Batches) -> int:
    """One epoch; how many rows of the p-join it gave."""
    return engine.feed_all(batch).outputs[f"{OUTPUT}_provenance"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*map(int, sys.argv[1:]))) + "\n")
