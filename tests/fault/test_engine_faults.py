"""An engine killed, cut off or refused anywhere: open it again, feed on, and every output is there exactly once."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fault import engines
from tests.fault.engines import EPOCHS, batches, feed_all, network

import clew
from clew.archive import buckets, checkpoint, disk
from clew.archive.faults import STEPS
from clew.archive.store import Store
from clew.engine.catalyst import Catalyst
from clew.engine.lanes.driver import DriverLane
from clew.engine.lanes.spark import SparkLane
from clew.engine.position import Position
from clew.errors import Fenced, NotAStore, StoreError, StoreFull, StoreInUse
from clew.testing import without_cache
from clew.testing.laws import Contents, contents, same

ROOT = Path(__file__).parents[2]
WORK = "import sys; from tests.fault.engines import work; work(sys.argv[1])"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    with engines.opened(tmp_path_factory.mktemp("whole") / "s") as engine:
        feed_all(engine)
        return contents(engine._store)


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    engines.small_limits(monkeypatch.setattr)


def start(root: Path, fault: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "CLEW_FAULT": fault, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WORK, str(root)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_goes_on(root: Path, undisturbed: Contents, acknowledged: int = 0) -> None:
    with engines.opened(root) as engine:
        assert engine.last_epoch >= acknowledged
        feed_all(engine)
        assert engine.last_epoch == EPOCHS
        same(undisturbed, contents(engine._store), "after a restart")
        check_disk(engine._store)


def check_disk(store: Store) -> None:
    """Nothing lies there that no record names."""
    for kind in ("streams", "tables"):
        for name, folder in store.state.folders(kind).items():  # type: ignore[arg-type]
            named = {*folder.files, *(d.path for d in store.state.doomed if (d.kind, d.name) == (kind, name))}
            found = {p.name for p in store.layout.folder(kind, name).glob("*.parquet")}  # type: ignore[arg-type]
            assert found == named, (kind, name)
    assert {p.name for p in store.layout.checkpoints.glob("*")} <= set(store.state.checkpoints)


# --- kills ---

FAULTS = [*STEPS, "bucket-written:17", "bucket-written:40", "commit-begun:9", "record-written:6", "record-created:11",
          "delta-written:20", "delta-followed:7", "base-created:3", "checkpoint-tables:2", "checkpoint-written:3",
          "file-deleted:9"]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_killed_at_any_step_of_a_feed(tmp_path: Path, undisturbed: Contents, fault: str) -> None:
    child = start(tmp_path / "s", fault)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 137, err
    check_goes_on(tmp_path / "s", undisturbed, acknowledged=len(out.split()))


def test_killed_at_random_moments_again_and_again(tmp_path: Path, undisturbed: Contents) -> None:
    chance, acknowledged, kills = random.Random(7), 0, 0
    for _ in range(5):
        child = start(tmp_path / "s")
        assert child.stdout is not None
        child.stdout.readline()  # it is under way
        time.sleep(chance.uniform(0.0, 0.25))
        child.send_signal(signal.SIGKILL)
        out, _ = child.communicate(timeout=60)
        kills += child.returncode == -signal.SIGKILL
        told = [int(word) for word in out.split()]
        acknowledged = max([acknowledged, *told])
    assert kills
    check_goes_on(tmp_path / "s", undisturbed, acknowledged)


# --- what a restart may lack ---


def checkpoints(root: Path) -> list[Path]:
    return sorted((root / "checkpoints").iterdir())


def no_older_checkpoints(root: Path) -> None:
    for place in checkpoints(root)[:-1]:
        shutil.rmtree(place)


def no_newest_checkpoint(root: Path) -> None:
    shutil.rmtree(checkpoints(root)[-1])


def damaged_checkpoint(root: Path) -> None:
    largest = max(checkpoints(root)[-1].glob("*.arrow"), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-9] + b"otherwise")


def no_checkpoints(root: Path) -> None:
    shutil.rmtree(root / "checkpoints")


LOSSES = {
    without_cache: "",
    no_older_checkpoints: "",
    no_newest_checkpoint: "recovering from the older checkpoint",
    damaged_checkpoint: "recovering from the older checkpoint",
    no_checkpoints: "recovering from the whole archive",
}


@pytest.mark.parametrize("lose", LOSSES, ids=lambda f: f.__name__)
def test_state_comes_back_without(
    tmp_path: Path, undisturbed: Contents, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    with engines.opened(tmp_path / "s") as engine:
        feed_all(engine, 17)
        assert len(engine._store.state.checkpoints) >= 3
    lose(tmp_path / "s")
    caplog.clear()
    check_goes_on(tmp_path / "s", undisturbed)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert LOSSES[lose] in "".join(warnings) if LOSSES[lose] else not warnings


def test_checkpoints_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.engine.runtime.CHECKPOINT_EPOCHS", 1)
    with engines.opened(tmp_path / "s") as engine:
        feed_all(engine)
    kept = [int(p.name.split("-")[0]) for p in checkpoints(tmp_path / "s")]
    assert kept == list(range(EPOCHS - 7, EPOCHS + 1))


# --- retention ---


def test_restarts_after_buckets_aged_out(tmp_path: Path) -> None:
    net = network(retention=60)
    with engines.opened(tmp_path / "whole", net) as engine:
        feed_all(engine)
        assert engine._store.state.streams["readings"].gone is not None
        expected = contents(engine._store)
        assert len(checkpoints(tmp_path / "whole")) >= 2
    for number in range(EPOCHS):
        with engines.opened(tmp_path / "s", net) as engine:
            feed_all(engine, number + 1)
    with engines.opened(tmp_path / "s", net) as engine:
        found = contents(engine._store)
    # what is aged out, whole buckets, may differ with the moments of compaction; the outputs may not
    same(without_source(expected), without_source(found), "restarted before every epoch")
    shutil.rmtree(checkpoints(tmp_path / "s")[-1])
    with engines.opened(tmp_path / "s", net) as engine:
        same(found, contents(engine._store), "from an older checkpoint that stands behind all that is gone")
    no_checkpoints(tmp_path / "s")
    with pytest.raises(StoreError) as caught:
        engines.opened(tmp_path / "s", net)
    text = str(caught.value)
    assert "has no checkpoint left from which its boxes can go on" in text
    assert "stream 'readings' has aged out up to seq" in text
    with Store.open(tmp_path / "s", read_only=True) as reader:
        assert len(reader.read_table("rise"))


def without_source(found: Contents) -> Contents:
    return {name: rows for name, rows in found.items() if name != "stream readings"}


# --- two engines ---


def test_a_second_engine_in_this_process_is_refused(tmp_path: Path) -> None:
    with engines.opened(tmp_path / "s") as engine:
        feed_all(engine, 1)
        with pytest.raises(StoreInUse, match=rf"held by: pid {os.getpid()} on .* \(this process\)"):
            engines.opened(tmp_path / "s")
        feed_all(engine, 2)
    engines.opened(tmp_path / "s").close()


def test_a_second_engine_is_told_of_the_first(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    hold = "import sys; from tests.fault.engines import opened\n"
    hold += "with opened(sys.argv[1]): print('open', flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "s")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse) as caught:
            engines.opened(tmp_path / "s")
        assert f"held by: pid {child.pid} on " in str(caught.value)
        child.kill()
    engines.opened(tmp_path / "s").close()


def test_a_fenced_engine_stops_and_leaves_nothing(tmp_path: Path, undisturbed: Contents) -> None:
    root = tmp_path / "s"
    with engines.opened(root) as zombie:
        feed_all(zombie, 6)
        assert zombie._store._lock is not None
        zombie._store._lock.release()  # as when a file system gives the lock of a machine thought dead to another
        with engines.opened(root) as heir:
            feed_all(heir, 8)
            with pytest.raises(Fenced, match="another engine has committed epoch 7"):
                feed_all(zombie, 7)
            with pytest.raises(StoreError, match="open it again"):
                zombie.feed("readings", [])
            feed_all(heir)
            same(undisturbed, contents(heir._store), "beside a zombie")
            check_disk(heir._store)


# --- a full disk ---


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def _full_bucket(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(buckets.pq, "ParquetWriter", no_space)
    patch.setattr(buckets.pq, "write_table", no_space)


def _full_third_bucket(patch: pytest.MonkeyPatch) -> None:
    real, left = buckets.pq.write_table, [2]

    def write(*args: Any, **named: Any) -> None:
        left[0] -= 1
        real(*args, **named) if left[0] >= 0 else no_space()

    patch.setattr(buckets.pq, "write_table", write)


def _full_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("clew.archive.store.sync_all", no_space)


def _full_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("clew.archive.journal.write_new", no_space)


def _full_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("clew.engine.runtime.CHECKPOINT_EPOCHS", 1)
    patch.setattr(checkpoint, "write_over", no_space)


def _full_checkpoint_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("clew.engine.runtime.CHECKPOINT_EPOCHS", 1)
    patch.setattr(checkpoint, "_to_bytes", no_space)


def _full_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk, "_write_temporary", no_space)


def _full_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pathlib.Path.mkdir", no_space)


FULL = [_full_bucket, _full_third_bucket, _full_sync, _full_record, _full_checkpoint, _full_checkpoint_table,
        _full_file, _full_folder]  # fmt: skip


@pytest.mark.parametrize("full", FULL, ids=lambda f: f.__name__.removeprefix("_full_"))
def test_a_full_disk_costs_one_try(
    tmp_path: Path, undisturbed: Contents, full: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with engines.opened(tmp_path / "s", durable=True) as engine:
        for number in range(EPOCHS):
            if number in (0, 4, 9):
                with pytest.MonkeyPatch.context() as patch:
                    full(patch)
                    with pytest.raises(StoreFull, match="the disk is full: cannot write"):
                        feed_all(engine, number + 1)
                assert engine.last_epoch == number
                check_disk(engine._store)
            feed_all(engine, number + 1)
        same(undisturbed, contents(engine._store), "after a full disk")
    with engines.opened(tmp_path / "s") as engine:
        same(undisturbed, contents(engine._store), "after a full disk and a restart")


def test_a_full_disk_is_said_as_such_before_an_epoch_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverLane(Catalyst(no_space))
    monkeypatch.setattr("pathlib.Path.mkdir", no_space)
    with pytest.raises(StoreFull, match="the disk is full: cannot write rows of this epoch"):
        SparkLane(no_space, driver, tmp_path / "epochs", 4)
    with pytest.raises(StoreFull, match="the disk is full: cannot write where a run goes on"):
        Position(("s",), tmp_path / "_streaming" / "s").take({"s": "a folder"})


# --- cut off inside an epoch ---


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_user_code_that_raises_leaves_no_trace(tmp_path: Path, kind: type[BaseException]) -> None:
    raising: list[type[BaseException]] = []

    def spread(rows: pa.Table) -> int:
        if raising:
            raise raising[0]("stop")
        return rows.num_rows

    net = network(user=spread)
    with engines.opened(tmp_path / "whole", net) as engine:
        feed_all(engine)
        expected = contents(engine._store)
    with engines.opened(tmp_path / "s", net) as engine:
        feed_all(engine, 5)
        if not issubclass(kind, Exception):  # an exception is one window's fault, and rejects it
            raising.append(kind)
            with pytest.raises(kind):
                feed_all(engine, 6)
            raising.clear()
            assert engine.last_epoch == 5
            check_disk(engine._store)
        feed_all(engine)
        same(expected, contents(engine._store), "after an interrupt")


@pytest.mark.parametrize("where", ["write_bucket", "compact", "write_checkpoint", "commit"])
def test_an_interrupt_before_the_commit_leaves_no_trace(
    tmp_path: Path, undisturbed: Contents, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with engines.opened(tmp_path / "s") as engine:
        feed_all(engine, 6)
        real, left = getattr(Store, where), [3 if where == "write_bucket" else 0]

        def interrupted(store: Store, *args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                return real(store, *args, **named)
            if where == "compact":
                real(store, *args, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("clew.engine.runtime.CHECKPOINT_EPOCHS", 1)
            target = "clew.archive.journal.Journal.create" if where == "commit" else f"clew.archive.store.Store.{where}"
            patch.setattr(target, interrupted if where != "commit" else _interrupt)
            with pytest.raises(KeyboardInterrupt):
                feed_all(engine, 7)
        assert engine.last_epoch == 6
        check_disk(engine._store)
        feed_all(engine)
        same(undisturbed, contents(engine._store), f"interrupted in {where}")


def test_an_interrupt_behind_the_commit_asks_for_a_reopening(tmp_path: Path, undisturbed: Contents) -> None:
    root = tmp_path / "s"
    with engines.opened(root) as engine:
        feed_all(engine, 6)
        commit = Store.commit

        def interrupted(*args: Any) -> None:
            commit(*args)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                feed_all(engine, 7)
        with pytest.raises(StoreError) as caught:
            feed_all(engine, 8)
        assert str(caught.value) == (
            f"store '{root}' takes no more epochs: what followed the commit of epoch 7 was cut off\n"
            "  hint: open it again"
        )
    check_goes_on(root, undisturbed, acknowledged=7)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_an_id_is_fed_once(tmp_path: Path) -> None:
    with engines.opened(tmp_path / "s") as engine:
        first = engine.feed("readings", batches()[0]["readings"], id="a")
    with engines.opened(tmp_path / "s") as engine:
        again = engine.feed("readings", batches()[0]["readings"], id="a")
        assert (again.number, again.repeated, engine.last_epoch) == (first.number, True, 1)
        assert engine.feed("readings", batches()[1]["readings"], id="b").number == 2


def test_a_store_killed_while_it_was_made_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "s"
    (root / "_epochs").mkdir(parents=True)
    (root / "_lock").write_text("")
    with engines.opened(root) as engine:
        assert feed_all(engine, 2) == 2


def test_nothing_is_made_where_something_else_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotAStore, match="holds something else"):
        engines.opened(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_key_is_remembered_for_its_span_though_its_tuple_is_past_the_retention(tmp_path: Path, restart: bool) -> None:
    net = clew.Network("keys")
    events = net.stream("events", "t LONG, id LONG", order="t", key="id", key_span=100, retention=5, max_ahead=1000)
    events.output("all")
    engine = engines.opened(tmp_path / "s", net)
    engine.feed("events", [{"t": 1, "id": 7}])
    for t in range(10, 60, 5):
        engine.feed("events", [{"t": t, "id": 1000 + t}])
    if restart:
        engine.close()
        engine = engines.opened(tmp_path / "s", net)
    done = engine.feed("events", [{"t": 60, "id": 7}])
    assert (done.admitted, done.rejected) == ({"events": 0}, 1)
    engine.close()
