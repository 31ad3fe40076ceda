"""Recovery: a process killed in the middle of epoch 50 of 100, another that goes on, and what the store then holds.

Killed are a process that feeds batches under ids and one that runs Structured Streaming. The first is ended by
SIGKILL at a random moment of the epoch, and, as SIGKILL would end it, at every step of its commit; the second by
SIGKILL between the commit of the epoch before and the end of its micro-batch. All that the store then holds, row
by row with its number, place, epoch and origin, is compared with a store whose process was left alone. (Of a run
without the epoch: killed between listing files and writing down a micro-batch, Spark puts two into the next one.)

A checkpoint falls due in the epoch that is killed, so a restart replays as many rows as it ever has to.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clew.archive import Store
from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case
from clew.bench.recovery_work import EPOCHS, KILLED, ROWS, batch
from clew.engine.stored import EPOCH, whole_index
from clew.model.rows import POS, STAMP

CASES = (
    Case("lost", "rows of an undisturbed store that are not in the recovered one", "rows", "lower", 0, worst=True),
    Case("twice", "rows in the recovered store that are not in an undisturbed one", "rows", "lower", 0, worst=True),
    Case("seconds", "from clew.open to an engine that is ready, behind a killed feed", "s", "lower"),
    Case("seconds_streaming", "from clew.open to the next epoch committed, behind a killed run", "s", "lower"),
)

# Each is passed in epoch 50: in the order in which a commit passes them.
STEPS = (
    "bucket-written", "checkpoint-tables", "checkpoint-written", "commit-begun", "buckets-synced",
    "record-written", "record-created", "record-durable", "delta-written", "delta-followed",
)  # fmt: skip
QUICK_STEPS = ("checkpoint-written", "record-created")
QUICK_RUN = (6, 4)  # epochs of a run through Structured Streaming, and the one that is killed
TRIES = 8


def run(quick: bool, progress: Progress) -> Samples:
    steps, at_random, runs = (QUICK_STEPS, 1, 1) if quick else (STEPS, 10, 5)
    of_run = QUICK_RUN if quick else (EPOCHS, KILLED)
    samples = Samples(
        notes={
            "epochs": EPOCHS, "killed_in": KILLED, "tuples_per_epoch": ROWS, "durable": True,
            "streaming_epochs": of_run[0], "streaming_killed_in": of_run[1],
            "compared": "all rows of the source, of three outputs and of the origin index: values, seq, place; epoch, "
            "but for runs, whose micro-batches Spark may cut otherwise after a kill",
            "seconds": "in a new process, its imports left out; Spark is started before the clock for a run, and is "
            "not needed for a feed",
        }
    )  # fmt: skip
    chance = random.Random(50)
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        root = Path(folder)
        progress("a feed that is left alone")
        with started("feed", root / "whole", EPOCHS, KILLED) as child:
            child.to_the_end()
        whole = contents(root / "whole")
        for number, step in enumerate([*steps, *[""] * at_random]):
            progress(f"a feed killed at {step or 'a random moment'}")
            _feed_round(root / f"feed-{number}", step, chance, whole, samples, number)
        source = _source_files(root / "source", of_run[0])
        progress("the same batches, fed and left alone")
        with started("feed", root / "whole-run", of_run[0], 0) as child:
            child.to_the_end()
        whole = without_epochs(contents(root / "whole-run"))
        for number in range(runs):
            progress(f"a run killed, round {number + 1} of {runs}")
            _run_round(root / f"run-{number}", source, of_run[1], chance, whole, samples, number)
    return samples


# --- one kill, one restart ---


@dataclass
class Struck:
    """What a kill left: the last epoch in the store, and how the process ended."""

    how: str
    last_epoch: int
    missed: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


def _feed_round(store: Path, step: str, chance: random.Random, whole: Contents, samples: Samples, number: int) -> None:
    struck = _struck_at_step(store, step) if step else _struck_in_feed(store, chance)
    with started("feed", store, EPOCHS, KILLED) as child:
        ready_s = float(child.until("ready")[1])
        child.to_the_end()
    _compare(contents(store), whole, samples)
    samples.add("seconds", ready_s)
    samples.measured(
        case="feed", round=number, killed=struck.how, last_epoch=struck.last_epoch, missed=struck.missed,
        ready_s=ready_s, lost=samples.cases["lost"][-1], twice=samples.cases["twice"][-1], **struck.facts,
    )  # fmt: skip
    shutil.rmtree(store)


def _struck_at_step(store: Path, step: str) -> Struck:
    with started("feed", store, EPOCHS, KILLED, step) as child:
        child.until("begun", KILLED)
        left = child.rest()
    if child.code != 137 or left:
        raise AssertionError(f"step '{step}' is not passed in epoch {KILLED}: {left[:1]}, exit {child.code}")
    return Struck(f"at {step}", last_epoch(store))


def _struck_in_feed(store: Path, chance: random.Random) -> Struck:
    """Killed at a random moment between the begin and the end of the epoch; again if it was over by then."""
    for missed in range(TRIES):
        with started("feed", store, EPOCHS, KILLED) as child:
            child.until("begun", KILLED - 5)
            before = time.perf_counter()
            child.until("begun", KILLED)
            usual = (time.perf_counter() - before) / 5
            delay = chance.uniform(0, 1.5 * usual)
            time.sleep(delay)
            child.kill()
            left = child.rest()
        if not left:
            return Struck("at a random moment", last_epoch(store), missed, {"delay_s": delay, "usual_epoch_s": usual})
        shutil.rmtree(store)
    raise AssertionError(f"epoch {KILLED} was over before each of {TRIES} kills")


def _run_round(
    store: Path, source: Path, killed: int, chance: random.Random, whole: Contents, samples: Samples, number: int
) -> None:
    struck = _struck_in_run(store, source, killed, chance, alone=number % 2 == 1)
    with started("run", store, source) as child:
        _, ready, opened_at = child.until("ready")
        child.to_the_end()
    _compare(without_epochs(contents(store)), whole, samples)
    committed_at = epochs_of(store)[struck.last_epoch + 1]
    seconds = committed_at - float(opened_at)
    samples.add("seconds_streaming", seconds)
    samples.measured(
        case="run", round=number, killed=struck.how, last_epoch=struck.last_epoch, missed=struck.missed,
        ready_s=float(ready), seconds_to_next_epoch=seconds, lost=samples.cases["lost"][-1],
        twice=samples.cases["twice"][-1], **struck.facts,
    )  # fmt: skip
    shutil.rmtree(store)


def _struck_in_run(store: Path, source: Path, killed: int, chance: random.Random, alone: bool) -> Struck:
    """Killed behind the commit of the epoch before, and before Spark has written down the end of the micro-batch.

    `alone`: Python only, the JVM finds out by itself; else both at once.
    """
    before, ends = store / "_epochs" / f"{killed - 1:012d}.json", _ends_of(store)
    for missed in range(TRIES):
        with started("run", store, source) as child:
            while not before.exists():
                time.sleep(0.002)
                child.check_alive()
            made = epochs_of(store)
            first = max(killed - 6, 2)  # the very first one warms up
            usual = (made[killed - 1] - made[first]) / (killed - 1 - first)
            delay = chance.uniform(0, usual)
            time.sleep(delay)
            child.kill(alone)
            left = child.rest()
        told = Struck(
            "Python alone" if alone else "Python and Spark", last_epoch(store), missed,
            {"delay_s": delay, "usual_epoch_s": usual, "ended_batches": len(list(ends.glob("[0-9]*")))},
        )  # fmt: skip
        if told.facts["ended_batches"] < killed and not left:
            return told
        shutil.rmtree(store)
    raise AssertionError(f"epoch {killed} was over before each of {TRIES} kills")


def _ends_of(store: Path) -> Path:
    return store / "_streaming" / "readings" / "commits"


def last_epoch(store: Path) -> int:
    with Store.open(store, read_only=True) as opened:
        return opened.last_epoch


def epochs_of(store: Path) -> dict[int, float]:
    """When each of the newest epochs was made, in seconds since 1970."""
    with Store.open(store, read_only=True) as opened:
        return {r["epoch"]: datetime.fromisoformat(r["created_at"]).timestamp() for r in opened.state.recent}


# --- what a store holds ---

Contents = dict[str, pa.Table]


def contents(store: Path) -> Contents:
    """Every stream and every origin, with all hidden columns."""
    with Store.open(store, read_only=True) as opened:
        found = {name: opened.read_table(name).combine_chunks() for name in opened.state.streams}
        index = whole_index(opened)
        by_place = [(name, "ascending") for name in ("of", STAMP, POS)]
        return {**found, "origins": index.sort_by(by_place).combine_chunks()}


def without_epochs(found: Contents) -> Contents:
    """The same, however the input was cut into epochs."""
    return {n: t.drop_columns([EPOCH]) if EPOCH in t.column_names else t for n, t in found.items()}


def differences(whole: Contents, found: Contents) -> tuple[int, int]:
    """How many rows are missing, and how many are there too often or were never there."""
    lost = twice = 0
    for name in {*whole, *found}:
        expected, given = whole.get(name), found.get(name)
        if expected is not None and given is not None and expected.equals(given):
            continue
        ours, theirs = (Counter(_rows(t)) if t is not None else Counter() for t in (expected, given))
        lost += (ours - theirs).total()
        twice += (theirs - ours).total()
    return lost, twice


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _compare(found: Contents, whole: Contents, samples: Samples) -> None:
    lost, twice = differences(whole, found)
    samples.add("lost", lost)
    samples.add("twice", twice)


def _source_files(folder: Path, epochs: int) -> Path:
    """A file a micro-batch; Spark takes them by age."""
    folder.mkdir()
    for number in range(1, epochs + 1):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(batch(number, epochs), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


# --- the processes ---


class Child:
    """A process at work, in a group of its own."""

    def __init__(self, arguments: Sequence[object], log: Path) -> None:
        command = [sys.executable, "-m", "clew.bench.recovery_work", *map(str, arguments)]
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )

    @property
    def code(self) -> int:
        """How it ended, as a shell gives it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def until(self, word: str, number: int | None = None) -> list[str]:
        """The words of the line that begins so, once it is there."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[0] == word and (number is None or words[1] == str(number)):
                return words
        raise AssertionError(f"it ended without '{word} {number or ''}': {self._last_words()}")

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise AssertionError(f"it ended by itself: {self._last_words()}")

    def to_the_end(self) -> None:
        """Wait for it to end well."""
        self.rest()
        if self.code:
            raise AssertionError(f"it failed with {self.code}: {self._last_words()}")

    def rest(self) -> list[str]:
        """The lines that it still prints; it has ended then. `ready` is not one of them."""
        assert self._process.stdout is not None
        lines = [line.strip() for line in self._process.stdout if not line.startswith("ready")]
        self._process.wait()
        return lines

    def kill(self, alone: bool = False) -> None:
        """SIGKILL, to all of it or to the Python process alone."""
        if alone:
            self._process.kill()
        else:
            self.kill_all()

    def kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Nothing of it goes on, whatever happened."""
        if self._process.poll() is None:
            self.kill_all()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text().strip().splitlines()[-3:])


@contextmanager
def started(verb: str, store: Path, *arguments: object) -> Iterator[Child]:
    child = Child([verb, store, *arguments], store.with_name(f"{store.name}.log"))
    try:
        yield child
    finally:
        child.close()


BENCH = Bench("recovery", "Killed in the middle of an epoch, and started again", CASES, run)
