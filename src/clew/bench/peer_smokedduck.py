"""A peer to compare with: SmokedDuck, a relational engine that records the lineage of a query while it runs it.

(Mohammed et al., "SmokedDuck Demonstration: SQLStepper", SIGMOD 2023; the method is that of Psallidas and Wu,
"Smoke: Fine-grained Lineage at Interactive Speed", PVLDB 11(6), 2018.) It keeps lineage in memory until it is told to
forget it. It comes into an environment of its own under the user's cache folder, from the wheels and hashes in
`smokedduck_requirements.txt`; clew neither imports nor needs it. `smokedduck_script.py` is what runs there, and says
what is timed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.bench.core import Progress
from clew.errors import ClewError

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "smokedduck_requirements.txt"
SCRIPT = HERE / "smokedduck_script.py"
PYTHON = "3.11"  # the newest that the peer has wheels for
INSTALL_SECONDS = 600
RUN_SECONDS = 1800


class PeerFailed(ClewError, RuntimeError):
    """A peer that is installed, but did not measure what it was asked to."""


@dataclass(frozen=True)
class Peer:
    """The interpreter of an environment that has the peer, and the peer's version."""

    python: Path
    version: str


@dataclass(frozen=True)
class PeerResult:
    """One query in the peer: a sample a round, plain and with capture, and a row count of its answer.

    `checked`: lineage was captured for every row of the answer, and gives back that row. `reading_seconds` are of
    the first reading of all lineage, in which the peer does what its capture put off; `pairs` is how much that is.
    """

    plain_seconds: list[float]
    lineage_seconds: list[float]
    rows: int
    checked: bool
    reading_seconds: list[float]
    pairs: int


# --- its environment ---


def peer_available(progress: Progress, cache: Path | None = None) -> Peer | None:
    """The peer, installed if it was not yet; None if it cannot be, `progress` told why."""
    place = (cache or cache_folder()) / f"smokedduck-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    python = place / "bin" / "python"
    if version := _version_in(python):
        return Peer(python, version)
    base = interpreter()
    if base is None:
        progress(f"no smokedduck: its wheels are for Python {PYTHON}, and no python{PYTHON} is on the PATH")
        return None
    progress(f"installing smokedduck into {place}")
    try:
        _install(base, place)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(place, ignore_errors=True)
        progress(f"no smokedduck: {_reason(error)}")
        return None
    version = _version_in(python)
    if version is None:
        progress(f"no smokedduck: it is installed in {place}, but cannot be imported there")
        return None
    return Peer(python, version)


def cache_folder() -> Path:
    """Where environments of peers are kept."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "clew" / "peers"


def interpreter() -> str | None:
    """A Python of the version that the peer has wheels for: this one, or one on the PATH."""
    here = ".".join(map(str, sys.version_info[:2]))
    return sys.executable if here == PYTHON else shutil.which(f"python{PYTHON}")


def _install(base: str, place: Path) -> None:
    _ended([base, "-m", "venv", "--clear", str(place)])
    _ended(
        [
            str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", "install",
            "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(REQUIREMENTS),
        ]
    )  # fmt: skip


def _ended(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def _version_in(python: Path) -> str | None:
    """The version that can be imported there; None without one."""
    asked = "import smokedduck, importlib.metadata; print(importlib.metadata.version('smokedduck'))"
    try:
        told = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return told.stdout.strip() if told.returncode == 0 else None


def _reason(error: Exception) -> str:
    """What pip or venv says is wrong, in one line."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not installed within {INSTALL_SECONDS} seconds"
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    lines = [line.strip() for line in f"{error.stdout}\n{error.stderr}".splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("ERROR:", "Error:"))]
    said = (wrong or lines or [f"exit {error.returncode}"])[-1]
    unreached = any("connection broken" in line for line in lines)
    return f"the package index cannot be reached ({said})" if unreached else said


# --- its run ---


def run_peer(peer: Peer, folder: Path, rounds: int, progress: Progress) -> dict[str, PeerResult]:
    """Measure the queries `group` and `join` over the files of `clew.bench.tpch_like` in the folder."""
    progress(f"smokedduck {peer.version}, {rounds} rounds")
    command = [str(peer.python), "-I", str(SCRIPT), str(folder), str(rounds)]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise PeerFailed(f"smokedduck did not end within {RUN_SECONDS} seconds") from error
    if told.returncode:
        raise PeerFailed(f"smokedduck ended with exit {told.returncode}", details=told.stderr.splitlines()[-3:])
    return parse_results(told.stdout)


def parse_results(text: str) -> dict[str, PeerResult]:
    """What the script in the peer's environment has printed, by query."""
    try:
        facts = json.loads(text)
        rounds = facts["rounds"]
        return {name: _result(found, rounds) for name, found in facts["queries"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PeerFailed("smokedduck's results cannot be read", details=[repr(error), text[:200]]) from error


def _result(found: dict[str, Any], rounds: int) -> PeerResult:
    samples = {name: [float(s) for s in found[f"{name}_seconds"]] for name in ("plain", "lineage", "reading")}
    for name, seconds in samples.items():
        if len(seconds) != rounds:
            raise ValueError(f"{len(seconds)} samples of {name} for {rounds} rounds")
    return PeerResult(
        plain_seconds=samples["plain"],
        lineage_seconds=samples["lineage"],
        rows=int(found["rows"]),
        checked=found["checked"] is True,
        reading_seconds=samples["reading"],
        pairs=int(found["pairs"]),
    )
