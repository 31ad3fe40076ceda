"""A checkpoint comes back as it was written, or says which of its files is damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clew.archive import Store
from clew.errors import StoreError

TABLES = {
    "smooth": {"rows": pa.table({"x": [1, 2]}), "heads": pa.table({"y": pa.array([], pa.string())})},
    "a/b": {"rows": pa.table({"z": [None, "é"]})},
    "empty": {},
}


def commit_checkpoint(store: Store) -> str:
    record = store.begin()
    record.checkpoint = store.write_checkpoint(record.epoch, TABLES, {"progress": {"readings": 3.5}})
    store.commit(record)
    return record.checkpoint


def test_a_checkpoint_comes_back_after_reopening(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as store:
        name = commit_checkpoint(store)
    with Store.open(tmp_path / "s") as store:
        assert store.state.checkpoint == name
        assert store.read_checkpoint(name) == (TABLES, {"progress": {"readings": 3.5}})


def test_a_checkpoint_that_no_record_names_is_swept(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as store:
        kept = commit_checkpoint(store)
        store.write_checkpoint(9, TABLES, {})
    with Store.open(tmp_path / "s"):
        assert [path.name for path in (tmp_path / "s" / "checkpoints").iterdir()] == [kept]


@pytest.mark.parametrize("file", ["0000.arrow", "manifest.json"])
@pytest.mark.parametrize("damage", ["torn", "gone", "flipped"])
def test_a_damaged_checkpoint_names_the_file(tmp_path: Path, file: str, damage: str) -> None:
    with Store.create(tmp_path / "s", durable=False) as store:
        name = commit_checkpoint(store)
        path = tmp_path / "s" / "checkpoints" / name / file
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-40] if damage == "torn" else data[:30] + bytes([data[30] ^ 1]) + data[31:])
        with pytest.raises(StoreError) as caught:
            store.read_checkpoint(name)
        assert f"file: {path}" in str(caught.value)


def test_old_checkpoints_are_dropped_but_never_the_newest(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False, fold_every=2) as store:
        names = [commit_checkpoint(store) for _ in range(5)]
        assert store.drop_checkpoints(before=4) == names[:3]
        assert store.drop_checkpoints(before=100) == names[3:4]
        assert store.state.checkpoints == names[4:]
    with Store.open(tmp_path / "s") as store:
        assert store.state.checkpoint == names[4]
        assert [path.name for path in (tmp_path / "s" / "checkpoints").iterdir()] == names[4:]
        store.drop_checkpoints(before=100)
        assert store.read_checkpoint(names[4])[0] == TABLES
