"""Throughput: Q1, Q2 and filter+map over a quote stream, clew beside plain Structured Streaming.

Both read the same Parquet files through Structured Streaming, as one micro-batch. Plain Spark keeps state in
RocksDB and writes a Parquet sink; beside it a second query writes the input to Parquet, as clew's archive does
(`_plain` leaves it out). The cost of a tuple is the slope between two sizes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import clew
from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case, slope
from clew.bench.quotes import write_quotes
from clew.engine.spark_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERIES = ("q1", "q2", "passthrough")
SCHEMA = "ts TIMESTAMP, symbol STRING, price DOUBLE"

CASES = (
    Case("q1", "Q1, a 5-minute average: tuples/s, clew over Spark that keeps its input too", "ratio", "higher", 1.0),
    Case("q2", "Q2, 5-minute average every minute: the same", "ratio", "higher", 2.0),
    Case("passthrough", "filter and map: the same", "ratio", "higher", 1.0),
    Case("q1_plain", "Q1 against Spark that keeps no input", "ratio", "higher", 0.9),
    Case("passthrough_plain", "filter and map against Spark that keeps no input", "ratio", "higher", 0.5),
)  # fmt: skip


def network(query: str) -> clew.Network:
    """The query as a network."""
    net = clew.Network(query)
    quotes = net.stream("quotes", SCHEMA, order="ts", key=["ts", "symbol"])
    if query == "passthrough":
        quotes.filter("price > 60").map("ts", "symbol", cents="price * 100").output("result")
        return net
    slide = "5 minutes" if query == "q1" else "1 minute"
    quotes.window(span="5 minutes", slide=slide, by="symbol").agg(ts="min(ts)", price="avg(price)").output("result")
    return net


def plain(query: str, source: DataFrame) -> DataFrame:
    """The query as a Spark user writes it."""
    from pyspark.sql import functions as f

    if query == "passthrough":
        return source.where("price > 60").selectExpr("ts", "symbol", "price * 100 AS cents")
    slide = "5 minutes" if query == "q1" else "1 minute"
    windows = source.withWatermark("ts", "0 seconds").groupBy(f.window("ts", "5 minutes", slide), "symbol")
    return windows.agg(f.min("ts").alias("ts"), f.avg("price").alias("price")).select("symbol", "ts", "price")


def run_clew(spark: SparkSession, query: str, source: Path, work: Path) -> float:
    started = time.perf_counter()
    with clew.open(work / "store", network(query), spark=spark) as engine:
        engine.run({"quotes": source}, available_now=True)
    return time.perf_counter() - started


def run_plain(spark: SparkSession, query: str, source: Path, work: Path, keep_input: bool) -> float:
    started = time.perf_counter()
    streams = [(plain(query, _stream(spark, source)), "result")]
    if keep_input:
        streams.append((_stream(spark, source), "input"))
    running = [_sink(frame, work / name) for frame, name in streams]
    for query_handle in running:
        query_handle.awaitTermination()
    return time.perf_counter() - started


def _stream(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).parquet(str(source))


def _sink(frame: DataFrame, place: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "data"))


def run(quick: bool, progress: Progress) -> Samples:
    # All sizes are above `session.SPARK_ROWS`: a slope between epochs that run differently would say nothing.
    sizes, files = ((250_000, 1_000_000), 2) if quick else ((1_000_000, 4_000_000), 4)
    rounds = 1 if quick else 15
    spark = local_session()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    samples = Samples(notes={"sizes": list(sizes), "rounds": rounds})
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        work = Path(folder)
        sources = {size: write_quotes(work, size, files) for size in sizes}
        for number in range(-1, rounds):  # the first round warms up
            for query in QUERIES:
                progress(f"{query}, round {number + 1} of {rounds}")
                used = {sizes[0]: sources[sizes[0]]} if quick and number < 0 else sources
                _round(spark, query, used, work, samples, number)
    return samples


def _round(
    spark: SparkSession, query: str, sources: dict[int, Path], work: Path, samples: Samples, number: int
) -> None:
    systems: dict[str, Callable[[Path, Path], float]] = {
        "clew": lambda source, place: run_clew(spark, query, source, place),
        "spark": lambda source, place: run_plain(spark, query, source, place, True),
        "plain": lambda source, place: run_plain(spark, query, source, place, False),
    }
    if query == "q2":
        del systems["plain"]
    seconds: dict[str, dict[int, float]] = {name: {} for name in systems}
    for size, source in sources.items():
        for name, system in systems.items():
            place = work / "run"
            seconds[name][size] = system(source, place)
            shutil.rmtree(place, ignore_errors=True)
    if number < 0:
        return
    small, large = sources
    cost = {name: slope(s[small], s[large], small, large) for name, s in seconds.items()}
    samples.measured(
        query=query, round=number, seconds={n: {str(k): v for k, v in s.items()} for n, s in seconds.items()}
    )
    samples.add(query, cost["spark"] / cost["clew"])
    if query != "q2":
        samples.add(f"{query}_plain", cost["plain"] / cost["clew"])


BENCH = Bench("throughput", "Tuples per second through Structured Streaming", CASES, run)

__all__ = ["BENCH", "network"]
