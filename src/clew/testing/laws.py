"""The laws of the algebra as checks: call one with a network and what happens to it.

    check_restart(network, [{"readings": rows}, {"readings": more}, FINISH], tmp_path)

A law that does not hold raises `LawError`, which says where two runs differ.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import clew.opening
from clew.archive.store import Store
from clew.engine import stored
from clew.engine.admission import source_steps
from clew.engine.batches import row_json
from clew.engine.catalyst import Catalyst
from clew.engine.evaluate import BoxStates, Lane, Pass, Sources, evaluate
from clew.engine.lanes.driver import DriverLane
from clew.engine.lineage import Modes, log_mark, logged_inputs
from clew.engine.marks import step_mark
from clew.engine.plan import Plan
from clew.model.axis import axis_of
from clew.model.places import Places
from clew.model.rows import STAMP, Rows
from clew.network.network import Network
from clew.operators.base import NO_FLOOR, ORIGIN_COLUMNS
from clew.session import Engine, FarAheadWarning
from clew.testing.reference import Admitted, Made, interpret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Advance:
    """Move a stream's time on, as `engine.advance`."""

    stream: str
    to: Any


FINISH = "finish"
Action = Mapping[str, Any] | Advance | str
Contents = dict[str, list[tuple[str, ...]]]
"""All that a store holds and that no cut, restart or lane may change, in a form that `==` compares."""


class LawError(AssertionError):
    """Two runs that should be the same are not."""


# --- laws ---


def check_reference(network: Network, actions: Sequence[Action], folder: Path) -> Contents:
    """Every output, its order, the origins, late and rejected rows are what the reference in plain Python gives."""
    with _opened(network, folder) as engine:
        for action in actions:
            act(engine, action)
        expected = interpret(network, Log.of(engine).admitted())
        found = contents(engine._store)
        kernels = {engine._plan.steps[n].box: step_mark(engine._plan, n) for n in engine._plan.kernels}
    for stream, box in network.outputs.items():
        hidden = ("_seq", "_ident")
        rows = [_without(row, hidden) for row in found.get(f"stream {stream}", [])]
        _compare([_told(m) for m in expected[box].rows], rows, f"the reference: stream {stream}")
    for box, mark in kernels.items():
        made, name = expected[box], f"of={mark!r}"
        origins = [row for row in found.get("origins", []) if row[0] == name]
        told_of = [_without(row, ("of", "_group")) for row in origins]
        _compare([_origin(m) for m in made.inner], told_of, f"origins of {box}")
        if made.late is not None:
            late = [(row[-2],) for row in found.get(f"late.{box}", [])]
            _compare(sorted((f"_stamp={stamp}",) for stamp, _ in made.late), sorted(late), f"late rows of {box}")
    for box, made in expected.items():
        if made.rejected is not None:
            whole = [row for row in found.get("rejected", []) if row[0] == f"name={box!r}"]
            rejected = sorted(_without(row, ("name", "reason")) for row in whole)
            refused = sorted((f"row={row_json(row)!r}", f"_stamp={stamp}") for stamp, row in made.rejected)
            _compare(refused, rejected, f"rejected rows of {box}")
    return found


def check_split_invariance(
    network: Network, actions: Sequence[Action], folder: Path, *, cuts: Iterable[Sequence[int]] | None = None
) -> Contents:
    """However the admitted sequence is cut into epochs: same contents, order, tids, origins, late and rejected.

    `cuts` are stamps behind which an epoch ends; if not given: no cut, a cut behind every stamp, and some in between.
    """
    with _opened(network, folder) as engine:
        for action in actions:
            act(engine, action)
        whole = contents(engine._store)
        log = Log.of(engine)
        plan = engine._plan
    last = log.last
    chosen = [(), range(last), range(0, last, 3), range(1, last, 7)] if cuts is None else cuts
    for cut in chosen:
        replay = replayed(plan, log, cut)
        same(_derived(whole, plan), replay, f"cut behind {list(cut)[:20]}")
    return whole


def check_restart(
    network: Network,
    actions: Sequence[Action],
    folder: Path,
    *,
    at: Iterable[int] | None = None,
    damage: Callable[[Path], None] | None = None,
) -> Contents:
    """An engine closed and opened again between any two actions gives what one that never was gives.

    `at`: before which actions it is; all if not given. `damage` is done to the closed store: what it deletes must be a
    cache, as `without_cache` deletes it.
    """
    expected = run(network, actions, folder / "whole")
    points = set(range(len(actions) + 1)) if at is None else set(at)
    place = folder / "restarted"
    engine = _opened(network, place)
    try:
        for number, action in enumerate([*actions, None]):
            if number in points:
                engine.close()
                if damage is not None:
                    damage(place)
                engine = _opened(network, place)
            if action is not None:
                act(engine, action)
        found = contents(engine._store)
    finally:
        engine.close()
    same(expected, found, f"restarted before actions {sorted(points)}")
    return found


