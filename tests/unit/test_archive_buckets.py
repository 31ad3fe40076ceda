"""A bucket holds its rows bit for bit, and its bounds never exclude a row that is in it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.archive import FileEntry, compaction, write_bucket
from clew.archive.buckets import read_buckets
from clew.archive.layout import folder_name
from clew.errors import StoreError
from clew.model.axis import axis_of
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ

TABLE = pa.table({
    "b": pa.array([True, None], pa.bool_()),
    "i8": pa.array([-1, None], pa.int8()),
    "i16": pa.array([300, -300], pa.int16()),
    "i32": pa.array([None, None], pa.int32()),
    "f": pa.array([1.5, -0.0], pa.float32()),
    "d": pa.array([math.nan, math.inf], pa.float64()),
    "s": pa.array(["", None], pa.string()),
    "y": pa.array([b"\0", None], pa.binary()),
    "day": pa.array([dt.date(1969, 12, 31), dt.date(2020, 2, 29)], pa.date32()),
    "ts": pa.array([dt.datetime(1960, 1, 1, tzinfo=dt.UTC), None], TIMESTAMP),
    "ntz": pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 1), dt.datetime(2021, 1, 1)], TIMESTAMP_NTZ),
    "dec": pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(10, 2)),
    "big": pa.array([Decimal(10**37), None], pa.decimal128(38, 0)),
    "list": pa.array([[1, None], None], pa.list_(pa.field("element", pa.int32()))),
    "_seq": pa.array([1, 2], pa.int64()),
    "_ident": pa.array([-(2**63), 2**63 - 1], pa.int64()),
})  # fmt: skip


def test_every_type_reads_back_as_it_was_written(tmp_path: Path) -> None:
    entry = write_bucket(tmp_path, TABLE)
    found = read_buckets(tmp_path, [entry], TABLE.schema)
    assert found.schema == TABLE.schema
    assert found.drop_columns(["d"]).equals(TABLE.drop_columns(["d"]))
    assert str(found["d"].to_pylist()) == str(TABLE["d"].to_pylist())
    assert (entry.rows, entry.bytes) == (2, (tmp_path / entry.path).stat().st_size)


def test_bounds_are_points_of_the_axis_and_missing_where_they_are_not_known(tmp_path: Path) -> None:
    stats = write_bucket(tmp_path, TABLE).stats
    assert stats["i8"] == (-1, -1, 1)
    assert stats["i32"] == (None, None, 2)
    assert stats["day"] == (-1, 18321, 0)
    assert stats["ts"] == (-315619200000000, -315619200000000, 1)
    assert stats["ntz"] == (1577836800000001, 1609459200000000, 0)
    assert stats["dec"] == (-350, 125, 0)
    assert stats["f"] == (-0.0, 1.5, 0)
    assert stats["_seq"] == (1, 2, 0)
    assert not {"d", "s", "b", "big", "list", "_ident"} & set(stats)


def test_an_empty_bucket_has_no_bounds(tmp_path: Path) -> None:
    entry = write_bucket(tmp_path, TABLE.slice(0, 0))
    assert read_buckets(tmp_path, [entry], TABLE.schema, ["ts"]).num_rows == 0


def test_whole_numbers_are_kept_as_deltas_and_texts_in_dictionaries(tmp_path: Path) -> None:
    count = 50_000
    table = pa.table({
        "s": [f"symbol {i % 50}" for i in range(count)],
        "_seq": pa.array(range(count), pa.int64()),
        "_stamp": pa.array(range(7, count + 7), pa.int64()),
    })  # fmt: skip
    entry = write_bucket(tmp_path, table)
    pq.write_table(table, tmp_path / "plain.parquet")
    assert entry.bytes * 4 < (tmp_path / "plain.parquet").stat().st_size


def test_other_readers_of_parquet_can_read_a_bucket(tmp_path: Path) -> None:
    entry = write_bucket(tmp_path, TABLE)
    found = duckdb.sql(f"select sum(_seq), max(i16), min(s), count(ts) from '{tmp_path / entry.path}'").fetchall()
    assert found == [(3, 300, "", 1)]


columns = {
    "x": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "y": (pa.float64(), st.floats()),
    "z": (pa.decimal128(6, 3), st.decimals(-999, 999, places=3, allow_nan=False)),
}
some_rows = st.lists(st.fixed_dictionaries({n: st.none() | values for n, (_, values) in columns.items()}), max_size=6)


@settings(max_examples=40)
@given(st.lists(some_rows, min_size=1, max_size=3), st.sampled_from(list(columns)), st.data())
def test_reading_a_range_gives_what_filtering_all_rows_gives(parts: list[list[dict]], name: str, data) -> None:
    schema = pa.schema([(n, kind) for n, (kind, _) in columns.items()])
    tables = [pa.Table.from_pylist(part, schema=schema) for part in parts]
    values, valid = axis_of(pa.concat_tables(tables)[name])
    known = sorted({v.item() for v, ok in zip(values, valid, strict=True) if ok and -math.inf < v < math.inf})
    bound = st.none() | st.sampled_from(known) if known else st.none()
    low, high = data.draw(bound), data.draw(bound)
    with TemporaryDirectory() as folder:
        entries = [write_bucket(Path(folder), table) for table in tables]
        entries = [FileEntry.from_json(entry.to_json()) for entry in entries]
        found = read_buckets(Path(folder), entries, schema, [name], {name: (low, high)})[name]
    inside = [
        (low is None or (ok and v >= low)) and (high is None or (ok and v <= high))
        for v, ok in zip(values, valid, strict=True)
    ]
    wanted = pa.concat_tables(tables)[name].filter(pa.array(inside, pa.bool_()))
    assert str(found.to_pylist()) == str(wanted.to_pylist())


@given(st.text(max_size=8), st.text(max_size=8))
def test_folder_names_are_safe_and_differ_when_names_do(one: str, other: str) -> None:
    assert not set(folder_name(one)) & set('/\\:*?"<>| %\0')
    assert folder_name(one) not in (".", "..")
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_a_flipped_bit_is_found_and_the_bucket_named(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array(range(500)), "s": [f"sensor {i % 7}" for i in range(500)]})
    entry = write_bucket(tmp_path, table)
    path = tmp_path / entry.path
    whole = path.read_bytes()
    pages = pq.read_metadata(path).row_group(0)
    ends = [(c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size
            for c in (pages.column(0), pages.column(1))]  # fmt: skip
    for position in (ends[0] - 20, ends[1] - 20):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="the store has a damaged file") as caught:
            read_buckets(tmp_path, [entry], table.schema)
        assert str(path) in caught.value.details[0]
    path.write_bytes(whole)
    assert read_buckets(tmp_path, [entry], table.schema).equals(table)


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_a_bucket_that_is_not_whole_is_named_among_others(tmp_path: Path, damage: str) -> None:
    table = pa.table({"ts": pa.array(range(50))})
    entries = [write_bucket(tmp_path, table) for _ in range(3)]
    path = tmp_path / entries[1].path
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9] if damage == "cut" else b"no parquet")
    with pytest.raises(StoreError, match="the store has a damaged file") as caught:
        read_buckets(tmp_path, entries, table.schema)
    assert caught.value.details[0] == f"file: {path}"
    cause = "cause: it is not there" if damage == "gone" else f"cause: it has {path.stat().st_size} bytes, not"
    assert caught.value.details[1].startswith(cause)
    with pytest.raises(StoreError):
        compaction.merge(tmp_path, entries)


def test_times_that_python_has_no_object_for_have_bounds(tmp_path: Path) -> None:
    far = pa.array([0, 4 * 10**17, -(4 * 10**17)], pa.int64())
    days = pa.array([0, 10**7, -(10**7)], pa.int32()).cast(pa.date32())
    table = pa.table({"ts": far.cast(TIMESTAMP), "ntz": far.cast(TIMESTAMP_NTZ), "day": days})
    entry = write_bucket(tmp_path, table)
    assert entry.stats["ts"] == entry.stats["ntz"] == (-(4 * 10**17), 4 * 10**17, 0)
    assert entry.stats["day"] == (-(10**7), 10**7, 0)
    found = read_buckets(tmp_path, [entry], table.schema, ["day"], {"ts": (10**17, None), "day": (1, 10**8)})
    assert found.column("day").cast(pa.int32()).to_pylist() == [10**7]


def test_a_bound_beyond_a_types_values_says_nothing(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([-128, 127], pa.int8())})
    entry = write_bucket(tmp_path, table)
    assert len(read_buckets(tmp_path, [entry], table.schema, None, {"n": (-300, 300)})) == 2
    assert len(read_buckets(tmp_path, [entry], table.schema, None, {"n": (-300, 0)})) == 1
