"""A store keeps what was committed, whole and in order, and refuses what it cannot be sure of."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.stores import delta_matches, disk_files, feed, make_record, rows, seqs_of

from clew.archive import Store, disk, journal
from clew.archive import buckets as buckets_module
from clew.errors import Fenced, NotAStore, StoreError, StoreFull, StoreSettings, StoreVersion, UnknownStream

SETTINGS = {"time_zone": "UTC", "partitions": 2}


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_what_is_committed_is_there_after_reopening(root: Path) -> None:
    with Store.create(root, SETTINGS, durable=False) as store:
        feed(store, 5)
        record = store.begin(query=("q", 7))
        record.sources = {"readings": {"progress": 200}}
        record.network = {"boxes": ["smooth"]}
        store.commit(record)
        before = store.state.to_json()
    with Store.open(root, SETTINGS) as store:
        assert store.state.to_json() == before
        assert seqs_of(store) == list(range(1, 21))
        assert store.state.streams["readings"].seq == 20
        assert store.state.stamp == 20
        assert store.state.sources == {"readings": {"progress": 200}}
        assert (store.seen("batch 3"), store.seen("batch 9")) == (3, None)
        assert [store.seen_batch("q", batch) for batch in (6, 7, 8)] == [True, True, False]
        assert store.settings == SETTINGS
        assert delta_matches(store, "readings")
        assert delta_matches(store, "alarms")


def test_uncommitted_buckets_are_not_read_and_are_swept_at_the_next_open(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 1)
        make_record(store)
        assert seqs_of(store) == [1, 2, 3, 4]
        foreign = store.layout.folder("streams", "readings") / "notes.parquet"
        foreign.write_bytes(b"mine")
        (store.layout.root / "_streaming").mkdir()
        opaque = store.layout.root / "_streaming" / f"bucket-{'0' * 32}.parquet"
        opaque.write_bytes(b"spark's")
    with Store.open(root) as store:
        assert disk_files(store, "streams", "readings") == {store.files("readings")[0].path, "notes.parquet"}
        assert opaque.exists()


def test_a_reader_needs_no_lock_and_sees_the_last_epoch_that_there_was_when_it_was_opened(root: Path) -> None:
    with Store.create(root, durable=False, fold_every=3) as writer:
        feed(writer, 2)
        with Store.open(root, read_only=True) as reader:
            feed(writer, 20)
            assert seqs_of(reader) == list(range(1, 9))
            assert reader.seen("batch 2") == 2
            with pytest.raises(StoreError, match="open for reading only"):
                reader.write_bucket("streams", "readings", rows(1))
            with pytest.raises(StoreError, match="open for reading only"):
                reader.commit(reader.begin())


def test_as_of_gives_the_rows_that_had_come_in_by_then_also_after_compaction(root: Path) -> None:
    with Store.create(root, durable=False, grace_s=0) as store:
        feed(store, 40)
        assert len(store.files("readings")) < 40
        for epoch in (0, 1, 17, 40):
            assert seqs_of(store, as_of=epoch) == list(range(1, 4 * epoch + 1))
        assert store.files("readings", as_of=0) == []


def test_ranges_are_inclusive_and_open_only_the_buckets_they_touch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 6)
        opened: list[str] = []
        real = buckets_module.ds.dataset
        monkeypatch.setattr(buckets_module.ds, "dataset", lambda paths, **kw: opened.extend(paths) or real(paths, **kw))
        assert seqs_of(store, ranges={"_seq": (6, 9)}) == [6, 7, 8, 9]
        assert len(opened) == 2
        assert seqs_of(store, ranges={"ts": (None, 25)}) == [1, 2]
        assert seqs_of(store, ranges={"celsius": (11.5, None)}) == [23, 24]
        assert seqs_of(store, ranges={"_seq": (500, None)}) == []


def test_tables_are_kept_beside_the_streams_without_a_delta_log(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 3)
        assert store.read_table("origins", kind="tables")["_stamp"].to_pylist() == list(range(1, 13))
        assert not (root / "tables" / "origins" / "_delta_log").exists()


def test_a_declared_stream_is_there_before_its_first_row(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        record = store.begin()
        record.folder("streams", "alarms").schema = rows(1).schema
        store.commit(record)
        assert store.read_table("alarms").schema == rows(1).schema
        feed(store, 1)
    with Store.open(root) as store:
        assert delta_matches(store, "alarms")


def test_an_unknown_stream_is_named_with_what_there_is(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 1)
        with pytest.raises(UnknownStream) as caught:
            store.read_table("alarm")
    assert str(caught.value) == (
        "the store has no stream 'alarm'\n  streams: alarms, readings\n  hint: did you mean 'alarms'?"
    )


def test_a_record_that_does_not_fit_changes_nothing(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 2)
        before = store.state.to_json()
        skipping = store.begin()
        skipping.epoch += 1
        with pytest.raises(StoreError, match="epoch 4 does not follow epoch 2"):
            store.commit(skipping)
        removing = store.begin()
        removing.folder("streams", "readings").remove.append("bucket-nowhere")
        with pytest.raises(StoreError, match="removes buckets of stream 'readings' that are not there"):
            store.commit(removing)
        other = store.begin()
        other.folder("streams", "readings").schema = pa.schema([("x", pa.int8())])
        with pytest.raises(StoreError, match="stream 'readings' has another schema in the store"):
            store.commit(other)
        nameless = store.begin()
        nameless.folder("streams", "new").meta = {"a": 1}
        with pytest.raises(StoreError, match="stream 'new' is new and has neither a schema nor rows"):
            store.commit(nameless)
        assert store.state.to_json() == before
        feed(store, 1)


# --- folders that are not what they should be ---


def test_a_folder_that_holds_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(NotAStore, match="holds something else") as caught:
        Store.create(tmp_path)
    assert "found: thesis.txt" in str(caught.value)
    with pytest.raises(NotAStore, match="is not a clew store"):
        Store.open(tmp_path)
    with pytest.raises(NotAStore, match="there is no such folder"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(NotAStore, match="is a file, not a folder"):
        Store.create(tmp_path / "thesis.txt")
    assert tree(tmp_path) == before


def test_a_store_left_half_made_can_be_made_and_a_made_one_cannot_be_made_again(root: Path) -> None:
    (root / "_epochs").mkdir(parents=True)
    (root / "_lock").touch()
    Store.create(root).close()
    with pytest.raises(StoreError, match="is a store already"):
        Store.create(root)


def write_format(root: Path, **changes: object) -> dict[str, bytes]:
    Store.create(root, SETTINGS).close()
    path = root / "clew-store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return tree(root)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_a_newer_clew_is_refused_untouched(root: Path, read_only: bool) -> None:
    before = write_format(root, format=2, clew="9.1.0")
    with pytest.raises(StoreVersion) as caught:
        Store.open(root, read_only=read_only)
    text = str(caught.value)
    assert "has format 2, this clew reads format 1" in text
    assert "written by: clew 9.1.0" in text
    assert "hint: upgrade clew to 9.1.0 or newer; the store is untouched" in text
    assert tree(root) == before


def test_a_store_of_an_older_unknown_format_is_refused_untouched(root: Path) -> None:
    before = write_format(root, format=0, clew="0.0.1")
    with pytest.raises(StoreVersion, match="has format 0, which this clew cannot upgrade to 1"):
        Store.open(root)
    assert tree(root) == before


def test_other_settings_than_the_pinned_ones_are_refused_by_name(root: Path) -> None:
    Store.create(root, SETTINGS).close()
    with pytest.raises(StoreSettings) as caught:
        Store.open(root, {"time_zone": "America/New_York", "partitions": 2})
    assert "time_zone: 'UTC' in the store, 'America/New_York' asked for" in str(caught.value)
    assert "partitions" not in str(caught.value)
    Store.open(root, {"partitions": 2}).close()


def test_a_damaged_record_is_named(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 3)
    path = root / "_epochs" / f"{2:012d}.json"
    path.write_bytes(path.read_bytes()[:-30])
    for read_only in (False, True):
        with pytest.raises(StoreError) as caught:
            Store.open(root, read_only=read_only)
        assert f"file: {path}" in str(caught.value)
    path.unlink()
    with pytest.raises(StoreError, match="lacks an epoch record"):
        Store.open(root)


# --- a disk that is full, an engine that is not alone ---


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_while_a_bucket_is_written_leaves_the_store_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 1)
        before = disk_files(store, "streams", "readings")
        with monkeypatch.context() as patch:
            patch.setattr(buckets_module.pq, "write_table", full)
            with pytest.raises(StoreFull, match="the disk is full: cannot write a bucket") as caught:
                make_record(store)
        assert isinstance(caught.value, OSError)
        assert isinstance(caught.value.__cause__, OSError)
        assert disk_files(store, "streams", "readings") == before
        feed(store, 1)
        assert seqs_of(store) == list(range(1, 9))


@pytest.mark.parametrize("where", ["_write_temporary", "sync_file"])
def test_a_full_disk_at_the_commit_leaves_the_store_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with Store.create(root) as store:
        feed(store, 2)
        state, files = store.state.to_json(), tree(root)
        record = make_record(store)
        with monkeypatch.context() as patch:
            patch.setattr(disk, where, full)
            with pytest.raises(StoreFull):
                store.commit(record)
        assert store.state.to_json() == state
        assert tree(root) == files
        feed(store, 1)
        assert seqs_of(store) == list(range(1, 13))


def test_a_commit_whose_durability_is_not_known_asks_for_a_reopening_and_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(root)
    feed(store, 1)
    record = make_record(store)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "sync_folder", full)
        with pytest.raises(StoreError, match="epoch 2 is committed, but may not survive a power failure"):
            store.commit(record)
    with pytest.raises(StoreError, match="takes no more epochs: its last commit was cut off by StoreError"):
        store.commit(store.begin())
    store.close()
    with Store.open(root) as again:
        assert seqs_of(again) == list(range(1, 9))
        assert delta_matches(again, "readings")


def test_creating_an_epoch_that_another_engine_took_is_fenced(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 2)
        record = make_record(store)
        taken = store.layout.record(3)
        taken.write_bytes(b"the other's")
        with pytest.raises(Fenced, match="another engine has committed epoch 3"):
            store.commit(record)
        assert taken.read_bytes() == b"the other's"
        assert len(disk_files(store, "streams", "readings")) == 2
        with pytest.raises(StoreError, match="takes no more epochs"):
            store.commit(store.begin())


def test_an_engine_left_far_behind_is_fenced_although_its_epoch_was_folded_away(root: Path) -> None:
    zombie = Store.create(root, durable=False, fold_every=4)
    feed(zombie, 1)
    record = make_record(zombie)
    assert zombie._lock is not None
    zombie._lock.release()
    with Store.open(root, fold_every=4, durable=False) as store:
        feed(store, 20)
        assert not store.layout.record(2).exists()
        with pytest.raises(Fenced):
            zombie.commit(record)
        assert not store.layout.record(2).exists()
        assert len(seqs_of(store)) == 84


def test_a_closed_store_takes_no_epoch(root: Path) -> None:
    store = Store.create(root)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="takes no more epochs: it is closed"):
        store.commit(store.begin())


def test_a_full_disk_that_pyarrow_covers_with_another_error_is_told_as_such(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def covered(*_: object, **__: object) -> None:
        try:
            full()
        finally:
            raise RuntimeError("file metadata is only available after writer close")

    with Store.create(root, durable=False) as store:
        monkeypatch.setattr(buckets_module.pq, "write_table", covered)
        with pytest.raises(StoreFull, match="the disk is full: cannot write a bucket"):
            make_record(store)


def test_a_store_without_its_manifest_is_not_made_anew(root: Path) -> None:
    with Store.create(root, {"time_zone": "Europe/Berlin"}) as store:
        feed(store, 1)
    (root / "clew-store.json").unlink()
    files = tree(root)
    with pytest.raises(StoreError, match=r"is a store that has lost its clew-store\.json"):
        Store.create(root, {"time_zone": "UTC"})
    assert tree(root) == files


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_without_its_epoch_records_is_refused_untouched(root: Path, read_only: bool) -> None:
    """All its files were swept, as those of a crash before the first commit are."""
    with Store.create(root, durable=False) as store:
        feed(store, 2)
    for record in (root / "_epochs").iterdir():
        record.unlink()
    (root / "_lock").unlink()
    files = tree(root)
    with pytest.raises(StoreError) as raised:
        Store.open(root, read_only=read_only)
    assert str(raised.value).splitlines() == [
        "the store has lost its epoch records",
        f"  folder: {root / '_epochs'}",
        "  streams whose Delta logs follow them: alarms, readings",
        "  hint: restore _epochs from a backup; nothing was touched",
    ]
    (root / "_lock").unlink(missing_ok=True)
    assert tree(root) == files


def test_what_a_crash_before_the_first_commit_leaves_is_no_lost_store(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        make_record(store)
    with Store.open(root) as store:
        assert (store.last_epoch, disk_files(store, "streams", "readings")) == (0, set())


def test_a_store_without_the_folder_of_a_stream_is_refused_untouched(root: Path) -> None:
    with Store.create(root, durable=False) as store:
        feed(store, 2)
        newest = store.path_of("alarms", store.files("alarms")[-1])
    shutil.rmtree(newest.parent)
    (root / "_lock").unlink()
    files = tree(root)
    with pytest.raises(StoreError) as raised:
        Store.open(root)
    assert str(raised.value).splitlines() == [
        "the store has lost files of stream 'alarms'",
        f"  not there: {newest}",
        "  hint: restore its folder from a backup; nothing was touched",
    ]
    (root / "_lock").unlink()
    assert tree(root) == files
