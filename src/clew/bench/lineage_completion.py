"""How long a batch takes in each mode of lineage, what is held and stored for it, and how long its p-join takes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.bench.lineage_cost import Opener
from clew.bench.lineage_modes import JOINS, OPENERS, OUTPUT, held_bytes
from clew.bench.lineage_networks import Batches, Tuples
from clew.network.network import Network
from clew.session import Engine

FIRST = 100  # tuples of an epoch that is not measured: what is made once only is made then


@dataclass
class Run:
    """One engine that took one batch."""

    seconds: float
    outputs: int
    held_bytes: int
    store_bytes: int
    retrieval_s: float | None = None
    joined: int | None = None

    def facts(self, off: Run) -> dict[str, Any]:
        """What is kept of it: absolute, and as a ratio to the run of the same round without lineage."""
        facts: dict[str, Any] = {
            "seconds": self.seconds, "over_off": self.seconds / off.seconds, "outputs": self.outputs,
            "held_bytes": self.held_bytes, "held_for_lineage": self.held_bytes - off.held_bytes,
            "bytes_per_output": (self.store_bytes - off.store_bytes) / max(self.outputs, 1),
        }  # fmt: skip
        if self.retrieval_s is not None:
            both = self.seconds + self.retrieval_s
            facts |= {"retrieval_s": self.retrieval_s, "retrieved_over_off": both / off.seconds, "joined": self.joined}
        return facts


def completion(
    network: Network, wanted: Sequence[str], tuples: int, *, retrieved: bool = False, turn: int = 0
) -> dict[str, Run]:
    """A batch of so many tuples through an engine of each mode, in turn; the p-join of all outputs if they are."""
    source = Tuples.of(network)
    first, batch = source.batch(FIRST), source.batch(tuples)
    found = {}
    for mode in in_turn(wanted, turn):
        with opened(network, OPENERS[mode]) as (engine, place):
            outputs = feed(engine, first)
            seconds, more = timed(feed, engine, batch)
            outputs += more
            run = found[mode] = Run(seconds, outputs, held_bytes(engine), store_bytes(place))
            if retrieved and mode in JOINS:
                run.retrieval_s, run.joined = timed(JOINS[mode], engine)
    return {mode: found[mode] for mode in wanted}


def feed(engine: Engine, batch: Batches) -> int:
    """One epoch; how many outputs it gave."""
    return engine.feed_all(batch).outputs[OUTPUT]


def in_turn(wanted: Sequence[str], turn: int) -> list[str]:
    """Each mode comes first in its turn.

    >>> in_turn(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    first = turn % len(wanted)
    return [*wanted[first:], *wanted[:first]]


@contextmanager
def opened(network: Network, open_: Opener) -> Iterator[tuple[Engine, Path]]:
    """An engine over a new store, which goes with it."""
    place = Path(tempfile.mkdtemp(prefix="clew-bench-")) / "store"
    try:
        with open_(place, network) as engine:
            yield engine, place
    finally:
        shutil.rmtree(place.parent, ignore_errors=True)


def timed(do: Callable[..., int], *given: Any) -> tuple[float, int]:
    """The seconds that a call took, and what it returned."""
    started = time.perf_counter()
    found = do(*given)
    return time.perf_counter() - started, found


def store_bytes(place: Path) -> int:
    """What a store takes on the disk: streams, the index, annotations, records, logs."""
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
