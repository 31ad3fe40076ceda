"""The one object a user holds: an engine over a store, running a network."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clew.archive.store import Store
from clew.engine import asides, stored
from clew.engine.annotated import annotated_frame, annotation_of
from clew.engine.annotations import inputs_of
from clew.engine.annotator import Annotator
from clew.engine.batches import as_table, one_value
from clew.engine.catalyst import Catalyst, disk_full, failed_in_spark, first_line
from clew.engine.delivery import Deliveries, Receiver
from clew.engine.frames import conform, is_frame, scan
from clew.engine.instrument import Instrumented
from clew.engine.lanes.driver import DriverLane
from clew.engine.lanes.spark import SparkLane
from clew.engine.lineage import Modes
from clew.engine.pieces import Batch, Scan, scratch
from clew.engine.plan import Plan
from clew.engine.reading import empty_frame, frame_of
from clew.engine.recovery import recover
from clew.engine.runtime import Arrival, Epoch, Runtime
from clew.engine.streaming import AVAILABLE_NOW, Run, Streamer
from clew.engine.zones import normal_zone
from clew.errors import (
    BatchError,
    BoxFailed,
    Finished,
    UnknownEpoch,
    UnknownStream,
    UnknownTuple,
    nearest,
)
from clew.explain.answers import answers, stored_stream
from clew.explain.explanation import Explanation
from clew.explain.forward import Held
from clew.explain.horizon import RetentionPlan, retention_plan
from clew.explain.impact import Impact
from clew.explain.needed import Pruner
from clew.explain.past import TracedPast
from clew.explain.questions import Questions
from clew.explain.trace import Tracer
from clew.model.axis import axis_end, value_on_axis
from clew.model.encodings import Encoding
from clew.network.boxes import LINEAGE, Source
from clew.network.naming import shown
from clew.network.network import Network

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_ROWS = 200_000  # an epoch of at least so many rows runs as Spark jobs, unless told otherwise
PARTITIONS: int | None = None  # of a kernel's groups in such an epoch; None: by its rows and the session's cores

log = logging.getLogger("clew")


class FarAheadWarning(UserWarning):
    """A tuple whose order is so far ahead that it waits."""


class Engine:
    """Runs a network over a store. Made by `clew.open`."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        session: Callable[[], SparkSession],
        lane: str,
        modes: Modes,
        annotate: Sequence[Instrumented] = (),
        encoding: Encoding = "adaptive",
    ) -> None:
        self._plan, self._store, self._session, self._lane = plan, store, session, lane
        self._driver = DriverLane(Catalyst(session))
        memory = recover(plan, store, self._driver, modes)
        by_lineage = any(step.source.retention == LINEAGE for step in plan.sources.values())
        prune = Pruner(plan, self._tracer) if by_lineage else None
        annotator = Annotator(annotate, encoding, TracedPast(self._tracer), store.state.stamp) if annotate else None
        self._runtime = Runtime(plan, store, memory, self._lane_for, modes, prune, annotator)
        self._questions = Questions(plan, store, self._driver, session)
        self._deliveries = Deliveries(store, session)
        self._lock = threading.RLock()  # one epoch at a time, its delivery included; a receiver may feed

    @property
    def _zone(self) -> str:
        pinned = str(self._store.settings["time_zone"])
        return normal_zone(pinned) or pinned

    def _lane_for(self, rows: int) -> DriverLane | SparkLane:
        if self._lane == "driver" or (self._lane == "auto" and rows < SPARK_ROWS):
            return self._driver
        return SparkLane(self._session, self._driver, self._store.layout.cache / "epochs", PARTITIONS)

    @property
    def network(self) -> Network:
        return self._plan.network

    @property
    def spark(self) -> SparkSession:
        """The Spark session that this engine uses."""
        return self._session()

    @property
    def last_epoch(self) -> int:
        return self._store.last_epoch

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the store go, once the epoch under way has ended. Nothing is lost: all that was fed is committed."""
        with self._lock:
            self._store.close()

    def __repr__(self) -> str:
        return f"<Engine of network '{self.network.name}' over '{self._store.layout.root}' at epoch {self.last_epoch}>"

    # --- feeding ---

    def feed(self, stream: str, batch: Any, *, id: str | None = None) -> Epoch:
        """Admit a batch as one epoch: a list of dicts, an Arrow table, a pandas frame or a Spark DataFrame.

        With an `id`, feeding the same batch again does nothing: it is safe to repeat after any failure. Of a
        streaming DataFrame it takes what is there now, as `run(..., available_now=True)`, and goes on there next time.
        """
        return self.feed_all({stream: batch}, id=id)

    def feed_all(self, batches: Mapping[str, Any], *, id: str | None = None) -> Epoch:
        """Admit batches of several streams as one epoch; their tuples are merged by order."""
        self._check_given(batches, "feed_all")
        if id is not None and not isinstance(id, str):
            raise BatchError(f"an id is text, not {shown(id)}", hint=f"id={str(id)!r}")
        if (repeated := self._repeated(id)) is not None:
            return repeated
        if any(is_frame(batch) and batch.isStreaming for batch in batches.values()):
            return self._feed_streaming(batches, id)
        self._check_open()
        taken, refused = {}, {}
        with scratch(self._store) as folder:
            for name, batch in batches.items():
                source = self._plan.sources[name].source
                if is_frame(batch):
                    found = self._scanned(batch, source, folder)
                    taken[name], refused[name] = found.batch, list(found.rejects)
                else:
                    table, refused[name] = as_table(batch, source.schema, name, self._zone)
                    taken[name] = Batch.of(source, table)
            return self._epoch(Arrival(taken, refused, id=id))

    def _scanned(self, frame: DataFrame, source: Source, folder: Path) -> Scan:
        try:
            return scan(conform(frame, source), [source], folder, self._zone)[source.name]
        except failed_in_spark() as error:
            raise disk_full(error) or BatchError(
                f"batch for stream '{source.name}' failed in Spark",
                details=[first_line(error)],
                hint="nothing of it was admitted",
            ) from error

    def _feed_streaming(self, batches: Mapping[str, Any], id: str | None) -> Epoch:
        if id is not None:
            raise BatchError(
                "a streaming DataFrame was given an id",
                details=[f"id: {id}"],
                hint="leave it out: what was taken of a streaming source is never taken again",
            )
        before = self._last_seqs()
        done = self.run(batches, available_now=True)
        new = {name: seq - before[name] for name, seq in self._last_seqs().items()}
        outputs = {name: rows for name, rows in new.items() if name not in self._plan.sources}
        return Epoch(
            self.last_epoch, {name: new[name] for name in batches}, outputs, done.rejected, done.late,
            seconds=done.seconds, repeated=not done.epochs,
        )  # fmt: skip

    def _last_seqs(self) -> dict[str, int]:
        """The last seq of each stored stream."""
        folders = self._store.state.streams
        return {name: folders[name].seq if name in folders else 0 for name in self._plan.stored}

    def run(
        self,
        sources: Mapping[str, Any],
        *,
        trigger: str | None = None,
        available_now: bool = False,
        processing_time: str | None = None,
        timeout_s: float | None = None,
    ) -> Run:
        """Run on Spark Structured Streaming: one query over all sources, each micro-batch one epoch.

        A source is a streaming DataFrame, or a path of Parquet, JSON or CSV files. `available_now=True` takes what
        is there and returns; `processing_time="5 seconds"` makes an epoch that often; without either, epochs follow
        each other until ctrl-C or `timeout_s`. (`trigger="available_now"` or `"5 seconds"` says the same.) A run that
        is started again with the same sources goes on where it was; `finish()` is not implied.
        """
        self._check_given(sources, "run")
        if not sources:
            raise BatchError("run was given no sources", details=[f"sources: {', '.join(self._plan.sources)}"])
        given = [t for t in (trigger, AVAILABLE_NOW if available_now else None, processing_time) if t is not None]
        if len(given) > 1:
            raise BatchError("run was given several triggers", details=[f"given: {', '.join(given)}"])
        if self._deliveries.in_receiver:
            hint = "it may feed(...); a run waits until it has returned"
            raise BatchError("a receiver cannot start a run", hint=hint)
        if given != [AVAILABLE_NOW]:  # what is there may all have been taken before the end
            self._check_open()
        # Spark knows the sources of a query by their order: it must be the same in every run
        declared = {name: (self._plan.sources[name].source, sources[name]) for name in sorted(sources)}
        streamer = Streamer(self.spark, self._store, self._zone, self._epoch)
        return streamer.run(declared, given[0] if given else None, timeout_s)

    def advance(self, stream: str, to: Any) -> Epoch:
        """Move a stream's time on without a tuple: what is older is late from now on, and windows close."""
        self._check_streams([stream])
        self._check_open()
        source = self._plan.sources[stream].source
        field = source.schema.field(source.order)
        what = f"stream '{stream}' cannot be advanced to {to!r}"
        value = one_value(to, field, what, self._zone)
        number = None if value is None else value_on_axis(value, field.type)
        if number is None or abs(number) >= axis_end(field.type):
            raise BatchError(f"{what}, which is no place in its order", hint="finish() ends all sources")
        return self._epoch(Arrival(advances={stream: number}))

    def finish(self) -> Epoch:
        """End all sources: waiting tuples are admitted, value windows close, sorts flush, outer rows appear.

        Finishing again does nothing.
        """
        with self._lock:
            if self._runtime.memory.finished:
                self._deliveries.deliver()
                return Epoch(int(self._store.state.sources["finished"]), {}, {}, repeated=True)
            return self._epoch(Arrival(finish=True))

    def _repeated(self, id: str | None) -> Epoch | None:
        """What feeding under an id gives if that was done before."""
        with self._lock:
            if id is None or (seen := self._store.seen(id)) is None:
                return None
            self._deliveries.deliver()
            return Epoch(seen, {}, {}, repeated=True)

    def _epoch(self, arrival: Arrival) -> Epoch:
        with self._lock:
            if (repeated := self._repeated(arrival.id)) is not None:  # by another thread, in between
                return repeated
            self._check_open()
            try:
                done = self._runtime.epoch(arrival)
            except failed_in_spark() as error:
                raise disk_full(error) or BoxFailed(
                    f"epoch {self.last_epoch + 1} failed in Spark",
                    details=[first_line(error)],
                    hint="nothing of it is kept: feed it again",
                ) from error
            for text in done.warnings:
                warnings.warn(text, FarAheadWarning, stacklevel=4)
            self._deliveries.deliver()
            return done

    def _check_open(self) -> None:
        if self._runtime.memory.finished:
            raise Finished(
                "the sources have ended: finish() was called", hint="feed a new store, or correct what is there"
            )

    def _check_given(self, given: Any, what: str) -> None:
        if not isinstance(given, Mapping):
            raise BatchError(f"{what} needs a dict by stream, not {shown(given)}", hint=f"{what}({{'stream': ...}})")
        self._check_streams(given)

    def _check_streams(self, names: Any) -> None:
        for name in names:
            if not isinstance(name, str) or name not in self._plan.sources:
                named = f"'{name}'" if isinstance(name, str) else shown(name)
                raise UnknownStream(
                    f"network '{self.network.name}' has no source stream {named}",
                    details=[f"sources: {', '.join(self._plan.sources)}"],
                    hint=nearest(name, self._plan.sources),
                )

    # --- reading ---

    def read(self, name: str, *, as_of: int | None = None, tids: bool = False) -> DataFrame:
        """A stored stream as a Spark DataFrame, in order; `as_of`: as it was after that epoch.

        `TooOld` if tuples that a source had then have aged out since.
        `tids=True` adds a column `tid`, which names each tuple.
        """
        if as_of is not None and not _is_whole(as_of):
            raise UnknownEpoch(f"an epoch is a whole number, not {shown(as_of)}")
        if as_of is not None and not 0 <= as_of <= self.last_epoch:
            raise UnknownEpoch(f"there is no epoch {as_of}", details=[f"the last is {self.last_epoch}"])
        if name not in self._store.state.streams and name in self._plan.stored:
            schema = self._plan.steps[self._plan.stored[name]].schema
            return empty_frame(self.spark, schema, tids)
        return frame_of(self.spark, self._store, name, as_of=as_of, tids=tids)

    # --- explaining ---

    def why(self, output: str, tuples: Any = None, *, of: Any = None) -> Explanation:
        """What tuples of an output are made of: those asked for by number, tid, a list of these, or a condition.

        `of`: a stream or box, or several, in whose terms to tell it; all sources if none. What is not led through one
        of them contributes nothing, and the explanation says so.
        """
        with self._lock:
            return self._questions.why(output, tuples, of)

    def impact(self, stream: str, tuples: Any, *, on: Any = None) -> Impact:
        """What depends on tuples of a stream: outputs, or the streams and boxes of `on`.

        It also says whether they can still become part of rows to come.
        """
        with self._lock:
            memory = self._runtime.memory
            return self._questions.impact(stream, tuples, on, lambda: Held(memory.boxes, memory.finished))

    def retention_plan(self) -> RetentionPlan:
        """Of each source which of its tuples rows to come can be made of, as far as the network alone tells.

        With `retention="lineage"` these stay, and what outputs and kept streams are made of; all else goes.
        """
        return retention_plan(self._plan)

    def annotated(self, output: str) -> DataFrame:
        """The provenance annotated stream P(O, I), as the runs with `annotate` have carried it.

        `tid`, the output's columns, and `provenance` with a field for each stream of I: the seqs of the tuples there
        that the tuple is made of; of a box without tids its rows' places, as `why` names them. I is that of this run,
        or of the last that had one. Null where a tuple came while the output was not annotated. Sets are decoded as the
        frame is read.
        """
        with self._lock:
            keys = inputs_of(self._store, stored_stream(self._plan, output))
            if self._runtime.annotator is not None:
                keys = self._runtime.annotator.inputs_of(output) or keys
            return annotated_frame(self.spark, self._store, self._plan, output, keys)

    def annotation(self, output: str, number: Any) -> dict[str, list[str]] | None:
        """The annotation of one tuple of an output, by number or tid, as `why(...).tids` names it; None if it has none.

        No more is read and decoded than the values that its own is relative to.
        """
        with self._lock:
            found = answers(self._tracer(), stored_stream(self._plan, output), number)
            if len(found) != 1:
                raise UnknownTuple(f"one tuple of '{output}' has an annotation, not {len(found)}")
            return annotation_of(self._store, self._plan, output, int(found.seq[0]), int(found.epoch[0]))

    def _tracer(self) -> Tracer:
        return Tracer(self._plan, self._store, self._driver)

    def rejected(self, name: str | None = None) -> DataFrame:
        """What could not be admitted to a stream, or made a box fail: each tuple whole, with its reason."""
        if name is not None:
            self._check_box(name)
        frame = frame_of(self.spark, self._store, "rejected", kind="tables", empty=stored.REJECTED_SCHEMA)
        return frame if name is None else frame.where(frame.name == name)

    def late(self, name: str) -> DataFrame:
        """Tuples that came later than the lateness of a stream, or behind every open window of a box; whole.

        Those of a join's or a resample's second input come behind those of the first, in their own columns.
        A box that is given another name keeps them; one that the network has no more is asked by the name it had.
        """
        state, prints = self._store.state, self._plan.prints
        if name not in prints and name in asides.late_names(state):  # a box that the network had once
            first, *others = asides.late_tables(state, prints, name)
            frame = frame_of(self.spark, self._store, first, kind="tables")
        else:
            self._check_box(name)
            empty = stored.late_schema(self._input_schema(name))
            own = asides.late_table(state, prints, name, schema=empty)
            frame = (
                frame_of(self.spark, self._store, own, kind="tables") if own else empty_frame(self.spark, empty, False)
            )
            others = [t for port in (1, 2) if (t := asides.late_table(state, prints, name, port))]
        for table in others:
            frame = self._with_port(frame, table)
        return frame

    def _input_schema(self, box: str) -> pa.Schema:
        """The schema of a box's first input; of a source its own."""
        step = self._plan.steps[self._plan.ends[box]]
        while step.inputs and step.box == box:
            step = self._plan.steps[step.inputs[0]]
        return step.schema

    def _with_port(self, frame: DataFrame, table: str) -> DataFrame:
        other = frame_of(self.spark, self._store, table, kind="tables")
        kinds = dict(frame.dtypes)
        for column, kind in other.dtypes:
            if kinds.get(column, kind) != kind:
                other = other.withColumnRenamed(column, f"{column}_right")
        return frame.unionByName(other, allowMissingColumns=True)

    def _check_box(self, name: str) -> None:
        if name not in self._plan.sources and name not in self._plan.ends:
            known = [*self._plan.ends]
            raise UnknownStream(
                f"network '{self.network.name}' has no stream or box '{name}'",
                details=[f"streams and boxes: {', '.join(known)}"],
                hint=nearest(name, known),
            )

    def progress(self, epochs: int = 10) -> Any:
        """What the newest epochs did, box by box, as a pandas frame."""
        if not _is_whole(epochs) or epochs < 1:
            raise UnknownEpoch(f"progress of {shown(epochs)} epochs was asked for", hint="1 or more; 200 are kept")
        from clew.engine.reading import progress_frame

        return progress_frame(self._store, epochs)

    # --- delivering ---

    def deliver(self, output: str, to: Receiver, *, name: str | None = None, form: str = "spark") -> None:
        """Hand each epoch's new rows of an output to a function `to(rows, epoch)`, at least once, in order.

        `form`: the rows as a `"spark"` DataFrame, for any Spark writer, or as an `"arrow"` table. What was not
        delivered before a crash is delivered now; a receiver that remembers `epoch` is exact. If it raises, the
        epoch stays committed, `DeliveryFailed` says so, and the same rows are handed over again next time. It may
        feed this engine: what comes of that is delivered after it has returned.
        """
        if output not in self._plan.stored:
            raise UnknownStream(
                f"network '{self.network.name}' has no output '{output}'",
                details=[f"outputs: {', '.join(self.network.outputs)}"],
                hint=nearest(output, self._plan.stored),
            )
        with self._lock:
            self._deliveries.add(name or output, output, to, form)
            self._deliveries.deliver()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


__all__ = ["Engine", "FarAheadWarning", "Run"]
