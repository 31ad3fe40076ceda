"""Sources through Spark Structured Streaming: one query over all of them, each micro-batch one epoch."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clew.archive.store import Store
from clew.engine.catalyst import failed_in_spark, first_line
from clew.engine.frames import STREAM, conform, is_frame, scan
from clew.engine.pieces import Scan, scratch
from clew.engine.position import Position
from clew.engine.runtime import Arrival, Epoch
from clew.engine.source_files import FILE, Files, as_paths, check_path, file_names, outside_stores
from clew.errors import BatchError, ClewError, SourceFailed, WindowError
from clew.model.axis import span_of
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available_now"
_POLL_S = 0.2


@dataclass
class Run:
    """What a run did: epochs made, tuples admitted, and whether it was stopped from outside."""

    epochs: int = 0
    admitted: int = 0
    rejected: int = 0
    late: int = 0
    repeated: int = 0
    seconds: float = 0.0
    stopped: bool = False

    def take(self, epoch: Epoch) -> None:
        self.epochs += not epoch.repeated
        self.repeated += epoch.repeated
        self.admitted += sum(epoch.admitted.values())
        self.rejected += epoch.rejected
        self.late += epoch.late


@dataclass(eq=False)
class Streamer:
    """One run of a query over sources; `feed` makes an epoch of an arrival, in whose `zone` times without one are."""

    spark: SparkSession
    store: Store
    zone: str
    feed: Callable[[Arrival], Epoch]
    told: Run = field(default_factory=Run)
    failure: BaseException | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)

    def run(self, sources: Mapping[str, tuple[Source, Any]], trigger: str | None, timeout_s: float | None) -> Run:
        """Run until the sources end, the time is up, or ctrl-C."""
        with _interrupts() as stop:
            return self._run(sources, trigger, timeout_s, stop)

    def _run(
        self,
        sources: Mapping[str, tuple[Source, Any]],
        trigger: str | None,
        timeout_s: float | None,
        stop: threading.Event,
    ) -> Run:
        every = None if trigger in (None, AVAILABLE_NOW) else interval(str(trigger))
        frames = {name: self._frame(source, given) for name, (source, given) in sources.items()}
        position = Position.of(self.store, sources)
        position.take({name: _described(given) for name, (_, given) in sources.items()})
        begun, started = position.begun, time.monotonic()

        def batch(frame: DataFrame, number: int) -> None:
            with self.busy:
                if self.ending.is_set():
                    raise RuntimeError("the run has ended")
                try:
                    self._epoch(frame, (position.query_id(), number), sources)
                except BaseException as error:
                    self.failure = error
                    # Spark matches a pattern against the traceback, so deep that a long one overflows its stack
                    raise RuntimeError(first_line(error)) from None  # type: ignore[arg-type]

        try:
            query = self._started(_tagged(frames), batch, position, trigger, every)
            self._wait(query, started, timeout_s, stop)
        except failed_in_spark() as error:
            if isinstance(self.failure, ClewError):
                raise self.failure from error
            anew = begun and self.failure is None and not self.told.epochs
            raise SourceFailed(
                "the streaming query has failed",
                details=[first_line(error if self.failure is None else Exception(str(self.failure)))],
                hint="what was committed stays; run again to go on from there"
                + (f", or, if a source is another one than in earlier runs, {position.start_anew}" if anew else ""),
            ) from error
        finally:
            self.told.seconds = time.monotonic() - started
        return self.told

    def _started(
        self,
        frame: DataFrame,
        batch: Callable[[DataFrame, int], None],
        position: Position,
        trigger: str | None,
        every: str | None,
    ) -> StreamingQuery:
        writer = frame.writeStream.option("checkpointLocation", str(position.place))
        if trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=every)
        return writer.foreachBatch(batch).start()

    def _wait(self, query: StreamingQuery, started: float, timeout_s: float | None, stop: threading.Event) -> None:
        line = ProgressLine()
        try:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                line.show(self.told, time.monotonic() - started)
                if stop.is_set() or (timeout_s is not None and time.monotonic() - started > timeout_s):
                    self.told.stopped = True
                    return
        except KeyboardInterrupt:
            self.told.stopped = True
        finally:
            self.ending.set()
            try:
                with self.busy:  # the epoch under way ends first
                    pass
            finally:
                query.stop()
                line.end()

    def _epoch(self, frame: DataFrame, query: tuple[str, int], sources: Mapping[str, tuple[Source, Any]]) -> None:
        if self.store.seen_batch(*query):
            self.told.repeated += 1
            return
        with scratch(self.store) as folder:
            found = self._scan(frame, sources, folder)
            if not found:
                return
            batches = {name: s.batch for name, s in found.items()}
            refused = {name: list(s.rejects) for name, s in found.items()}
            self.told.take(self.feed(Arrival(batches, refused, query=query)))

    def _scan(self, frame: DataFrame, sources: Mapping[str, tuple[Source, Any]], folder: Path) -> dict[str, Scan]:
        """What the batch holds; nothing at all if all that is new are files of stores."""
        from pyspark.sql import functions as f

        rows = [source for source, given in sources.values() if is_frame(given)]
        found: dict[str, Scan] = {}
        if len(rows) < len(sources):
            names = _file_names(frame, [name for name, (_, given) in sources.items() if not is_frame(given)])
            paths = {name: outside_stores(as_paths(uris), Path(sources[name][1])) for name, uris in names.items()}
            if not rows and any(names.values()) and not any(paths.values()):
                return {}
            for name, mine in paths.items():
                source, given = sources[name]
                found[name] = Files(source, Path(given), mine, self.zone).scan(self.spark, folder)
        if rows:
            theirs = frame.where(f.col(STREAM).isin([s.name for s in rows])) if found else frame
            found |= scan(theirs, rows, folder, self.zone)
        return found

    def _frame(self, source: Source, given: Any) -> DataFrame:
        if is_frame(given):
            if not given.isStreaming:
                raise BatchError(
                    f"source '{source.name}' is a batch DataFrame", hint="use feed(...) for it, or spark.readStream"
                )
            try:
                return conform(given, source)
            except failed_in_spark() as error:
                raise SourceFailed(
                    f"source '{source.name}' is a DataFrame that Spark cannot read", details=[first_line(error)]
                ) from error
        if not isinstance(given, str | Path):
            raise BatchError(
                f"source '{source.name}' is {type(given).__name__}", hint="give a streaming DataFrame or a path"
            )
        check_path(Path(given), source.name)
        try:
            return file_names(self.spark, Path(given))
        except failed_in_spark() as error:
            raise SourceFailed(
                f"source '{source.name}' reads '{given}', which Spark cannot list", details=[first_line(error)]
            ) from error


def _described(given: Any) -> str:
    return "a streaming DataFrame" if is_frame(given) else f"'{Path(given).absolute()}'"


def _file_names(frame: DataFrame, streams: list[str]) -> dict[str, list[str]]:
    """The files of a micro-batch, by stream."""
    from pyspark.sql import functions as f

    if STREAM not in frame.columns:
        return {streams[0]: [row[0] for row in frame.collect()]}
    names = f.coalesce(*(f.col(f"`{name}`.`{FILE}`") for name in streams))
    rows = frame.where(f.col(STREAM).isin(streams)).select(STREAM, names).collect()
    return {name: [file for stream, file in rows if stream == name] for name in streams}


def interval(text: str) -> str:
    """How often to make an epoch, as Spark reads it; it knows fewer words for units than clew does."""
    try:
        micros = span_of(text, pa.timestamp("us"), "processing_time")
        if micros >= 0:
            return f"{math.ceil(micros / 1000)} milliseconds"
    except WindowError:
        pass
    raise BatchError(
        f"run cannot read '{text}' as a trigger", hint="'available_now', or how often to make an epoch: '5 seconds'"
    )


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C as an event; the second one interrupts.

    Spark's own handler cancels jobs out of the middle of a call to the JVM, and breaks the connection.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # others cannot set handlers, and get no signals
        yield asked
        return

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _tagged(frames: Mapping[str, DataFrame]) -> DataFrame:
    """One frame over all sources: which stream a row is of, and a struct per stream."""
    from pyspark.sql import functions as f

    if len(frames) == 1:
        return next(iter(frames.values()))
    kinds = {name: frame.select(f.struct("*").alias(name)).schema[name].dataType for name, frame in frames.items()}
    tagged = [
        frame.select(
            f.lit(mine).alias(STREAM),
            *(
                f.struct(*(f.col(f"`{c}`") for c in frame.columns)).alias(name)
                if name == mine
                else f.lit(None).cast(kind).alias(name)
                for name, kind in kinds.items()
            ),
        )
        for mine, frame in frames.items()
    ]
    whole = tagged[0]
    for other in tagged[1:]:
        whole = whole.union(other)
    return whole


class ProgressLine:
    """One line on a terminal that says how far a run is."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, told: Run, seconds: float) -> None:
        if not self._live or seconds - self._shown_at < 0.5:
            return
        self._shown_at = seconds
        rate = told.admitted / seconds if seconds else 0
        refused = f", {told.rejected} rejected" if told.rejected else ""
        late = f", {told.late} late" if told.late else ""
        sys.stderr.write(
            f"\r\x1b[K{told.epochs} epochs, {told.admitted:,} tuples, {rate:,.0f}/s{refused}{late}, {seconds:.0f} s"
        )
        sys.stderr.flush()

    def end(self) -> None:
        if self._live and self._shown_at:
            sys.stderr.write("\n")
