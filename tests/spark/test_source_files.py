"""Files as a streaming source: every form beside every other, each file with its own header, and what is no source."""

from __future__ import annotations

import gzip
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.lanes import distribute_everything, tasks_here
from tests.spark.streams import ARROW, network, numbered, values, write

import clew
from clew.engine.arrow_files import Held
from clew.engine.file_parts import FORMS
from clew.engine.source_files import FileLeftOut
from clew.errors import SourceFailed
from clew.session import Engine
from clew.testing.laws import contents, same


@pytest.fixture
def open_engine(spark: SparkSession, tmp_path: Path) -> Any:
    def opened(net: clew.Network | None = None, name: str = "store", **options: Any) -> Engine:
        return clew.open(tmp_path / name, net or network(), spark=spark, durable=False, **options)

    return opened


def test_files_of_all_forms_in_one_folder_are_what_feeding_their_rows_is(open_engine: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in [1]*"  # a name with the letters of patterns
    write(folder, "1.parquet", numbered(0, 10))
    write(folder, "2.csv", numbered(10, 10))
    write(folder / "deeper", "3.ndjson", numbered(20, 10))
    (folder / "4.jsonl.gz").write_bytes(
        gzip.compress(b"".join(json.dumps(r).encode() + b"\n" for r in numbered(30, 9)))
    )
    (folder / "5.tsv").write_text("X\tignored\tTS\tg\n" + "".join(f"{i % 5}\t?\t{i}\ta\n" for i in range(39, 44)))
    (folder / "6.csv").write_text("")
    (folder / "_hidden.csv").write_text("no\ncolumns\n")
    with open_engine() as engine:
        done = engine.run({"s": folder}, available_now=True)
        assert (done.admitted, done.rejected, done.late) == (44, 0, 0)
        found = contents(engine._store)
    with open_engine(name="fed") as engine:
        engine.feed("s", numbered(0, 39) + [{"ts": i, "g": "a", "x": float(i % 5)} for i in range(39, 44)])
        assert contents(engine._store) == found


@pytest.mark.parametrize("lane", ["driver", "spark"])
def test_one_file_is_a_source(open_engine: Any, tmp_path: Path, lane: str) -> None:
    write(tmp_path / "in", "1?.json", numbered(0, 5))
    write(tmp_path / "in", "2.json", numbered(50, 5))
    with open_engine(lane=lane) as engine:
        assert engine.run({"s": tmp_path / "in" / "1?.json"}, available_now=True).admitted == 5
    with open_engine(lane=lane, name="other") as engine:
        assert engine.run({"s": tmp_path / "in" / "2.json"}, available_now=True).admitted == 5


def test_the_names_of_folders_are_columns(open_engine: Any, tmp_path: Path) -> None:
    plain = pa.schema([ARROW.field("ts"), ARROW.field("x")])
    bare = [{"ts": i, "x": 3.0} for i in range(4)]
    write(tmp_path / "in" / "g=a%20b", "1.parquet", bare[:2], plain)
    write(tmp_path / "in" / "G=__HIVE_DEFAULT_PARTITION__", "2.json", [{"ts": 9, "g": "own", "x": 3.0}])
    write(tmp_path / "in" / "g=c" / "more=1", "3.csv", bare[2:], plain)
    with open_engine(folders()) as engine:
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5
        assert [(r.ts, r.g) for r in engine.read("s").collect()] == [
            (0, "a b"), (1, "a b"), (2, "c"), (3, "c"), (9, None),
        ]  # fmt: skip


def folders() -> clew.Network:
    net = clew.Network("folders")
    net.stream("s", "ts LONG, g STRING, x DOUBLE", order="ts", key="ts").output("all")
    return net


def test_a_folder_whose_name_is_no_value_of_its_column_is_named(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in" / "ts=soon", "1.json", [{"g": "a", "x": 1.0}])
    with open_engine() as engine, pytest.raises(SourceFailed) as failed:
        engine.run({"s": tmp_path / "in"}, available_now=True)
    assert "it lies in a folder 'ts=soon', which is no BIGINT" in str(failed.value)


def test_a_parquet_file_of_other_types_is_fitted_row_by_row(open_engine: Any, tmp_path: Path) -> None:
    other = pa.schema([("TS", pa.int32()), ("g", pa.string()), ("x", pa.int64()), ("more", pa.bool_())])
    write(tmp_path / "in", "1.parquet", [{"TS": 1, "g": "a", "x": 4}, {"TS": None, "g": "b", "x": 5}], other)
    with open_engine() as engine:
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.admitted, done.rejected) == (1, 1)
        assert values(engine.read("s")) == [(1, "a", 4.0)]


def test_files_that_do_not_fit_fail_the_run_by_name_and_can_be_put_right(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    (tmp_path / "in" / "2.csv").write_text("ts,g,celsius\n5,a,1\n")
    (tmp_path / "in" / "3.jsonl.gz").write_bytes(b"not packed")
    with open_engine() as engine:
        with pytest.raises(SourceFailed) as failed:
            engine.run({"s": tmp_path / "in"}, available_now=True)
        text = str(failed.value)
        assert text.startswith(f"source 's' cannot take file '{tmp_path / 'in' / '2.csv'}'\n  it lacks column 'x'\n")
        assert f"others: {tmp_path / 'in' / '3.jsonl.gz'}" in text
        assert "put it right under its name, or take it away, and run again: its batch has not been taken" in text
        assert engine.last_epoch == 0
        (tmp_path / "in" / "2.csv").write_text("ts,g,x\n5,a,1\n")
        (tmp_path / "in" / "3.jsonl.gz").write_bytes(gzip.compress(b'{"ts": 6, "g": "b"}\n'))
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 7


def test_a_file_of_no_known_form_is_left_out_with_a_warning(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    (tmp_path / "in" / "notes.txt").write_text("ts is in seconds")
    with open_engine() as engine:
        with pytest.warns(FileLeftOut, match=r"source 's' leaves out '.*notes\.txt': forms: \.csv"):
            assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5
        assert engine.run({"s": tmp_path / "in"}, available_now=True).epochs == 0


def test_several_files_of_no_known_form_are_one_warning(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    for n in range(5):
        (tmp_path / "in" / f"{n}.txt").write_text("ts is in seconds")
    names = ", ".join(f"'{tmp_path / 'in'}/{n}.txt'" for n in range(3))
    with open_engine() as engine, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine.run({"s": tmp_path / "in"}, available_now=True)
    left = [str(w.message) for w in told if w.category is FileLeftOut]
    assert left == [f"source 's' leaves out 5 files, {names}, ...: {FORMS}"]


def test_a_store_in_the_folder_that_feeds_it_is_no_source(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path, "1.json", numbered(0, 5))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "data.csv").write_text("no\ncolumns\n")
    with open_engine() as engine:
        assert engine.run({"s": tmp_path}, available_now=True).admitted == 5
        assert engine.run({"s": tmp_path}, available_now=True).epochs == 0
        write(tmp_path / "deeper", "2.json", numbered(5, 5))
        done = engine.run({"s": tmp_path}, available_now=True)
        assert (done.epochs, done.admitted) == (1, 5)
        with pytest.raises(SourceFailed) as failed:
            engine.run({"s": tmp_path / "store"}, available_now=True)
    assert str(failed.value) == (
        f"source 's' reads '{tmp_path / 'store'}', which is a store\n  hint: give a folder of files, or one file of it"
    )


def test_files_and_a_frame_are_sources_of_one_query(open_engine: Any, spark: SparkSession, tmp_path: Path) -> None:
    net = clew.Network("two")
    s = net.stream("s", "ts LONG, g STRING, x DOUBLE", order="ts", key=["ts", "g"])
    t = net.stream("t", "ts LONG, g STRING, x DOUBLE", order="ts", key=["ts", "g"])
    s.union(t).output("both")
    write(tmp_path / "s", "1.json", numbered(0, 5))
    write(tmp_path / "t", "1.parquet", numbered(5, 5))
    frame = spark.readStream.schema("ts long, g string, x double").parquet(str(tmp_path / "t"))
    with open_engine(net) as engine:
        assert engine.run({"s": tmp_path / "s", "t": frame}, available_now=True).admitted == 10
        assert [ts for ts, _, _ in values(engine.read("both"))] == list(range(10))


# --- where a run goes on ---


def test_another_source_under_the_same_name_is_refused_until_the_position_is_deleted(
    open_engine: Any, tmp_path: Path
) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    write(tmp_path / "other", "1.json", numbered(5, 5))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        with pytest.raises(SourceFailed) as failed:
            engine.run({"s": tmp_path / "other"}, available_now=True)
        place = tmp_path / "store" / "_streaming" / "s"
        assert str(failed.value).startswith(
            f"source 's' was '{tmp_path / 'in'}' in earlier runs, and is now '{tmp_path / 'other'}'\n"
        )
        assert f"delete '{place}' to start at the beginning of source 's'" in str(failed.value)
        shutil.rmtree(place)
        assert engine.run({"s": tmp_path / "other"}, available_now=True).admitted == 5


@pytest.mark.parametrize("text", ["", None])
def test_a_damaged_position_is_told_with_the_way_out(open_engine: Any, tmp_path: Path, text: str | None) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        file = tmp_path / "store" / "_streaming" / "s" / "metadata"
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(SourceFailed) as failed:
            engine.run({"s": tmp_path / "in"}, available_now=True)
        assert "where a run of source 's' goes on cannot be read" in str(failed.value)
        assert f"cause: it is {'missing' if text is None else 'empty'}" in str(failed.value)


def test_a_position_that_was_cut_off_before_its_first_batch_is_made_anew(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 5))
    place = tmp_path / "store" / "_streaming" / "s"
    with open_engine() as engine:
        place.mkdir(parents=True)
        (place / "metadata").write_text("")
        (place / "clew-sources.json").write_text('{"s": ')
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5


# --- text that stays encoded ---


def texts() -> clew.Network:
    """Boxes that hand text on, look into it, group by it, and lose it."""
    net = clew.Network("texts")
    s = net.stream("s", "ts LONG, g STRING, h STRING, x DOUBLE", order="ts", key=["ts", "g"])
    s.filter("x >= 2").map("ts", name="g", half="x / 2").output("handed_on")
    s.filter("h IS NULL OR h < 'm'").map("ts", both="concat(g, coalesce(h, '?'))", h="h").output("looked_into")
    s.map("ts", g="h", h="g").filter("g = 'n'").output("crossed")
    s.window(span=8, slide=4, on="ts", by="g").agg(ts="min(ts)", n="count(h)", low="min(h)", x="sum(x)").output("panes")
    s.filter("x >= 1").window(rows=3, by=["h", "g"]).agg(ts="max(ts)", x="avg(x)").output("counts")
    s.join(s.map("ts", "g", other="h"), within=1, by="g").output("pairs")
    return net


def texts_of(first: int, count: int) -> list[dict[str, Any]]:
    words = [None, "n", "a", "é", "", "zz"]
    return [
        {"ts": i // 2, "g": f"g{i % 2}" if i % 7 else f"g{i % 2}-{i}", "h": words[i * i % 6], "x": float(i % 5)}
        for i in range(first, first + count)
    ]


@pytest.mark.parametrize("few", [10**9, -1])
def test_text_of_few_values_stays_encoded_and_gives_the_same_bits(
    open_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    schema = pa.schema([("ts", pa.int64()), ("g", pa.string()), ("h", pa.string()), ("x", pa.float64())])
    (tmp_path / "in").mkdir()
    for number in range(3):
        table = pa.Table.from_pylist(texts_of(200 * number, 200), schema)
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet", row_group_size=64)  # a dictionary in each
    with open_engine(texts(), name="fed", lane="driver") as engine:
        engine.feed("s", texts_of(0, 600))
        expected = contents(engine._store)
    assert {f"stream {name}" for name in texts().outputs} <= expected.keys()

    distribute_everything(monkeypatch)
    tasks_here(monkeypatch)
    monkeypatch.setattr("clew.engine.arrow_files.FEW_WORDS", few)
    read = []
    monkeypatch.setattr(Held, "columns", lambda *a, f=Held.columns: read.append(f(*a)) or read[-1])
    with open_engine(texts(), lane="spark") as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        same(expected, contents(engine._store), "encoded")
        assert dict(engine.read("panes").dtypes)["g"] == "string"
    assert any(pa.types.is_dictionary(kind) for table in read for kind in table.schema.types) == (few > 0)
    with open_engine(texts(), lane="driver") as engine:  # what boxes hold is made again from the archive
        same(expected, contents(engine._store), "opened again")
