"""What clew needs of a machine, what is there, and what to do about the difference."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from clew.engine import machine
from clew.engine.java import find_java, shim
from clew.engine.spark_session import default_memory, local_session
from clew.errors import ClewError, JavaMissing

LEAST_MEMORY = 2 << 30
LEAST_SPACE = 1 << 30
WORKER_SECONDS = 20

PACKAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "pyspark": ((4, 1), None),
    "pyarrow": ((20,), None),
    "pandas": ((2, 2), (3,)),
    "numpy": ((2,), None),
    "deltalake": ((1, 6), None),
}
"""The oldest version that will do, and the first that will not."""


@dataclass(frozen=True)
class Check:
    """One thing looked at; `advice` says what to do, or what is worth knowing though it is `ok`."""

    name: str
    found: str
    ok: bool
    advice: str | None = None


def diagnose(store: Path | None = None, *, deep: bool = False) -> list[Check]:
    """Look at everything clew needs; `deep` also starts Spark and runs one job through Python workers."""
    checks = [check_java(), check_launcher(), check_python(), check_workers()]
    checks += [check_package(name) for name in PACKAGES]
    checks += [check_memory(), check_cores(), check_space("temp space", Path(tempfile.gettempdir()))]
    if store is not None:
        checks.append(check_space("store", store))
    checks += [check_loopback(), *check_spark_home()]
    if deep:
        checks.append(check_job() if all(c.ok for c in checks) else _skipped_job())
    return checks


def check_java() -> Check:
    try:
        java = find_java()
        shim(java)
    except JavaMissing as missing:
        return Check("java", "; ".join((missing.message, *missing.details)), False, missing.hint)
    advice = "; ".join(f"passed over {note}" for note in java.notes)
    return Check("java", f"{java.version} from {java.origin}, {java.home}", True, advice or None)


def check_launcher() -> Check:
    """Spark's start scripts are written for bash."""
    found = shutil.which("bash")
    return Check("bash", found or "none on the PATH", found is not None, None if found else "install bash")


def check_python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    ok = sys.version_info >= (3, 11)
    return Check("python", f"{version}, {sys.executable}", ok, None if ok else "use Python 3.11 or newer")


def check_workers() -> Check:
    """Whether the Python that Spark would start can run clew's functions."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    python = chosen or sys.executable
    advice = f"unset PYSPARK_PYTHON or set it to {sys.executable}" if chosen else "install clew into this Python again"
    code = "import sys, pyarrow, pyspark; print('%d.%d' % sys.version_info[:2], pyspark.__version__)"
    try:
        said = subprocess.run(
            [python, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WORKER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Check("python workers", f"{python} does not run ({problem})", False, advice)
    if said.returncode:
        last = said.stderr.strip().splitlines()[-1:] or ["no message"]
        return Check("python workers", f"{python}: {last[0]}", False, advice)
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]} {metadata.version('pyspark')}"
    python_version, spark_version = said.stdout.split()
    same = said.stdout.strip() == wanted
    return Check(
        "python workers", f"{python}, Python {python_version}, pyspark {spark_version}", same, None if same else advice
    )


def check_package(name: str) -> Check:
    oldest, too_new = PACKAGES[name]
    wanted = f"{name}>={_dotted(oldest)}" + (f",<{_dotted(too_new)}" if too_new else "")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "not installed", False, f"pip install '{wanted}'")
    parts = tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])
    ok = parts >= oldest and (too_new is None or parts < too_new)
    return Check(name, version, ok, None if ok else f"pip install '{wanted}'")


def check_memory() -> Check:
    found = machine.memory_bytes()
    ok = found >= LEAST_MEMORY
    heap = f"{_gib(found)}, of which a local session takes up to {default_memory()}"
    return Check("memory", heap, ok, None if ok else f"give it {_gib(LEAST_MEMORY)} or more")


def check_cores() -> Check:
    return Check("cores", str(machine.cores()), True)


def check_space(name: str, folder: Path) -> Check:
    """The free space where `folder` is or would be made, and whether it can be written."""
    there = next((f for f in (folder, *folder.absolute().parents) if f.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    found = f"{_gib(free)} free, {folder}"
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return Check(name, found, False, f"{there} is not a folder that can be written")
    ok = free >= LEAST_SPACE
    return Check(name, found, ok, None if ok else f"free {_gib(LEAST_SPACE)} or more on the disk of {there}")


def check_loopback() -> Check:
    """Spark's two halves talk over 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=2):
                return Check("loopback", "127.0.0.1 can be bound and reached", True)
    except OSError as problem:
        advice = "allow connections to 127.0.0.1 (a sandbox or firewall forbids them)"
        return Check("loopback", f"127.0.0.1: {problem.strerror or problem}", False, advice)


def check_spark_home() -> Iterator[Check]:
    home = os.environ.get("SPARK_HOME")
    if home:
        yield Check("SPARK_HOME", home, True, "a session that clew starts uses the Spark inside pyspark instead")


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def check_job(start: Callable[[], SparkSession] = local_session) -> Check:
    """Start Spark and send a few rows through Python and back."""
    began = time.monotonic()
    running = SparkSession.getActiveSession() is not None
    try:
        spark = start()
        try:
            started = time.monotonic()
            rows = spark.range(1000).mapInArrow(_same, "id long").count()
        finally:
            if not running:
                spark.stop()
    except Exception as problem:
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        hint = problem.hint if isinstance(problem, ClewError) else None
        return Check("spark job", lines[0], False, hint or "run `clew doctor -v` for Spark's own log")
    times = f"session in {started - began:.1f} s, first job in {time.monotonic() - started:.1f} s"
    return Check("spark job", times, rows == 1000)


def _skipped_job() -> Check:
    return Check("spark job", "not tried", False, "put right what is above first")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
