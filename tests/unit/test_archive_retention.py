"""Buckets merge and age out without a row lost that should stay, and files leave the disk only when they may."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.stores import delta_matches, disk_files, feed, make_record, rows, seqs_of

from clew.archive import FileEntry, Folder, FolderChange, Hole, Merge, Store
from clew.archive import compaction as compaction_module
from clew.archive.compaction import MAX_SMALL, SMALL_ROWS, plan
from clew.archive.layout import new_temporary_name
from clew.archive.retention import age_out_plan
from clew.errors import TooOld
from clew.model.rows import Bools


def folder_of(sizes: list[int]) -> Folder:
    files, seq = {}, 0
    for i, size in enumerate(sizes):
        files[f"f{i}"] = FileEntry(f"f{i}", size, size, {"_seq": (seq + 1, seq + size, 0)})
        seq += size
    return Folder(files=files)


@given(st.lists(st.integers(1, 2 * SMALL_ROWS), max_size=80))
def test_a_plan_takes_adjacent_small_buckets_only_and_leaves_few(sizes: list[int]) -> None:
    folder = folder_of(sizes)
    position = {path: i for i, path in enumerate(folder.files)}
    runs = plan(folder)
    for run in runs:
        at = [position[entry.path] for entry in run]
        assert at == list(range(at[0], at[0] + len(at)))
        assert all(entry.rows < SMALL_ROWS for entry in run)
        assert sum(entry.rows for entry in run) <= compaction_module.LARGEST_ROWS
    if sum(size < SMALL_ROWS for size in sizes) <= MAX_SMALL:
        assert runs == []


def test_many_small_epochs_leave_few_buckets_and_rewrite_each_row_few_times() -> None:
    folder, rewritten = folder_of([]), 0
    for epoch in range(1, 3001):
        for run in plan(folder):
            rows = sum(entry.rows for entry in run)
            rewritten += rows
            merged = Merge(tuple(e.path for e in run), FileEntry(f"m{epoch}", rows, rows, {}))
            folder.apply(FolderChange(merges=[merged]), epoch)
        folder.apply(FolderChange(add=[FileEntry(f"e{epoch}", 100, 100, {})]), epoch)
    assert len(folder.files) <= MAX_SMALL + 1 + 300_000 // SMALL_ROWS + 1
    assert rewritten / 300_000 < 8


@given(st.lists(st.integers(1, 10), min_size=2, max_size=12), st.data())
def test_a_merge_stands_where_its_buckets_stood(sizes: list[int], data: st.DataObject) -> None:
    folder = folder_of(sizes)
    low = data.draw(st.integers(0, len(sizes) - 2))
    high = data.draw(st.integers(low + 2, len(sizes)))
    run = list(folder.files.values())[low:high]
    bounds = (run[0].stats["_seq"][0], run[-1].stats["_seq"][1], 0)
    merged = FileEntry("merged", sum(entry.rows for entry in run), 0, {"_seq": bounds})
    folder.apply(FolderChange(merges=[Merge(tuple(entry.path for entry in run), merged)]), 1)
    starts = [entry.stats["_seq"][0] for entry in folder.files.values()]
    assert starts == sorted(starts)
    assert len(folder.files) == len(sizes) - len(run) + 1


def test_compaction_keeps_rows_order_and_delta_and_bounds_the_files(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False, grace_s=0) as store:
        for _ in range(10):
            feed(store, 20)
            assert len(disk_files(store, "streams", "readings")) <= MAX_SMALL + 10
            assert len(disk_files(store, "tables", "origins")) <= MAX_SMALL + 10
        assert seqs_of(store) == list(range(1, 801))
        assert store.read_table("origins", kind="tables")["_stamp"].to_pylist() == list(range(1, 801))
    with Store.open(tmp_path / "s") as store:
        assert seqs_of(store) == list(range(1, 801))
        assert delta_matches(store, "readings")


def test_buckets_that_the_epoch_itself_removes_are_not_merged(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False) as store:
        for _ in range(MAX_SMALL + 1):
            store.commit(make_record(store))
        record = store.begin()
        record.folder("streams", "readings").age_out = store.age_out_plan("readings", 105)
        store.compact(record)
        store.compact(record)
        store.commit(record)
        assert seqs_of(store)[0] == 9


def test_buckets_that_the_epoch_merges_and_those_behind_them_do_not_age_out(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False) as store:
        for _ in range(MAX_SMALL + 1):
            store.commit(make_record(store))
        record = store.begin()
        store.compact(record)
        merged = next(name for name, change in record.streams.items() if change.merges)
        assert len(store.age_out_plan(merged, 10**9)) == MAX_SMALL + 1
        assert store.age_out_plan(merged, 10**9, record) == []
        store.discard(record)
        assert len(disk_files(store, "streams", merged)) == MAX_SMALL + 1


def test_only_whole_buckets_at_the_old_end_age_out_and_what_is_gone_is_remembered(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False, grace_s=0, fold_every=3) as store:
        feed(store, 5)  # orders 10..40, 50..80, 90..120, ...
        assert store.age_out_plan("readings", 40) == []
        paths = store.age_out_plan("readings", 125)
        assert paths == [entry.path for entry in store.files("readings")[:3]]
        record = store.begin()
        record.folder("streams", "readings").age_out = paths
        store.commit(record)
        assert seqs_of(store) == list(range(13, 21))
        assert not set(paths) & disk_files(store, "streams", "readings")
        assert delta_matches(store, "readings")
        assert store.age_out_plan("origins", 10**9, kind="tables") == []
    with Store.open(tmp_path / "s") as store:
        gone = store.state.streams["readings"].gone
        assert gone is not None
        assert (gone.rows, gone.seq, gone.stamp, gone.order, gone.epoch) == (12, 12, 12, 120, 6)
        assert store.state.streams["alarms"].gone is None


def test_an_epoch_whose_rows_have_aged_out_is_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False, grace_s=0) as store:
        record = store.begin()
        record.folder("streams", "readings").schema = rows(1).schema
        store.commit(record)
        for keep_from in (None, None, 65, 100):  # epoch 2 brings orders 50 to 80, and so on
            record = make_record(store)
            if keep_from:
                record.folder("streams", "readings").age_out = store.age_out_plan("readings", keep_from)
            store.commit(record)
    with Store.open(tmp_path / "s") as store:
        gone = store.state.streams["readings"].gone
        assert gone is not None
        assert (gone.first, gone.epoch) == (2, 5)
        for epoch in (0, 1):
            assert seqs_of(store, as_of=epoch) == []
        for epoch in (2, 3, 4):
            with pytest.raises(TooOld) as caught:
                seqs_of(store, as_of=epoch)
            with pytest.raises(TooOld):
                store.files("readings", epoch)
            assert str(caught.value) == (
                f"stream 'readings' cannot be read as of epoch {epoch}: tuples that it had then have aged out\n"
                "  aged out: 4 tuples, up to seq 8, the last of them in epoch 5\n"
                "  hint: the oldest epoch that can still be read is 5"
            )
        assert seqs_of(store, as_of=5) == list(range(9, 21))
        assert seqs_of(store, "alarms", as_of=3) == list(range(5, 13))


def test_pruned_rows_go_wherever_they_stand_and_a_bucket_mostly_needed_stays_whole(tmp_path: Path) -> None:
    def goes(columns: pa.Table) -> Bools:
        seq = np.asarray(columns.column("_seq"))
        assert columns.column_names == ["_seq", "_stamp", "_epoch", "ts"]
        return np.isin(seq, [5, 6, 7, 8, 10, 11, 13, 17, 18, 19])

    with Store.create(tmp_path / "s", durable=False, grace_s=0, fold_every=3) as store:
        feed(store, 6)
        before = [entry.path for entry in store.files("readings")]
        record = make_record(store)
        assert store.prune("readings", record, 4, goes) == 9  # of 13 to 16 one alone would go
        assert store.prune("readings", record, 4, goes) == 0  # each bucket once an epoch
        assert store.prune("alarms", record, 24, goes) == 0  # all are settled
        store.compact(record)
        store.commit(record)
        kept = [1, 2, 3, 4, 9, 12, 13, 14, 15, 16, 20, *range(21, 29)]
        assert seqs_of(store) == kept
        same = [entry.path in before for entry in store.files("readings")]
        assert same == [True, False, True, False, True, False]
        assert not {before[1], before[2], before[4]} & disk_files(store, "streams", "readings")
        assert delta_matches(store, "readings")
    with Store.open(tmp_path / "s") as store:
        assert seqs_of(store) == kept
        gone = store.state.streams["readings"].gone
        assert gone is not None
        assert (gone.rows, gone.seq, gone.stamp, gone.order, gone.epoch, gone.first) == (9, 19, 19, 190, 7, 2)
        assert gone.holes == [Hole((5, 19), (5, 19), 7, 7)]
        with pytest.raises(TooOld, match="tuples that it had then have been pruned"):
            seqs_of(store, as_of=3)
        assert seqs_of(store, as_of=1) == [1, 2, 3, 4]


def test_buckets_of_an_epoch_that_does_not_come_are_deleted_with_it(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False) as store:
        feed(store, 2)
        before = disk_files(store, "streams", "readings")
        record = store.begin()
        store.prune("readings", record, 0, lambda columns: np.asarray(columns.column("_seq")) % 4 < 2)
        assert disk_files(store, "streams", "readings") > before
        store.discard(record)
        assert disk_files(store, "streams", "readings") == before
        assert seqs_of(store) == list(range(1, 9))


def test_opening_sweeps_the_cache_and_what_a_delivery_left_half_written(tmp_path: Path) -> None:
    root = tmp_path / "s"
    Store.create(root, durable=False).close()
    for place in ("cache/scans/1", "cache/epochs/2", "_deliveries"):
        (root / place).mkdir(parents=True)
        (root / place / new_temporary_name()).write_text("half")
        (root / place / "out.json").write_text("{}")
    Store.open(root, read_only=True).close()
    assert (root / "cache/scans/1/out.json").exists()
    Store.open(root).close()
    assert list((root / "cache").iterdir()) == []
    assert [p.name for p in (root / "_deliveries").iterdir()] == ["out.json"]


def test_a_bucket_that_must_stay_keeps_all_behind_it() -> None:
    files = {str(i): FileEntry(str(i), 1, 1, {"ts": (top, top, 0)}) for i, top in enumerate([1, 9, 2])}
    assert [entry.path for entry in age_out_plan(Folder(files=files, order="ts"), 5)] == ["0"]


@pytest.mark.parametrize("grace_s", [0, 300])
def test_removed_files_stay_for_the_grace_also_over_a_restart(tmp_path: Path, grace_s: float) -> None:
    with Store.create(tmp_path / "s", durable=False, grace_s=grace_s) as store:
        feed(store, 2)
        with Store.open(tmp_path / "s", read_only=True) as reader:
            record = store.begin()
            old = store.files("readings")[0].path
            record.folder("streams", "readings").remove = [old]
            store.commit(record)
            assert seqs_of(store) == [5, 6, 7, 8]
            if grace_s:
                assert len(seqs_of(reader)) == 8
    with Store.open(tmp_path / "s", grace_s=grace_s) as store:
        assert (old in disk_files(store, "streams", "readings")) == (grace_s > 0)
    with Store.open(tmp_path / "s", grace_s=0) as store:
        assert old not in disk_files(store, "streams", "readings")
