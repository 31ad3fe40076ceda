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

import numpy as np
import pyarrow as pa

from clew.bench.lineage_cost import Opener, opener
from clew.bench.lineage_networks import Batches, Tuples
from clew.network.network import Network
from clew.session import Engine

OUTPUT = "result"
FIRST = 100  # tuples of an epoch that is not measured: what is made once only is made then

OPENERS: dict[str, Opener] = {mode: opener(mode) for mode in ("off", "exact", "interval")}


@dataclass
class Run:
    """One engine that took one batch."""

    seconds: float
    held_bytes: int
    bytes_per_output: float
    outputs: int
    retrieval_s: float | None = None
    joined: int | None = None

    def facts(self, off: Run) -> dict[str, Any]:
        """What is kept of it: absolute, and as a ratio to the run of the same round without lineage."""
        facts: dict[str, Any] = {
            "seconds": self.seconds, "over_off": self.seconds / off.seconds, "held_bytes": self.held_bytes,
            "bytes_per_output": self.bytes_per_output, "outputs": self.outputs,
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
            outputs = engine.feed_all(first).outputs[OUTPUT]
            seconds, more = timed(feed, engine, batch)
            outputs += more
            run = found[mode] = Run(seconds, held_bytes(engine), table_bytes(place) / max(outputs, 1), outputs)
            if retrieved and mode in JOINS:
                run.retrieval_s, run.joined = timed(JOINS[mode], engine)
    return {mode: found[mode] for mode in wanted}


def in_turn(wanted: Sequence[str], turn: int) -> list[str]:
    """Forth and back: no mode always comes first."""
    return list(wanted) if turn % 2 else list(wanted)[::-1]


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


def feed(engine: Engine, batch: Batches) -> int:
    """One epoch; how many outputs it gave."""
    return engine.feed_all(batch).outputs[OUTPUT]


def p_join(engine: Engine, tuples: Any = None) -> int:
    """Lineage of outputs, of all if none are named, and its p-join (§4.3) as Arrow tables; the rows that it has."""
    found = engine.why(OUTPUT, tuples)
    joined = 0
    for source in engine.network.sources:
        layer, inputs = found.layer(source), found.inputs(source).table
        joined += len(side_by_side(found.answers.table, layer.owner, inputs, layer.row, source))
    return joined


def side_by_side(outputs: pa.Table, owner: np.ndarray, inputs: pa.Table, row: np.ndarray, source: str) -> pa.Table:
    """Each output beside each input that it is made of."""
    left, right = outputs.take(pa.array(owner)), inputs.take(pa.array(row))
    named = right.rename_columns([f"{source}_{column}" for column in right.column_names])
    return pa.Table.from_arrays([*left.columns, *named.columns], [*left.column_names, *named.column_names])


def held_bytes(engine: Engine) -> int:
    """What the boxes hold in memory between epochs."""
    return int(engine.progress(1)["state_bytes"].sum())


def table_bytes(place: Path) -> int:
    """What the store's own tables take on the disk: all that is stored beside the streams."""
    return sum(file.stat().st_size for file in (place / "tables").rglob("*.parquet") if "_delta_log" not in file.parts)


JOINS: dict[str, Callable[..., int]] = {"exact": p_join, "interval": p_join}
