"""Epochs for the tests of the archive: a source, an output made of it, and origins."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from clew.archive import EpochRecord, Store


def rows(epoch: int, count: int = 4) -> pa.Table:
    """The rows of one epoch: seqs go on where the epoch before ended, order is ten times the seq."""
    seqs = pa.array(range((epoch - 1) * count + 1, epoch * count + 1), pa.int64())
    return pa.table({
        "ts": pa.array([seq.as_py() * 10 for seq in seqs], pa.int64()),
        "sensor": pa.array([f"s{seq.as_py() % 3}" for seq in seqs]),
        "celsius": pa.array([seq.as_py() / 2 for seq in seqs], pa.float64()),
        "_seq": seqs,
        "_stamp": seqs,
        "_epoch": pa.array([epoch] * count, pa.int64()),
    })  # fmt: skip


def make_record(store: Store, count: int = 4) -> EpochRecord:
    """The next epoch, its buckets written: streams `readings` and `alarms`, table `origins`."""
    record = store.begin(id=f"batch {store.last_epoch + 1}")
    table = rows(record.epoch, count)
    for name in ("readings", "alarms"):
        change = record.folder("streams", name)
        change.add.append(store.write_bucket("streams", name, table))
        change.seq, change.order = record.epoch * count, "ts"
    record.folder("tables", "origins").add.append(store.write_bucket("tables", "origins", table.select(["_stamp"])))
    record.stamp = record.epoch * count
    record.boxes = {"smooth": {"rows_in": count}}
    return record


def feed(store: Store, epochs: int, count: int = 4) -> None:
    """Commit so many epochs, compacting as an engine does."""
    for _ in range(epochs):
        record = make_record(store, count)
        store.compact(record)
        store.commit(record)


def seqs_of(store: Store, name: str = "readings", **how: object) -> list[int]:
    found: list[int] = store.read_table(name, ["_seq"], **how)["_seq"].to_pylist()  # type: ignore[arg-type]
    return found


def delta_matches(store: Store, name: str) -> bool:
    """Whether the Delta table holds exactly the buckets that the records name, and they can be read through it."""
    folder = store.layout.folder("streams", name)
    table = DeltaTable(str(folder))
    paths = {Path(uri).name for uri in table.file_uris()}
    same_files = paths == {entry.path for entry in store.files(name)}
    return same_files and sorted(table.to_pyarrow_table()["_seq"].to_pylist()) == sorted(seqs_of(store, name))


def disk_files(store: Store, kind: str, name: str) -> set[str]:
    """The buckets that lie in a folder, named or not."""
    return {path.name for path in (store.layout.root / kind / name).glob("*.parquet")}
