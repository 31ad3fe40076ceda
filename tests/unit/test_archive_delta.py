"""Each stream is a Delta table that any Delta reader can read: whole epochs, true bounds, a log that stays small."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.stores import delta_matches, feed, make_record, seqs_of

from clew.archive import Store
from clew.archive.delta import CHECKPOINT_EVERY, DeltaLog
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.create(tmp_path / "s", durable=False, grace_s=0) as opened:
        yield opened


def log_names(store: Store) -> list[str]:
    return sorted(path.name for path in (store.layout.folder("streams", "readings") / "_delta_log").iterdir())


def test_a_delta_reader_sees_the_rows_and_the_epoch_they_stand_for(store: Store) -> None:
    feed(store, 3)
    folder = store.layout.folder("streams", "readings")
    table = DeltaTable(str(folder))
    assert table.transaction_version("clew") == 3
    assert table.to_pyarrow_table().num_rows == 12
    assert len(table.file_uris(file_pruning_predicate="_seq > 8")) == 1
    assert duckdb.sql("select count(*) from read_parquet($p)", params={"p": table.file_uris()}).fetchall() == [(12,)]


def test_delta_readers_get_the_bounds_of_every_type_of_order(store: Store) -> None:
    table = pa.table({
        "n": pa.array([1, 5], pa.int64()),
        "f": pa.array([0.5, 2.5], pa.float64()),
        "day": pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)], pa.date32()),
        "ts": pa.array([dt.datetime(2020, 1, day, 0, 0, 0, 7, dt.UTC) for day in (1, 2)], TIMESTAMP),
        "ntz": pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 9)], TIMESTAMP_NTZ),
        "dec": pa.array([1, 2], pa.decimal128(10, 2)),
        "_seq": pa.array([1, 2], pa.int64()),
    })  # fmt: skip
    record = store.begin()
    record.folder("streams", "all").add.append(store.write_bucket("streams", "all", table))
    store.commit(record)
    found = pa.table(DeltaTable(str(store.layout.folder("streams", "all"))).get_add_actions(flatten=True)).to_pylist()[
        0
    ]
    for name in ("n", "f", "day", "ts", "ntz", "dec", "_seq"):
        values = table[name].to_pylist()
        assert (found[f"min.{name}"], found[f"max.{name}"]) == (min(values), max(values)), name
        assert found[f"null_count.{name}"] == 0
    assert found["num_records"] == 2


def test_compaction_is_no_change_of_data(store: Store) -> None:
    feed(store, 34)
    assert len(store.files("readings")) < 34
    assert delta_matches(store, "readings")
    last = (store.layout.folder("streams", "readings") / "_delta_log" / f"{34:020d}.json").read_text()
    assert last.count('"dataChange": false') == 34
    assert last.count('"dataChange": true') == 1


def test_the_log_is_bounded_by_the_checkpoint_interval(store: Store) -> None:
    most = 0
    for _ in range(3):
        feed(store, CHECKPOINT_EVERY)
        most = max(most, len(log_names(store)))
        assert delta_matches(store, "readings")
        assert delta_matches(store, "alarms")
    assert most <= CHECKPOINT_EVERY + 4


def test_a_log_that_is_behind_is_rolled_forward_at_the_next_open(store: Store, monkeypatch: Any) -> None:
    feed(store, 3)
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", failing)
        feed(store, 2)
    assert set(store.behind) == {"readings", "alarms"}
    assert not delta_matches(store, "readings")
    store.close()
    with Store.open(store.layout.root) as again:
        assert delta_matches(again, "readings")
        assert DeltaTable(str(again.layout.folder("streams", "readings"))).transaction_version("clew") == 5


def test_a_log_that_is_behind_is_brought_up_by_the_next_epoch_also_of_other_streams(
    store: Store, monkeypatch: Any, caplog: Any
) -> None:
    feed(store, 3)
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", failing)
        feed(store, 2)
    assert [r.message for r in caplog.records] == [
        "'readings' could not follow epoch 4: no ink",
        "'alarms' could not follow epoch 4: no ink",
    ]
    store.commit(store.begin())
    assert store.behind == {}
    assert delta_matches(store, "readings")
    feed(store, 1)
    assert delta_matches(store, "alarms")


def failing(*_: object, **__: object) -> None:
    raise OSError("no ink")


@pytest.mark.parametrize("damage", ["torn", "empty", "gone", "torn in the middle", "first torn"])
def test_a_log_that_a_power_cut_or_a_user_damaged_is_brought_back(store: Store, damage: str) -> None:
    feed(store, 5)
    store.close()
    logs = store.layout.folder("streams", "readings") / "_delta_log"
    newest = logs / log_names(store)[-1]
    if damage == "gone":
        shutil.rmtree(logs)
    else:
        torn = {"torn in the middle": logs / f"{3:020d}.json", "first torn": logs / f"{0:020d}.json"}.get(
            damage, newest
        )
        torn.write_bytes(b"" if damage == "empty" else torn.read_bytes()[:-20])
    with Store.open(store.layout.root, durable=False) as again:
        assert delta_matches(again, "readings")
        feed(again, 2)
        assert delta_matches(again, "readings")


def test_a_version_that_somebody_else_took_is_stepped_over(store: Store) -> None:
    feed(store, 2)
    folder = store.layout.folder("streams", "readings")
    DeltaTable(str(folder)).alter.set_table_properties({"delta.checkpointInterval": "999"})
    feed(store, 2)
    assert delta_matches(store, "readings")
    assert DeltaTable(str(folder)).version() == 5


def test_opening_a_store_that_is_up_to_date_writes_nothing(store: Store) -> None:
    feed(store, 3)
    before = log_names(store)
    store.close()
    for _ in range(2):
        Store.open(store.layout.root).close()
    assert log_names(store) == before


def test_an_epoch_without_rows_leaves_the_log_alone(store: Store) -> None:
    feed(store, 2)
    before = log_names(store)
    record = store.begin()
    record.folder("streams", "readings").meta = {"progress": 7}
    store.commit(record)
    assert log_names(store) == before


def test_a_log_that_cannot_be_read_is_named_and_does_not_keep_the_store_shut(store: Store, caplog: Any) -> None:
    feed(store, 1)
    make_record(store)
    store.close()
    logs = store.layout.folder("streams", "readings") / "_delta_log"
    (logs / f"{0:020d}.json").write_text('{"commitInfo":{}}')
    with Store.open(store.layout.root, durable=False) as again:
        assert list(again.behind) == ["readings"]
        feed(again, 1)
        assert len(seqs_of(again)) == 8
        shutil.rmtree(logs)
        feed(again, 1)
        assert again.behind == {}
        assert delta_matches(again, "readings")
    (message,) = [record.message for record in caplog.records]
    assert "'readings' could not follow epoch 1: the Delta log of 'readings' cannot be read or written" in message
    assert "hint: delete that folder: it is built anew from the epoch records" in message
