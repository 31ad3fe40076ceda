"""The session that tests and users get: its settings, and the check of a session brought along."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from clew.engine.spark_session import WORKING_CONF, check_session, local_session, pinned_conf, uninterrupted
from clew.errors import StoreSettings


@pytest.fixture
def brought(spark: SparkSession) -> SparkSession:
    """A session of one's own, so that what a test sets is gone with it."""
    return spark.newSession()


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def worker_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"python": [sys.executable]})


def test_the_session_has_every_pinned_and_working_setting(spark: SparkSession) -> None:
    wanted = {**pinned_conf("UTC"), **WORKING_CONF}
    assert {name: spark.conf.get(name) for name in wanted} == wanted


def test_functions_of_modules_on_the_drivers_path_run_in_workers(spark: SparkSession) -> None:
    assert spark.range(100_000).mapInArrow(same, "id long").toArrow().column("id").to_pylist() == list(range(100_000))


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    rows = spark.range(1).mapInArrow(worker_python, "python string").collect()
    assert {row.python for row in rows} == {sys.executable}


def test_a_result_too_large_to_come_back_inline_arrives(spark: SparkSession) -> None:
    rows = spark.range(0, 200_000, 1, 1).selectExpr("id", "repeat('x', 20) AS text").toArrow()
    assert rows.num_rows == 200_000


def test_nothing_is_left_in_the_working_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark.sql("CREATE DATABASE IF NOT EXISTS elsewhere")
    spark.sql("DROP DATABASE elsewhere")
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_as_it_was(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert "share/clew/java" not in os.environ.get("JAVA_HOME", "")


def test_a_second_local_session_shares_the_jvm_but_not_the_settings(spark: SparkSession) -> None:
    other = local_session(time_zone="Europe/Paris")
    assert other.sparkContext is spark.sparkContext
    assert other.conf.get("spark.sql.session.timeZone") == "Europe/Paris"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_fitting_session_is_taken_and_what_decides_only_speed_is_set(brought: SparkSession) -> None:
    brought.conf.set("spark.sql.adaptive.enabled", "true")
    brought.conf.set("spark.sql.session.timeZone", "Etc/UTC")
    check_session(brought, "UTC")
    assert brought.conf.get("spark.sql.adaptive.enabled") == "false"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.session.timeZone", "America/New_York"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ],
)
def test_a_session_that_would_give_other_results_is_refused_by_name(
    brought: SparkSession, name: str, value: str
) -> None:
    brought.conf.set(name, value)
    with pytest.raises(StoreSettings) as refused:
        check_session(brought, "UTC")
    wanted = pinned_conf("UTC")[name]
    assert str(refused.value) == (
        f"the Spark session has {name}={value}, the store needs {wanted}\n"
        f"  {name}: {value}, needed {wanted}\n"
        f'  hint: before opening the store: spark.conf.set("{name}", "{wanted}")'
    )


def test_a_refused_session_is_left_as_it_was(brought: SparkSession) -> None:
    brought.conf.set("spark.sql.ansi.enabled", "false")
    brought.conf.set("spark.sql.adaptive.enabled", "true")
    with pytest.raises(StoreSettings):
        check_session(brought, "UTC")
    assert brought.conf.get("spark.sql.adaptive.enabled") == "true"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_ctrl_c_waits_until_spark_has_started(elsewhere: bool) -> None:
    """In the middle of it, it left a JVM behind that nobody ended."""
    before, reached = signal.getsignal(signal.SIGINT), []

    def interrupt() -> None:
        """As the system may choose to: this thread gets the signal, or another one, for Python's main thread."""
        if elsewhere:
            signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            signal.signal(signal.SIGINT, lambda *_: None)  # as Spark sets a handler of its own

    def start() -> None:
        with uninterrupted():
            interrupt()
            reached.append("the end")
        reached.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is before
