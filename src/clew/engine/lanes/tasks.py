"""Functions run as tasks of a Spark job: arguments go in as plain values, what they did comes back as JSON.

Bulk goes through Arrow files of a scratch folder, each under a name of its own attempt; a file that no
result names (of a failed or speculative attempt) is swept with the folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clew.engine.catalyst import failed_in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = Callable[[Any], Any]


def run_tasks(spark: SparkSession, task: Task, arguments: Sequence[Any]) -> list[Any]:
    """`task(argument)` for each argument, one Spark task each; the results in the arguments' order."""
    if not arguments:
        return []
    numbers = spark.range(0, len(arguments), 1, len(arguments))
    found = numbers.mapInArrow(_runner(task, list(arguments)), "number bigint, result string").collect()
    results: dict[int, Any] = {row.number: json.loads(row.result) for row in found}
    return [results[i] for i in range(len(arguments))]


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks the session's executors run side by side; 1 if it does not say."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except failed_in_spark():  # Spark Connect has no context
        return 1


def _runner(task: Task, arguments: list[Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            results = [json.dumps(task(arguments[n])) for n in numbers]
            yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(results, pa.string())], ["number", "result"])

    return run
