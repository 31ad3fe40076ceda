"""One engine's life: epochs of admission, evaluation and commit over a store.

Nothing in memory changes before the commit; if anything fails before it, the epoch has not happened.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from clew.archive.layout import checkpoint_epoch
from clew.archive.record import EpochRecord
from clew.archive.store import Store
from clew.engine import asides, stored
from clew.engine.admission import Admission, StreamState, admit, needs_recent, source_steps, stamp_streams
from clew.engine.annotations import add_annotations
from clew.engine.annotator import Annotator, Helds, Ran
from clew.engine.batches import Reject
from clew.engine.evaluate import BoxStates, Lane, Pass, Sources, evaluate
from clew.engine.lineage import Modes, lineage_facts, logged_inputs
from clew.engine.marks import checkpoint_meta, checkpoint_tables, is_current, network_facts
from clew.engine.pieces import Batch
from clew.engine.plan import Plan
from clew.errors import StoreError
from clew.model.axis import Number, axis_end, span_of
from clew.model.rows import Stamps
from clew.model.runs import Runs
from clew.model.steps import Steps
from clew.network.boxes import LINEAGE, Source

CHECKPOINT_ROWS = 200_000
CHECKPOINT_EPOCHS = 64
CHECKPOINTS_KEPT = 8
AGE_SHARE = 8  # buckets age out once they are an eighth of the archive

Lanes = Callable[[int], Lane[Any]]  # the lane for an epoch of so many rows
Prune = Callable[["Memory", EpochRecord], bool]  # writes into a record what goes, by what was held before its epoch


@dataclass(frozen=True)
class Epoch:
    """What one epoch did."""

    number: int
    admitted: dict[str, int]
    outputs: dict[str, int]
    rejected: int = 0
    late: int = 0
    waiting: int = 0
    seconds: float = 0.0
    lane: str = "driver"
    repeated: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Arrival:
    """What comes in with one epoch: batches by stream, rows refused before admission, and moves of progress."""

    batches: Mapping[str, Batch] = field(default_factory=dict)
    refused: Mapping[str, list[Reject]] = field(default_factory=dict)
    advances: Mapping[str, Number] = field(default_factory=dict)
    finish: bool = False
    id: str | None = None
    query: tuple[str, int] | None = None
    at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))


@dataclass(frozen=True, eq=False)
class Memory:
    """What an engine holds after an epoch; all of it can be had back from the store."""

    epoch: int
    streams: dict[str, StreamState]
    boxes: BoxStates
    rows_since_checkpoint: int = 0
    epochs_since_checkpoint: int = 0
    finished: bool = False


@dataclass(eq=False)
class _Admitted:
    """The admitted part of an epoch, with its numbers."""

    admissions: dict[str, Admission]
    stamps: dict[str, Stamps]
    steps: dict[str, Steps]
    moves: list[stored.Move]
    finish: int | None
    last_stamp: int


class Runtime:
    """Runs epochs of a plan over a store, in memory that a recovery can rebuild."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        memory: Memory,
        lanes: Lanes,
        modes: Modes,
        prune: Prune | None = None,
        annotator: Annotator | None = None,
    ) -> None:
        self.plan, self.store, self.memory, self.lanes, self.modes = plan, store, memory, lanes, modes
        self._prune, self.annotator = prune, annotator
        self._logged = logged_inputs(plan, modes) | (annotator.logged if annotator else set())

    def epoch(self, arrival: Arrival) -> Epoch:
        """Admit, evaluate, commit."""
        started = time.perf_counter()
        if self.memory.epoch != self.store.state.epoch:  # an interrupt struck between the commit and the new memory
            raise StoreError(
                f"store '{self.store.layout.root}' takes no more epochs: "
                f"what followed the commit of epoch {self.store.state.epoch} was cut off",
                hint="open it again",
            )
        admitted = self._admit(arrival)
        lane = self.lanes(sum(len(s) for s in admitted.stamps.values()))
        try:
            return self._run(arrival, admitted, lane, started)
        finally:
            lane.close()

    def _run(self, arrival: Arrival, admitted: _Admitted, lane: Lane[Any], started: float) -> Epoch:
        number = self.store.state.epoch + 1
        flows = {name: self._flow(name, admitted, lane) for name in self.plan.sources}
        archived = {
            name: lane.write_ahead(self.store, name, flows[name], self.memory.streams[name].seq + 1, number)
            for name in admitted.admissions
        }
        sources = Sources(flows, admitted.steps, admitted.finish)
        result = evaluate(self.plan, lane, sources, self.memory.boxes, self._logged)
        record = self.store.begin(id=arrival.id, query=arrival.query)
        record.stamp = admitted.last_stamp
        try:
            for name, written in archived.items():
                record.folder("streams", name).add += written()
            memory = self._next_memory(admitted, result)
            gone = self._prune is not None and self._prune(self.memory, record)
            self._fill(record, arrival, admitted, result, lane)
            held = self._annotate(record, admitted, result, lane)
            gone |= self._age_out(record, memory)
            if gone or self._checkpoint_due(memory, result):  # the checkpoint stands for what goes
                memory = replace(memory, rows_since_checkpoint=0, epochs_since_checkpoint=0)
                self._checkpoint(record, memory)
            seconds = time.perf_counter() - started
            summary = self._summary(number, arrival, admitted, result, seconds, lane)
            record.boxes = self._measures(summary, admitted, result, arrival)
        except BaseException:
            self.store.discard(record)
            raise
        self.store.commit(record)
        self.memory = memory
        if self.annotator is not None:
            self.annotator.held = held
        if record.checkpoint is not None:
            self.store.drop_checkpoints(before=self._oldest_needed())
        return replace(summary, seconds=time.perf_counter() - started)

    # --- admission ---

    def _admit(self, arrival: Arrival) -> _Admitted:
        names = list(self.plan.sources)
        admissions: dict[str, Admission] = {}
        moves: dict[str, Number] = dict(arrival.advances)
        for name in names:
            source = self._source(name)
            if arrival.finish:
                moves[name] = axis_end(source.schema.field(source.order).type)
            if name in arrival.batches or name in moves:
                batch = arrival.batches.get(name) or self._nothing(name)
                state = self._stream_state(source, batch)
                admissions[name] = admit(source, state, batch, now=arrival.at, advance=moves.get(name))
        orders = [
            (
                self._source(n).schema.field(self._source(n).order).type,
                admissions[n].runs if n in admissions else _NONE,
            )
            for n in names
        ]
        stamps = dict(zip(names, stamp_streams(orders, self.store.state.stamp), strict=True))
        last = self.store.state.stamp + sum(len(s) for s in stamps.values())
        numbered = _numbered(moves, arrival.finish, last)
        moved_at = {m.stream: m.stamp for m in numbered}
        last = max([last, *moved_at.values()])
        steps = {}
        for name in names:
            runs = admissions[name].runs if name in admissions else _NONE
            move = (moved_at[name], moves[name]) if name in moves else None
            reached = stamps[name].at(runs.starts)
            steps[name] = source_steps(self.memory.streams[name].progress, reached, runs.value, move)
        finish = next(iter(moved_at.values()), last) if arrival.finish else None
        return _Admitted(admissions, stamps, steps, numbered, finish, last)

    def _stream_state(self, source: Source, batch: Batch) -> StreamState:
        state = self.memory.streams[source.name]
        if not needs_recent(state, batch) or state.progress is None:
            return state
        return replace(state, recent=stored.recent_keys(self.store, source, state.progress), unread=False)

    def _flow(self, name: str, admitted: _Admitted, lane: Lane[Any]) -> Any:
        made = admitted.admissions.get(name)
        batch = made.batch if made else self._nothing(name)
        return lane.source(name, batch, admitted.stamps[name], self.memory.streams[name].seq + 1)

    def _nothing(self, name: str) -> Batch:
        return Batch.of(self._source(name), self._source(name).schema.empty_table())

    def _source(self, name: str) -> Source:
        return self.plan.sources[name].source

    # --- commit ---

    def _fill(
        self, record: EpochRecord, arrival: Arrival, admitted: _Admitted, result: Pass[Any], lane: Lane[Any]
    ) -> None:
        """Write the epoch's buckets and name them in its record."""
        number = record.epoch
        self._add(record, "moves", stored.moves_table(admitted.moves, number))
        if admitted.finish is not None:
            record.sources = {"finished": number}
        if not is_current(self.plan, self.store.state.network):
            record.network = network_facts(self.plan, self.store.state)
        for name, made in admitted.admissions.items():
            self._source_change(record, name, made)
        self._stored_changes(record, admitted, result, lane)
        refused = {n: [*arrival.refused.get(n, []), *_rejects(admitted, n)] for n in self.plan.sources}
        since = dict.fromkeys(self.plan.ends, self.store.state.stamp + 1)
        record.lineage = lineage_facts(self.plan, self.modes, since, record.stamp)
        asides.add_made(self.store, self.plan, self.modes, record, [result], refused)
        for name, made in admitted.admissions.items():
            if len(made.late):
                reasons = [f"later than the lateness of stream '{name}' allows"] * len(made.late)
                late = stored.late_table(made.late, reasons, None, number)
                asides.add_late(self.store, self.plan, record, name, late)
        self.store.compact(record)

    def _source_change(self, record: EpochRecord, name: str, made: Admission) -> None:
        after = made.state
        change = record.folder("streams", name)
        change.seq = after.seq
        change.meta |= {"progress": after.progress, "newest": after.newest, "first": after.first}
        waiting, before = after.pending, self.memory.streams[name].pending
        if waiting is not None and (len(waiting) or (before is not None and len(before))):
            pending = f"pending.{name}"
            live = self.store.state.tables.get(pending)
            if live is not None:
                record.folder("tables", pending).remove = list(live.files)
            self._add(record, pending, waiting)

    def _stored_changes(self, record: EpochRecord, admitted: _Admitted, result: Pass[Any], lane: Lane[Any]) -> None:
        for stream, step in self.plan.stored.items():
            source = stream in self.plan.sources
            if source and stream not in admitted.admissions:
                continue
            folder, flow = self.store.state.streams.get(stream), result.flows[step]
            last = folder.seq if folder else 0
            change = record.folder("streams", stream)
            if folder is None:
                hidden = stored.SOURCE_HIDDEN if source else stored.DERIVED_HIDDEN
                change.schema = stored.stored_schema(self.plan.steps[step].schema, hidden)
                change.order = self._source(stream).order if source else None
            if not source:
                change.add += lane.write(self.store, stream, flow, last + 1, record.epoch)
            change.seq = last + lane.count(flow)

    def _annotate(self, record: EpochRecord, admitted: _Admitted, result: Pass[Any], lane: Lane[Any]) -> Helds:
        """Write the annotations of the epoch's outputs; what is to be held of others, once it is committed."""
        if self.annotator is None:
            return {}
        streams = self.store.state.streams
        first = {name: (streams[name].seq if name in streams else 0) + 1 for name in self.plan.stored}
        ran = Ran(result, lane, self.memory.boxes, self.store.state.stamp, admitted.stamps, first)
        made, held = self.annotator.run(ran)
        add_annotations(self.store, record, self.annotator, made, first)
        return held

    def _add(self, record: EpochRecord, name: str, table: pa.Table) -> None:
        asides.add(self.store, record, name, table)

    def _age_out(self, record: EpochRecord, memory: Memory) -> bool:
        """Let whole buckets go that are older than the retention; the checkpoint of this epoch stands for them.

        Only when they are a good part of the archive: a checkpoint costs as much as the states are large.
        """
        aged = False
        for name in self.plan.sources:
            source, progress = self._source(name), memory.streams[name].progress
            kind = source.schema.field(source.order).type
            if source.retention in (None, LINEAGE) or progress is None or progress >= axis_end(kind):
                continue
            folder = self.store.state.streams.get(name)
            if folder is None:
                continue
            # keys that may be repeated are looked for in the archive
            bounds = {"retention": source.retention or 0, "key_span": source.key_span or 0}
            needed = max(span_of(span, kind, word) for word, span in bounds.items())
            paths = self.store.age_out_plan(name, progress - needed, record)
            if sum(folder.files[path].rows for path in paths) * AGE_SHARE > folder.rows:
                record.folder("streams", name).age_out = paths
                aged = True
        return aged

    def _next_memory(self, admitted: _Admitted, result: Pass[Any]) -> Memory:
        streams = {**self.memory.streams, **{n: a.state for n, a in admitted.admissions.items()}}
        rows = sum(len(s) for s in admitted.stamps.values())
        return Memory(
            self.store.state.epoch + 1,
            streams,
            result.states,
            self.memory.rows_since_checkpoint + rows,
            self.memory.epochs_since_checkpoint + 1,
            self.memory.finished or admitted.finish is not None,
        )

    def _checkpoint_due(self, memory: Memory, result: Pass[Any]) -> bool:
        """Often enough that a restart is quick, seldom enough that states cost less than the rows behind them."""
        held = sum(m.state_rows for m in result.metrics.values())
        rows = memory.rows_since_checkpoint
        return rows >= max(CHECKPOINT_ROWS, held) or (
            memory.epochs_since_checkpoint >= CHECKPOINT_EPOCHS and rows * 4 >= held
        )

    def _checkpoint(self, record: EpochRecord, memory: Memory) -> None:
        tables, meta = checkpoint_tables(self.plan, memory.boxes)
        meta |= checkpoint_meta(record, {n: s.progress for n, s in memory.streams.items()})
        record.checkpoint = self.store.write_checkpoint(record.epoch, tables, meta)

    def _oldest_needed(self) -> int:
        """The epoch before which no checkpoint is worth its place.

        The newest few are kept against damage. Once rows have aged out, so are all back to the newest one that
        stands before every archived row: from there boxes can be run over whatever the archive still holds.
        Together they hold no more rows than were admitted in that time: see `_checkpoint_due`. Where rows are pruned
        by lineage, old ones stand between the gaps, over which no box can be run.
        """
        epochs = [checkpoint_epoch(name) or 0 for name in self.store.state.checkpoints]
        needed = epochs[-CHECKPOINTS_KEPT:][0]
        aging = [n for n in self.plan.sources if self._source(n).retention != LINEAGE]
        folders = [f for n, f in self.store.state.streams.items() if n in aging]
        if all(f.gone is None for f in folders):
            return needed
        oldest = [next(iter(f.files.values())).stats[stored.EPOCH][0] for f in folders if f.files]
        standing = [e for e in epochs if all(e < (first or 0) for first in oldest)]
        return min(needed, standing[-1] if standing else 0)

    # --- what is told ---

    def _summary(
        self, number: int, arrival: Arrival, admitted: _Admitted, result: Pass[Any], seconds: float, lane: Lane[Any]
    ) -> Epoch:
        outputs = {
            s: lane.count(result.flows[step]) for s, step in self.plan.stored.items() if s not in self.plan.sources
        }
        refused = sum(len(r.rows) for parts in result.rejected.values() for r in parts)
        refused += sum(len(r) for r in arrival.refused.values())
        refused += sum(len(a.rejects) for a in admitted.admissions.values())
        late = sum(len(a.late) for a in admitted.admissions.values())
        late += sum(len(r.rows) for parts in result.late.values() for r in parts)
        return Epoch(
            number,
            {n: len(admitted.stamps[n]) for n in admitted.admissions},
            outputs,
            refused,
            late,
            sum(a.waiting for a in admitted.admissions.values()),
            seconds,
            lane.name,
            warnings=tuple(w for a in admitted.admissions.values() for w in a.warnings),
        )

    def _measures(
        self, summary: Epoch, admitted: _Admitted, result: Pass[Any], arrival: Arrival
    ) -> dict[str, dict[str, Any]]:
        measures: dict[str, dict[str, Any]] = {}
        for name, step in self.plan.steps.items():
            seen = result.metrics[name]
            box = measures.setdefault(step.box, {"rows_in": seen.rows_in, "ms": 0.0, "state_rows": 0, "state_bytes": 0})
            box["rows_out"] = seen.rows_out
            box["ms"] = round(box["ms"] + seen.ms, 3)
            box["state_rows"] += seen.state_rows
            box["state_bytes"] += seen.state_bytes
            box["lane"] = seen.lane
        for name, made in admitted.admissions.items():
            measures[name]["rows_in"] = len(arrival.batches.get(name, ()))
            measures[name]["waiting"] = made.waiting
            newest, progress = made.state.newest, made.state.progress
            if newest is not None and progress is not None:
                measures[name]["lag"] = newest - progress if newest != progress else 0
        arrived = (dt.datetime.now(dt.UTC) - arrival.at).total_seconds() * 1000
        measures["*"] = {
            "ms": round(summary.seconds * 1000, 3),
            "lag_ms": round(arrived, 3),
            "rejected": summary.rejected,
            "late": summary.late,
            "arrived_at": arrival.at.isoformat(timespec="milliseconds"),
        }
        return measures


_NONE = Runs(np.empty(0, np.int64), np.empty(0, np.int64))


def _numbered(moves: Mapping[str, Number], finish: bool, last: int) -> list[stored.Move]:
    """A move takes a stamp, so that what it closes has a trigger; a finish takes one for all streams."""
    return [stored.Move(n, to, last + 1 + (0 if finish else i), finish) for i, (n, to) in enumerate(moves.items())]


def _rejects(admitted: _Admitted, name: str) -> list[Reject]:
    return admitted.admissions[name].rejects if name in admitted.admissions else []
