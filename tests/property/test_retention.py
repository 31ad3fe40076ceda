"""Pruning by lineage takes nothing that an explanation needs, in random networks with random lives.

`CLEW_THOROUGH=1` runs many more examples.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.networks import Case, cases

import clew
from clew.engine import runtime
from clew.errors import BoxFailed, LineageError, TooOld
from clew.explain import needed
from clew.network.boxes import LINEAGE, Source
from clew.network.network import Network
from clew.session import Engine, FarAheadWarning
from clew.testing.laws import act

THOROUGH = bool(os.environ.get("CLEW_THOROUGH"))
pytestmark = pytest.mark.timeout(0 if THOROUGH else 300)
common = settings(
    max_examples=2000 if THOROUGH else 40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)  # fmt: skip

Told = dict[str, Any]


def by_lineage(network: Network) -> Network:
    """The network with all its sources pruned by lineage."""
    found = copy.copy(network)
    found._boxes = [replace(b, retention=LINEAGE) if isinstance(b, Source) else b for b in network._boxes]
    return found


def in_bits(actions: Sequence[Any], size: int) -> Iterator[Any]:
    """The actions with their batches cut small."""
    for action in actions:
        if not isinstance(action, Mapping):
            yield action
            continue
        longest = max(map(len, action.values()), default=0)
        for low in range(0, max(longest, 1), size):
            yield {name: rows[low : low + size] for name, rows in action.items()}


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="clew-law-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def opened(place: Path, network: Network, mode: str) -> Engine:
    return clew.open(place, network, lane="driver", durable=False, lineage=mode)


def told(engine: Engine) -> Told:
    """What every stored row that is no source's is made of."""
    plan = engine._plan
    return {s: engine.why(s).tids for s in plan.stored if s not in plan.sources and s in engine._store.state.streams}


def kept(engine: Engine) -> dict[str, list[int]]:
    state = engine._store.state.streams
    sources = [name for name in engine._plan.sources if name in state]
    return {name: engine._store.read_table(name, ["_seq"]).column("_seq").to_pylist() for name in sources}


@common
@given(
    case=cases(),
    size=st.sampled_from([1, 2, 5]),
    every=st.sampled_from([1, 4]),
    look=st.sampled_from([1, 1, 3]),
    restart=st.integers(0, 20),
    mode=st.sampled_from(["exact", "exact", "interval"]),
)
def test_pruning_changes_no_explanation(case: Case, size: int, every: int, look: int, restart: int, mode: str) -> None:
    pruned = by_lineage(case.network)
    actions = list(in_bits(case.actions, size))
    with folder() as place, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FarAheadWarning)
        patch.setattr(runtime, "CHECKPOINT_ROWS", 0)
        patch.setattr(runtime, "CHECKPOINT_EPOCHS", every)
        patch.setattr(needed, "SHARE", 1000)
        patch.setattr(needed, "LOOK_ROWS", look)
        try:
            whole = opened(place / "whole", case.network, mode)
        except LineageError:
            assume(False)  # a box that cannot be made again
        with whole:
            try:
                for action in actions:
                    act(whole, action)
            except BoxFailed:
                assume(False)  # one value far ahead, and batches so small that a window sees a gap
            expected = told(whole)
            engine = opened(place / "pruned", pruned, mode)
            for number, action in enumerate(actions):
                if number == restart:
                    engine.close()
                    engine = opened(place / "pruned", pruned, mode)
                act(engine, action)
            with engine:
                assert told(engine) == expected
                check_plan(whole, engine)
                for stream, seqs in kept(engine).items():
                    if seqs:
                        assert engine.impact(stream, seqs).tids == whole.impact(stream, seqs).tids
                    everything = kept(whole)[stream]
                    gone = sorted(set(everything) - set(seqs))
                    if gone:
                        with pytest.raises(TooOld, match=f"{stream}:{gone[0]} is gone since epoch"):
                            engine.why(stream, gone[0])


def check_plan(whole: Engine, pruned: Engine) -> None:
    """No row is made of tuples further back than the network alone says, where that is so many tuples."""
    stamps = {n: whole._store.read_table(n, ["_stamp"]).column("_stamp").to_pylist() for n in kept(whole)}
    for source in pruned.retention_plan().sources:
        reach = source.reach
        if reach is None or not source.bounded or source.stream not in stamps or any(b.spans for b in reach.bounds):
            continue
        rows = max(bound.rows for bound in reach.bounds)
        for stream, found in told(whole).items():
            if not found:
                continue
            made_at = whole._store.read_table(stream, ["_stamp"]).column("_stamp").to_pylist()
            for stamp, tids in zip(made_at, found.values(), strict=True):
                newest = sum(s <= stamp for s in stamps[source.stream])
                seqs = [int(tid.rpartition(":")[2]) for tid in tids.get(source.stream, [])]
                assert all(seq > newest - rows for seq in seqs), (stream, stamp, seqs, newest, rows)
