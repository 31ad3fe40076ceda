"""A local Spark session with everything set, and the check of one that the user brings."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import site
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clew.engine import machine
from clew.engine.catalyst import first_line
from clew.engine.java import Java, find_java, shim
from clew.engine.zones import UTC_NAMES
from clew.errors import JavaMissing, StoreSettings

WORKING_CONF = {
    # with it on, a kernel does not run in the partitions that a filter has emptied, and windows stay open
    "spark.sql.adaptive.enabled": "false",
    # else Spark may evaluate what a short-circuit guards: `x <> 0 and 10 / x > 1` would fail at 0
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # the default, INT96, has no statistics
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # a read of more paths than this starts a job only to list them
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
"""Settings that decide how Spark works, not what comes out; each can be set while a session runs."""


def pinned_conf(time_zone: str) -> dict[str, str]:
    """The Spark settings that decide results; a store pins them."""
    return {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": time_zone,
        "spark.sql.caseSensitive": "false",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
        "spark.sql.storeAssignmentPolicy": "ANSI",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
    }


def check_session(spark: SparkSession, time_zone: str) -> None:
    """Refuse a session that would give other results than the store's settings; make the rest fit.

    `StoreSettings` names every setting of `pinned_conf` that differs. What only decides how Spark works
    (`WORKING_CONF`) is set on the session.
    """
    wrong = {
        name: (found, wanted)
        for name, wanted in pinned_conf(time_zone).items()
        if not _same(name, found := _setting(spark, name), wanted)
    }
    if wrong:
        first, (found, wanted) = next(iter(wrong.items()))
        raise StoreSettings(
            f"the Spark session has {first}={found}, the store needs {wanted}",
            details=[f"{name}: {found}, needed {wanted}" for name, (found, wanted) in wrong.items()],
            hint="before opening the store: "
            + "; ".join(f'spark.conf.set("{name}", "{wanted}")' for name, (_, wanted) in wrong.items()),
        )
    for name, value in WORKING_CONF.items():
        spark.conf.set(name, value)


def _setting(spark: SparkSession, name: str) -> str:
    try:
        return str(spark.conf.get(name))
    except PySparkException as problem:
        raise StoreSettings(
            f"the Spark session does not know the setting {name}", hint="clew needs Spark 4.1 or newer"
        ) from problem


def _same(name: str, found: str, wanted: str) -> bool:
    found, wanted = found.lower(), wanted.lower()
    if name == "spark.sql.session.timeZone" and found in UTC_NAMES:
        return wanted in UTC_NAMES
    return found == wanted


def local_session(
    *, cores: int | None = None, memory: str | None = None, time_zone: str = "UTC", verbose: bool = False
) -> SparkSession:
    """A Spark session in this process's own JVM, or, where one runs already, a new session on it.

    `cores` caps the cores used, `memory` ("4g") the JVM's heap: by default a quarter of the memory there is,
    1 to 4 GiB. Spark's log shows errors only, unless `verbose`. Stop it with `spark.stop()`.
    """
    conf = {**pinned_conf(time_zone), **WORKING_CONF}
    running = SparkSession.getActiveSession()
    if running is not None:
        spark = running.newSession()
        for name, value in conf.items():
            spark.conf.set(name, value)
        return spark
    count = min(cores or machine.cores(), machine.cores())
    conf |= _static_conf(count, memory or default_memory(), verbose)
    java = find_java()
    builder = SparkSession.builder.master(f"local[{count}]").appName("clew")
    for name, value in conf.items():
        builder = builder.config(name, value)
    with uninterrupted(), _environment(_launch_env(java)):
        try:
            spark = builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as problem:
            raise _not_started(java, memory or default_memory(), problem) from problem
    if not verbose:
        # pyspark prints every failed query, as JSON or with a traceback, besides raising it
        for name in ("SQLQueryContextLogger", "py4j.clientserver"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return spark


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the JVM is up: before that, it would leave a process behind that nobody ends.

    Spark's own handler, which calls the JVM out of the middle of another call to it, does not stay.
    """
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))  # what another thread has got
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # what this one has got is raised here
    if asked:
        raise KeyboardInterrupt


def default_memory() -> str:
    """The heap of a local session: a quarter of the memory there is, 1 to 4 GiB."""
    return f"{min(max(machine.memory_bytes() // machine.MIB // 4, 1024), 4096)}m"


def _static_conf(cores: int, memory: str, verbose: bool) -> dict[str, str]:
    scratch = Path(tempfile.mkdtemp(prefix="clew-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    java_options = [f'-Dderby.system.home="{scratch}"']
    if not verbose:
        log = files("clew.engine") / "log4j2.properties"
        java_options.append(f"-Dlog4j2.configurationFile={Path(str(log)).as_uri()}")
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        # without both, results too large to come back inline meet "connection refused"
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def _launch_env(java: Java) -> dict[str, str | None]:
    """What the JVM and its Python workers must see; None takes a variable away."""
    package = Path(pyspark.__file__).parent
    env: dict[str, str | None] = {
        "JAVA_HOME": str(shim(java)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(_own_modules()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_REMOTE": None,
        "SPARK_API_MODE": None,
        "PYSPARK_SUBMIT_ARGS": None,
    }
    if (package / "bin" / "spark-submit").is_file():
        # another Spark under SPARK_HOME may be of another version than the Python half
        env["SPARK_HOME"] = str(package)
    return env


def _own_modules() -> list[str]:
    """The folders this process imports from besides the installed ones: a user's functions live there."""
    installed = tuple({*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()})
    folders = [str(Path(folder or ".").resolve()) for folder in sys.path]
    return [f for f in folders if Path(f).is_dir() and not any(Path(f).is_relative_to(i) for i in installed)]


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _not_started(java: Java, memory: str, problem: Exception) -> JavaMissing:
    found = [f"Java {java.version} from {java.origin}: {java.home}", f"heap: {memory}", *java.notes]
    if isinstance(problem, Py4JError):  # Java runs, and has told why it does not go on
        return JavaMissing(
            "Spark could not start in its Java process",
            details=[first_line(problem), *found],
            hint="`clew doctor` shows what Java finds here",
        )
    return JavaMissing(
        "Spark's Java process ended before it was ready",
        details=found,
        hint="`clew doctor` shows what Java finds here; a smaller `memory=` may help",
    )
