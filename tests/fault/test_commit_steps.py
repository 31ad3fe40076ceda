"""Killed between any two steps of a commit, a store holds whole epochs only, and its Delta tables say the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.stores import delta_matches, disk_files, feed, seqs_of

from clew.archive import Store
from clew.archive.faults import STEPS

ROOT = Path(__file__).parents[2]
WORK = """
import sys
import pyarrow as pa
from clew.archive import Store, compaction, delta
from tests.unit.stores import make_record
compaction.MAX_SMALL = 3
delta.CHECKPOINT_EVERY = 4
with Store.create(sys.argv[1], fold_every=4, grace_s=0) as store:
    for _ in range(12):
        record = make_record(store)
        store.compact(record)
        if record.epoch % 3 == 0:
            tables = {"box": {"t": pa.table({"x": [record.epoch]})}}
            record.checkpoint = store.write_checkpoint(record.epoch, tables, {})
        store.commit(record)
        print(record.epoch, flush=True)
"""
# the first time each step is passed, and a later one, when there is more to lose
FAULTS = [*STEPS, "bucket-written:14", "record-written:5", "record-created:8", "delta-written:10", "base-created:2",
          "records-dropped:2", "checkpoint-written:3", "file-deleted:5"]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kill_leaves_whole_epochs(tmp_path: Path, fault: str) -> None:
    root = tmp_path / "s"
    environment = {**os.environ, "CLEW_FAULT": fault, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WORK, str(root)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 137, ended.stderr
    acknowledged = len(ended.stdout.split())

    with Store.open(root, read_only=True) as reader:
        seen = (reader.last_epoch, seqs_of(reader) if reader.last_epoch else [])
    with Store.open(root, fold_every=4, grace_s=0) as store:
        last = store.last_epoch
        assert acknowledged <= last <= acknowledged + 1
        assert seen == (last, list(range(1, 4 * last + 1)))
        check(store)
        feed(store, 5)
        assert store.last_epoch == last + 5
        check(store)


def check(store: Store) -> None:
    last = store.last_epoch
    for name in ("readings", "alarms") if last else ():
        assert seqs_of(store, name) == list(range(1, 4 * last + 1))
        assert store.state.streams[name].seq == 4 * last
        assert delta_matches(store, name)
        assert disk_files(store, "streams", name) == {entry.path for entry in store.files(name)}
    for epoch in range(1, last + 2):
        assert store.seen(f"batch {epoch}") == (epoch if epoch <= last else None)
    for name in store.state.checkpoints:
        tables, _ = store.read_checkpoint(name)
        assert tables["box"]["t"]["x"].to_pylist() == [int(name.split("-")[0])]


def test_without_a_fault_the_work_is_done(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", WORK, str(tmp_path / "s")], env=environment, check=True, timeout=60)
    with Store.open(tmp_path / "s", grace_s=0) as store:
        assert store.last_epoch == 12
        check(store)
