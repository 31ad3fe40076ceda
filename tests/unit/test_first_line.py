"""What a failure in Spark is told by: its own line, not the first of its stack."""

from __future__ import annotations

import pytest

from clew.engine.catalyst import first_line

JAVA = """An error occurred while calling o110.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error reading a.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/tmp/net.py", line 10, in boom
    raise ValueError("boom")
ValueError: boom
note: more of it"""
IN_JAVA = """Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in main
clew.errors.BoxFailed: 5 windows would open in one call
  hint: the slide is far below the span
\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
Caused by: x"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0", "[DIVIDE_BY_ZERO] Division by zero."),
        (JAVA, "[FAILED_READ_FILE.NO_HINT] Encountered error reading a.parquet."),
        (WORKER, "ValueError: boom"),
        (IN_JAVA, "clew.errors.BoxFailed: 5 windows would open in one call"),
        ("no file at a[0][B]", "no file at a[0][B]"),
        ("plain\nsecond", "plain"),
        ("", "ValueError"),
    ],
)
def test_the_line_that_says_what_went_wrong(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
