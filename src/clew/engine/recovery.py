"""Opening: is the network the one that the store knows, and what did its boxes hold.

State is the last checkpoint and a replay of the archive behind it. Where that one is missing or damaged an older one
serves, or the whole archive, as long as nothing behind it has aged out. Boxes that are new replay all of it.
The archive is read in parts, and what new boxes make of a part is written before the next one is read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clew.archive.record import EpochRecord
from clew.archive.store import Store
from clew.engine import asides, stored
from clew.engine.admission import StreamState
from clew.engine.evaluate import BoxStates, Pass
from clew.engine.lanes.driver import DriverLane
from clew.engine.lineage import Modes, lineage_facts, logged_inputs
from clew.engine.marks import (
    boxes_behind,
    checkpoint_meta,
    checkpoint_tables,
    network_facts,
    states_from,
    step_mark,
    stored_boxes,
)
from clew.engine.plan import Plan
from clew.engine.replay import Replay, Start, Watch
from clew.engine.runtime import Memory
from clew.errors import BoxFailed, NetworkChanged, StoreError
from clew.model.rows import STAMP, Rows
from clew.network.boxes import Source

log = logging.getLogger("clew")


def recover(plan: Plan, store: Store, lane: DriverLane, modes: Modes) -> Memory:
    """What an engine over this store has in memory. Boxes that are new get the lineage of their modes."""
    known = store.state.network
    if known is None:
        return Memory(store.state.epoch, {n: StreamState() for n in plan.sources}, BoxStates())
    check_continues(plan, known, store)
    streams = {name: _stream_state(store, step.source) for name, step in plan.sources.items()}
    finished = bool(store.state.sources.get("finished"))
    known_streams = {*known["outputs"], *known["kept"]}
    new_outputs = [s for s in plan.stored if s not in known_streams and s not in plan.sources]
    new_kernels = [n for n in plan.kernels if step_mark(plan, n) not in known["kernels"]]
    behind = boxes_behind(plan, store.state)
    if new_outputs or new_kernels or behind:
        return _rebuild(plan, store, lane, streams, new_outputs, _Lacking(behind, modes), finished)
    start = _start(plan, store)
    states, replayed = _replay(plan, store, lane, start)
    return Memory(store.state.epoch, streams, states, replayed, store.state.epoch - start.epoch, finished)


def states_now(plan: Plan, store: Store, lane: DriverLane, watch: Watch | None = None) -> BoxStates:
    """What the boxes of a network that the store knows hold after its last epoch; nothing is written."""
    return _replay(plan, store, lane, _start(plan, store), watch=watch)[0]


def _start(plan: Plan, store: Store) -> Start:
    """The newest checkpoint that can be read and from which everything since is archived; else the beginning."""
    gone = {n: store.state.streams[n].gone for n in plan.sources if n in store.state.streams}
    horizon = max((g.stamp or 0 for g in gone.values() if g is not None), default=0)
    problems: list[str] = []
    for name in reversed(store.state.checkpoints):
        try:
            tables, meta = store.read_checkpoint(name)
        except StoreError as error:
            problems.append("; ".join([error.message, *error.details]))
            continue
        if meta["stamp"] < horizon or any(step_mark(plan, n) not in tables for n in plan.kernels):
            break  # so are those before it
        if problems:
            log.warning("recovering from the older checkpoint '%s': %s", name, "; ".join(problems))
        return Start(meta["epoch"], meta["stamp"], states_from(plan, tables, meta), meta["sources"])
    if horizon:
        raise StoreError(
            f"store '{store.layout.root}' has no checkpoint left from which its boxes can go on",
            details=[
                *problems[:3],
                *(f"stream '{n}' {g.told}" for n, g in gone.items() if g is not None),
            ],
            hint="restore the folder 'checkpoints' from a backup; nothing else is damaged, and streams can be read",
        )
    if problems:
        log.warning("recovering from the whole archive: %s", "; ".join(problems[:3]))
    return Start()


def check_continues(plan: Plan, known: Mapping[str, Any], store: Store) -> None:
    """Refuse a network that does not continue the stored one, and name what changed."""
    then = {b["name"]: b for b in known["boxes"]}
    stored_then = stored_boxes(known)
    past = known.get("past", {})
    for stream, box in plan.network.stored.items():
        print_then = known["prints"][stored_then[stream]] if stream in stored_then else past.get(stream)
        if print_then is None or plan.prints[box] == print_then:
            continue
        details = list(_differences(plan, known, then, box, stored_then[stream])) if stream in stored_then else []
        raise NetworkChanged(
            f"stream '{stream}' of store '{store.layout.root}' was made by another network",
            details=details or ["a box that feeds it means something else now"],
            hint=f"open it with the network it was made with, or name the new stream other than '{stream}'",
            at=plan.network.box(box).at or None,
        )


def _differences(plan: Plan, known: Mapping[str, Any], then: Mapping[str, Any], box: str, old: str) -> list[str]:
    from clew.network.drawing import box_json

    lines: list[str] = []
    seen: set[str] = set()
    stack = [(box, old)]
    while stack:
        name, before = stack.pop()
        if name in seen or plan.prints[name] == known["prints"].get(before):
            continue
        seen.add(name)
        new_box, old_box = box_json(plan.network.box(name)), then[before]
        for key in sorted({*new_box, *old_box} - {"name", "at", "inputs"}):
            if new_box.get(key) != old_box.get(key):
                lines.append(f"box '{name}': {key} was {old_box.get(key)!r}, is {new_box.get(key)!r}")
        if len(new_box["inputs"]) != len(old_box["inputs"]):
            lines.append(f"box '{name}': fed by {', '.join(old_box['inputs'])}, now by {', '.join(new_box['inputs'])}")
        stack += list(zip(new_box["inputs"], old_box["inputs"], strict=False))
    return lines


def _rebuild(
    plan: Plan,
    store: Store,
    lane: DriverLane,
    streams: dict[str, StreamState],
    new: list[str],
    lacking: _Lacking,
    finished: bool,
) -> Memory:
    """Run the whole archive through the network; commit what new outputs hold, and new boxes leave, as one epoch."""
    for name in plan.sources:
        folder = store.state.streams.get(name)
        if folder is not None and folder.gone is not None:
            raise NetworkChanged(
                f"store '{store.layout.root}' cannot bring the new boxes up to date",
                details=[
                    f"new: {', '.join(new) or 'boxes behind known outputs'}",
                    f"stream '{name}' {folder.gone.told}",
                ],
                hint="use a new store for the new network",
            )
    record = store.begin()
    record.network = network_facts(plan, store.state)
    since = {box: upto + 1 for box, upto in lacking.behind.items()}
    record.lineage = lineage_facts(plan, lacking.modes, since, record.stamp)
    try:
        states, _ = _replay(plan, store, lane, Start(), _CatchUp(plan, store, record, new, lacking))
        tables, meta = checkpoint_tables(plan, states)
        meta |= checkpoint_meta(record, {n: s.progress for n, s in streams.items()})
        record.checkpoint = store.write_checkpoint(record.epoch, tables, meta)
    except BaseException:
        store.discard(record)
        raise
    store.commit(record)
    return Memory(record.epoch, streams, states, 0, 0, finished)


def _stream_state(store: Store, source: Source) -> StreamState:
    folder = store.state.streams.get(source.name)
    if folder is None:
        return StreamState()
    progress = folder.meta.get("progress")
    pending = None
    if f"pending.{source.name}" in store.state.tables and store.files(f"pending.{source.name}", kind="tables"):
        pending = store.read_table(f"pending.{source.name}", kind="tables")
    recent = None if progress is None else stored.recent_keys(store, source, progress)
    return StreamState(folder.seq, folder.meta.get("first"), progress, folder.meta.get("newest"), recent, pending)


@dataclass(frozen=True)
class _Lacking:
    """Boxes that have not run over all that the store has, each with the stamp up to which it has; and all modes."""

    behind: Mapping[str, int]
    modes: Modes


class _CatchUp:
    """What a replay makes that the store lacks: rows of new outputs, and what boxes that are new leave beside them."""

    def __init__(self, plan: Plan, store: Store, record: EpochRecord, outputs: list[str], lacking: _Lacking) -> None:
        self.plan, self.store, self.record = plan, store, record
        self.outputs, self.behind, self.modes = outputs, lacking.behind, lacking.modes
        self.logged = {of for of in logged_inputs(plan, self.modes) if plan.steps[of[0]].box in self.behind}
        self._rows: dict[str, list[Rows]] = {stream: [] for stream in outputs}
        self._passes: list[Pass[Rows]] = []
        self._made = dict.fromkeys(outputs, 0)
        for stream in outputs:
            change, folder = record.folder("streams", stream), store.state.streams.get(stream)
            change.schema = stored.stored_schema(plan.steps[plan.stored[stream]].schema, stored.DERIVED_HIDDEN)
            change.seq = folder.seq if folder else 0  # an output that was away for a while has its first rows

    def take(self, first: int, result: Pass[Rows]) -> None:
        """Note what a pass from the stamp `first` on has made; no box may have run up to a stamp within it."""
        for stream, parts in self._rows.items():
            parts.append(result.flows[self.plan.stored[stream]])
        lacking = {box for box, upto in self.behind.items() if first > upto}
        named = {step: n for step, n in result.named.items() if self.plan.steps[step].box in lacking}
        late = {box: parts for box, parts in result.late.items() if box in lacking}
        rejected = {box: parts for box, parts in result.rejected.items() if box in lacking}
        logs = {of: known for of, known in result.logs.items() if self.plan.steps[of[0]].box in lacking}
        self._passes.append(Pass({}, BoxStates(), named, late, rejected, {}, logs))

    def write(self) -> None:
        """Write what was noted as buckets of the record."""
        for stream, parts in self._rows.items():
            rows, change = Rows.concat(parts), self.record.folder("streams", stream)
            before, last = self._made[stream], change.seq or 0
            self._made[stream] += len(rows)
            rows = rows.slice(min(max(last - before, 0), len(rows)), len(rows))
            if len(rows):
                bucket = stored.derived_bucket(rows, last + 1, self.record.epoch)
                change.add.append(self.store.write_bucket("streams", stream, bucket))
                change.seq = last + len(rows)
            parts.clear()
        asides.add_made(self.store, self.plan, self.modes, self.record, self._passes)
        self._passes.clear()


def _replay(
    plan: Plan,
    store: Store,
    lane: DriverLane,
    start: Start,
    made: _CatchUp | None = None,
    watch: Watch | None = None,
) -> tuple[BoxStates, int]:
    """Run what was admitted after the start through the boxes; states, and how many rows."""
    cuts = {upto + 1 for upto in (made.behind.values() if made else ())}
    emitted = dict.fromkeys(plan.stored, 0)
    states, replayed = start.states, 0
    for each in Replay(plan, store, lane, start, cuts=cuts, logged=made.logged if made else (), watch=watch):
        states, replayed = each.result.states, replayed + each.rows
        for stream, step_name in plan.stored.items():
            emitted[stream] += len(each.result.flows[step_name])
        if made is not None:
            made.take(each.first, each.result)
            if each.ends_chunk:
                made.write()
    _check_same(plan, store, start, emitted, made.outputs if made else ())
    return states, replayed


def _check_same(plan: Plan, store: Store, start: Start, emitted: Mapping[str, int], new: Sequence[str]) -> None:
    """A replay that gives another number of rows than was stored means that something is not deterministic."""
    for stream, count in emitted.items():
        folder = store.state.streams.get(stream)
        if folder is None or stream in plan.sources or stream in new:
            continue
        expected = folder.rows
        if start.epoch:
            expected = len(store.read_table(stream, [STAMP], {STAMP: (start.stamp + 1, None)}))
        if count != expected:
            raise BoxFailed(
                f"replaying the archive gives {count} rows of output '{stream}', the store has {expected}",
                hint="user code behind it gives other results than before; they must depend on its arguments alone",
            )