def check_arrival(network: Network, actions: Sequence[Action], folder: Path, *, seed: int = 0) -> Contents:
    """The order of the rows within a batch does not matter."""
    chance = random.Random(seed)
    expected = run(network, actions, folder / "given")
    mixed = [
        {name: chance.sample(_listed(rows), len(_listed(rows))) for name, rows in action.items()}
        if isinstance(action, Mapping)
        else action
        for action in actions
    ]
    found = run(network, mixed, folder / "mixed")
    same(expected, found, f"rows mixed within their batches (seed {seed})")
    return found


def without_cache(store: Path) -> None:
    """Delete what a closed store says it can do without."""
    shutil.rmtree(store / "cache", ignore_errors=True)


# --- runs ---


def run(
    network: Network,
    actions: Sequence[Action],
    folder: Path,
    *,
    lane: str = "driver",
    spark: SparkSession | None = None,
) -> Contents:
    """What a fresh store holds after these actions."""
    with _opened(network, folder, lane, spark) as engine:
        for action in actions:
            act(engine, action)
        return contents(engine._store)


def act(engine: Engine, action: Action) -> None:
    """One action, one epoch; warnings of tuples far ahead are passed over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarAheadWarning)
        if isinstance(action, Advance):
            engine.advance(action.stream, action.to)
        elif isinstance(action, str):
            engine.finish()
        else:
            engine.feed_all(action)


def _opened(network: Network, folder: Path, lane: str = "driver", spark: SparkSession | None = None) -> Engine:
    return clew.opening.open(folder, network, durable=False, lane=lane, spark=spark)


def _listed(rows: Any) -> list[Any]:
    return rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)


# --- what a store holds ---


def contents(store: Store) -> Contents:
    """Streams with all their numbers, in order; origins by place; late and rejected tuples in any order."""
    found: Contents = {}
    for name in store.state.streams:
        found[f"stream {name}"] = told(store.read_table(name).drop_columns([stored.EPOCH]))
    for name, folder in store.state.tables.items():
        if name == "moves" or name.startswith(stored.ORIGINS) or folder.schema is None:
            continue
        table = store.read_table(name, kind="tables")
        table = table.drop_columns([stored.EPOCH]) if stored.EPOCH in table.column_names else table
        found[name] = sorted(told(table))
    found["origins"] = _origins_sorted(stored.whole_index(store))
    return {name: rows for name, rows in found.items() if rows}


def told(table: pa.Table) -> list[tuple[str, ...]]:
    """Rows as text that tells every two values apart, and no NaN from another."""
    return [tuple(f"{name}={value!r}" for name, value in row.items()) for row in table.to_pylist()]


def same(expected: Contents, found: Contents, what: str) -> None:
    """Raise `LawError` at the first difference."""
    for name in sorted({*expected, *found}):
        _compare(expected.get(name, []), found.get(name, []), f"{what}: {name}")


def _compare(expected: Sequence[tuple[str, ...]], found: Sequence[tuple[str, ...]], what: str) -> None:
    if expected == found:
        return
    pairs = zip(expected, found, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(found)))
    raise LawError(
        f"{what}: row {at} differs ({len(expected)} rows expected, {len(found)} found)\n"
        f"  expected: {expected[at : at + 3]}\n  found:    {found[at : at + 3]}"
    )


def _without(row: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell for cell in row if cell.split("=")[0] not in names)


def _told(made: Made) -> tuple[str, ...]:
    return (*(f"{n}={v!r}" for n, v in made.values.items()), f"_stamp={made.stamp}", f"_pos={made.pos}")


def _origin(made: Made) -> tuple[str, ...]:
    names = ("_stamp", "_pos", *ORIGIN_COLUMNS)
    origin = (*made.origin, *[NO_FLOOR] * (len(ORIGIN_COLUMNS) - len(made.origin)))
    return tuple(f"{n}={v}" for n, v in zip(names, (made.stamp, made.pos, *origin), strict=True))


def _origins_sorted(table: pa.Table) -> list[tuple[str, ...]]:
    return told(table.sort_by([("of", "ascending"), ("_stamp", "ascending"), ("_pos", "ascending")]))


def _derived(whole: Contents, plan: Plan) -> Contents:
    """What boxes made, without what admission did."""
    streams = {f"stream {n}" for n in plan.sources}
    aside = {f"{kind}.{n}" for n in plan.sources for kind in ("late", "pending")}
    kept = {name: rows for name, rows in whole.items() if name not in streams | aside}
    if "rejected" in kept:
        kept["rejected"] = [row for row in kept["rejected"] if row[0] not in {f"name={n!r}" for n in plan.sources}]
    return {name: rows for name, rows in kept.items() if rows}


# --- the admitted sequence, run again ---


@dataclass(frozen=True, eq=False)
class Log:
    """The admitted sequence of a store: rows by stream, and moves of progress."""

    rows: Mapping[str, Rows]
    moves: Sequence[stored.Move]
    last: int

    @staticmethod
    def of(engine: Engine) -> Log:
        store, rows = engine._store, {}
        for name, step in engine._plan.sources.items():
            known = name in store.state.streams
            table = store.read_table(name) if known else None
            rows[name] = (
                Rows.empty(step.schema) if table is None else stored.archived_rows(name, table.combine_chunks())
            )
        return Log(rows, stored.moves_since(store, 0), store.state.stamp)

    def admitted(self) -> Admitted:
        """As the reference takes it."""
        rows = {
            name: [
                {**values, "_stamp": stamp, "_seq": seq}
                for seq, (values, stamp) in enumerate(zip(r.table.to_pylist(), r.stamp.tolist(), strict=True), 1)
            ]
            for name, r in self.rows.items()
        }
        finish = next((m.stamp for m in self.moves if m.finish), None)
        return Admitted(rows, [(m.stream, m.stamp, m.to) for m in self.moves], finish)


def replayed(plan: Plan, log: Log, cuts: Iterable[int] = (), lane: Lane[Any] | None = None) -> Contents:
    """What boxes make of an admitted sequence in epochs that end behind the stamps `cuts`, without a store."""
    lane, modes = lane or DriverLane(Catalyst(_no_session)), Modes()
    states, collected = BoxStates(), _Collected(plan)
    progress: dict[str, Any] = dict.fromkeys(plan.sources)
    edges = [0, *sorted({c for c in cuts if 0 < c < log.last}), log.last]
    for low, high in pairwise(edges):
        flows, steps = {}, {}
        for name, step in plan.sources.items():
            rows = log.rows[name].filter((log.rows[name].stamp > low) & (log.rows[name].stamp <= high))
            order = axis_of(rows.table.column(step.source.order))[0]
            moves = [(m.stamp, m.to) for m in log.moves if m.stream == name and low < m.stamp <= high]
            steps[name] = source_steps(progress[name], *_with_moves(rows.stamp, order, moves), None)
            progress[name] = steps[name].end
            flows[name] = rows
        finish = next((m.stamp for m in log.moves if m.finish and low < m.stamp <= high), None)
        result = evaluate(plan, lane, Sources(flows, steps, finish), states, logged_inputs(plan, modes))
        states = result.states
        for stream, of in plan.stored.items():
            if stream not in plan.sources:
                collected.streams[stream].append(lane.rows(result.flows[of]))
        collected.take(result)
    return collected.contents()


def _with_moves(stamps: Any, order: Any, moves: Sequence[tuple[int, Any]]) -> tuple[Any, Any]:
    stamps = np.concatenate([stamps, np.array([s for s, _ in moves], np.int64)])
    order = np.concatenate([order, np.array([v for _, v in moves], order.dtype)])
    index = np.argsort(stamps, kind="stable")
    return stamps[index], order[index]


class _Collected:
    """What the epochs of a replay made, put together as a store would hold it."""

    def __init__(self, plan: Plan) -> None:
        self.streams: dict[str, list[Rows]] = {s: [] for s in plan.stored if s not in plan.sources}
        self.plan = plan
        self.origins: list[pa.Table] = []
        self.late: dict[str, list[tuple[str, ...]]] = {}
        self.rejected: list[tuple[str, ...]] = []

    def take(self, result: Pass[Any]) -> None:
        named = {step_mark(self.plan, step): rows for step, rows in result.named.items()}
        logs = {log_mark(self.plan, of): known for of, known in result.logs.items()}
        self.origins += [stored.index_rows(table, mark) for mark, table in stored.index_parts(named, logs).items()]
        for box, parts in result.late.items():
            for part in parts:
                name = f"late.{box}" + (f".{part.port}" if part.port else "")
                table = stored.late_table(
                    part.rows.table, list(part.reasons), Places(part.rows.stamp, part.rows.pos), 0
                )
                self.late.setdefault(name, []).extend(told(table.drop_columns([stored.EPOCH])))
        self.rejected += told(stored.rejected_table({}, dict(result.rejected), 0).drop_columns([stored.EPOCH]))

    def contents(self) -> Contents:
        found: Contents = {}
        for stream, parts in self.streams.items():
            rows = Rows.concat(parts)
            found[f"stream {stream}"] = told(stored.derived_bucket(rows, 1, 0).drop_columns([stored.EPOCH]))
        if self.origins:
            found["origins"] = _origins_sorted(pa.concat_tables(self.origins))
        found |= {name: sorted(rows) for name, rows in self.late.items()}
        found["rejected"] = sorted(self.rejected)
        return {name: rows for name, rows in found.items() if rows}


def _no_session() -> Any:
    raise LawError("an expression of this network needs Spark; give a lane that has a session")


__all__ = [
    "FINISH", "STAMP", "Action", "Advance", "Contents", "LawError", "Log", "act", "check_arrival", "check_reference",
    "check_restart", "check_split_invariance", "contents", "replayed", "run", "same", "told", "without_cache",
]  # fmt: skip
