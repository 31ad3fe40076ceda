"""Sources through Spark Structured Streaming: one query over all of them, each micro-batch one epoch."""

from __future__ import annotations

import contextlib
import json
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
from clew.engine.catalyst import first_line
from clew.engine.frames import CORRUPT, STREAM, conform, is_frame, scan
from clew.engine.parquet_files import FILE, file_names, files_of, misfit, scan_files
from clew.engine.pieces import Scan, scratch
from clew.engine.runtime import Arrival, Epoch
from clew.engine.typing import spark_schema
from clew.errors import BatchError, ClewError, SourceFailed, WindowError
from clew.model.axis import span_of
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available_now"
_READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
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
    """One run of a query over sources; `feed` makes an epoch of an arrival."""

    spark: SparkSession
    store: Store
    feed: Callable[[Arrival], Epoch]
    told: Run = field(default_factory=Run)
    failure: BaseException | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)

    def run(self, sources: Mapping[str, tuple[Source, Any]], trigger: str | None, timeout_s: float | None) -> Run:
        """Run until the sources end, the time is up, or ctrl-C."""
        place = self.store.layout.root / "_streaming" / "+".join(sorted(sources))
        declared = [s for s, _ in sources.values()]
        alone = len(sources) == 1
        frames = {name: self._frame(source, given, alone) for name, (source, given) in sources.items()}
        writer = _tagged(frames).writeStream.option("checkpointLocation", str(place))
        if trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=_interval(trigger))
        started = time.monotonic()

        def batch(frame: DataFrame, number: int) -> None:
            with self.busy:
                try:
                    self._epoch(frame, (_query_id(place), number), declared)
                except BaseException as error:
                    self.failure = error
                    raise

        with _interrupts() as stop:
            query = writer.foreachBatch(batch).start()
            line = ProgressLine()
            try:
                self._wait(query, line, started, timeout_s, stop)
            finally:
                query.stop()
                with self.busy:  # an epoch that is being committed ends first
                    self.told.seconds = time.monotonic() - started
                line.end()
        return self.told

    def _wait(
        self, query: StreamingQuery, line: ProgressLine, started: float, timeout_s: float | None, stop: threading.Event
    ) -> None:
        from pyspark.errors import StreamingQueryException

        try:
            while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                line.show(self.told, time.monotonic() - started)
                if stop.is_set() or (timeout_s is not None and time.monotonic() - started > timeout_s):
                    self.told.stopped = True
                    return
        except KeyboardInterrupt:
            self.told.stopped = True
        except StreamingQueryException as error:
            if isinstance(self.failure, ClewError):
                raise self.failure from error
            raise SourceFailed(
                "the streaming query has failed",
                details=[first_line(error if self.failure is None else Exception(str(self.failure)))],
                hint="what was committed stays; run again to go on from there",
            ) from error

    def _epoch(self, frame: DataFrame, query: tuple[str, int], sources: list[Source]) -> None:
        if self.store.seen_batch(*query):
            self.told.repeated += 1
            return
        with scratch(self.store) as folder:
            found = self._scan(frame, sources, folder)
            batches = {name: s.batch for name, s in found.items()}
            refused = {name: list(s.rejects) for name, s in found.items()}
            self.told.take(self.feed(Arrival(batches, refused, query=query)))

    def _scan(self, frame: DataFrame, sources: list[Source], folder: Path) -> dict[str, Scan]:
        if FILE in frame.columns:
            (source,) = sources
            return {source.name: scan_files(self.spark, files_of(frame), source, folder)}
        return scan(frame, sources, folder)

    def _frame(self, source: Source, given: Any, alone: bool) -> DataFrame:
        if is_frame(given):
            if not given.isStreaming:
                raise BatchError(
                    f"source '{source.name}' is a batch DataFrame", hint="use feed(...) for it, or spark.readStream"
                )
            return conform(given, source)
        if not isinstance(given, str | Path):
            raise BatchError(
                f"source '{source.name}' is {type(given).__name__}", hint="give a streaming DataFrame or a path"
            )
        if alone and _all_fit(Path(given), source):
            return file_names(self.spark, Path(given))
        return conform(self._files(source, Path(given)), source)

    def _files(self, source: Source, path: Path) -> DataFrame:
        if not path.exists():
            raise SourceFailed(f"source '{source.name}' reads '{path}', which is not there")
        form = _form_of(path, source.name)
        reader = self.spark.readStream.format(form)
        schema = spark_schema(source.schema)
        if form != "parquet":
            reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
            schema += f", `{CORRUPT}` string"
        if form == "csv":
            reader = reader.option("header", True).option("enforceSchema", False)
        if path.is_file():
            return reader.schema(schema).option("pathGlobFilter", path.name).load(str(path.absolute().parent))
        return reader.schema(schema).load(str(path.absolute()))


def _all_fit(path: Path, source: Source) -> bool:
    """Whether the tasks may read the files themselves; files to come are checked when they are there."""
    files = [path] if path.is_file() else [p for p in path.rglob("*.parquet") if p.name[0] not in "._"]
    return bool(files) and all(p.suffix == ".parquet" and misfit(p, source) is None for p in files)


def _form_of(path: Path, name: str) -> str:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in "._")
    forms = {_READERS[p.suffix.lower()] for p in files if p.suffix.lower() in _READERS}
    if len(forms) != 1:
        raise SourceFailed(
            f"source '{name}' reads '{path}', which holds {'several forms' if forms else 'no files of a known form'}",
            details=[f"forms: {', '.join(sorted(set(_READERS.values())))}"],
            hint="give a streaming DataFrame: spark.readStream.format(...).load(...)",
        )
    return forms.pop()


def _interval(text: str) -> str:
    try:
        if span_of(text, pa.timestamp("us"), "processing_time") >= 0:
            return text
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


def _query_id(place: Path) -> str:
    """Spark's own name of the query: new if its checkpoint was lost, so that no batch is taken for an old one."""
    return str(json.loads((place / "metadata").read_text().splitlines()[0])["id"])


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
