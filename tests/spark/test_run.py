"""Structured Streaming as a source: files, rate, socket; stopped, started again, cut off, and run twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.streams import DAEMON, Row, network, numbered, values, write

import clew
from clew.errors import BatchError, Finished, SourceFailed, UnknownStream
from clew.session import Engine
from clew.testing.laws import contents

ROOT = Path(__file__).parents[2]


def pair() -> clew.Network:
    net = clew.Network("pair")
    s = net.stream("s", "ts LONG, g STRING, x DOUBLE", order="ts", key=["ts", "g"])
    t = net.stream("t", "ts LONG, g STRING, top DOUBLE", order="ts", key=["ts", "g"])
    s.join(t, within=(-2, 0), by="g", how="left").output("limited")
    return net


@pytest.fixture
def open_engine(spark: SparkSession, tmp_path: Path) -> Any:
    def opened(net: clew.Network | None = None, name: str = "store") -> Engine:
        return clew.open(tmp_path / name, net or network(), spark=spark, durable=False)

    return opened


def tuples(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in rows]


# --- files ---


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_folder_of_files_is_taken_once(open_engine: Any, tmp_path: Path, form: str) -> None:
    write(tmp_path / "in", f"1.{form}", numbered(0, 12))
    with open_engine() as engine:
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.epochs, done.admitted, done.rejected, done.late, done.stopped) == (1, 12, 0, 0, False)
        assert (engine.run({"s": str(tmp_path / "in")}, trigger="available_now").epochs, engine.last_epoch) == (0, 1)
        write(tmp_path / "in", f"2.{form}", numbered(12, 8))
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 8
    with open_engine() as engine:
        assert engine.run({"s": tmp_path / "in"}, available_now=True).epochs == 0
        write(tmp_path / "in", f"3.{form}", numbered(20, 5))
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5
        found = contents(engine._store)
    with open_engine(name="fed") as engine:
        for first, count in ((0, 12), (12, 8), (20, 5)):
            engine.feed("s", numbered(first, count))
        assert contents(engine._store) == found


JSON_TEXT = """\
{"ts": 1, "g": "a", "x": 2}
{"ts": 2, "g": br
{"ts": "x", "g": "a"}

{"ts": 3.5, "g": "a"}
{"ts": 4, "g": "a", "X": "NaN", "more": [1]}
{"ts": 5, "g": "b"}
{"ts": null, "g": "b"}
"""
BEYOND = 10**20 - 1  # beyond int64
CSV_TEXT = f"""\
ts,g,x
1,a,2
2,b,warm
3,a
4,b,5,6
5,b,
,b,1
{BEYOND},a,1
4,a,NaN
"""


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("1.json", JSON_TEXT, {
            ('{"ts": 2, "g": br', "malformed row: line 2 of '1.json' is no JSON object"),
            ('{"ts": "x", "g": "a"}', "column 'ts' is BIGINT, got str 'x'"),
            ('{"ts": 3.5, "g": "a"}', "column 'ts' is BIGINT, got float 3.5"),
            ('{"ts": null, "g": "b", "x": null}', "null or NaN in order column 'ts'"),
        }),
        ("1.csv", CSV_TEXT, {
            ('{"ts": 2, "g": "b", "x": "warm"}', "column 'x' is DOUBLE, got str 'warm'"),
            ("3,a", "malformed row: line 4 of '1.csv' has 2 fields, not 3"),
            ("4,b,5,6", "malformed row: line 5 of '1.csv' has 4 fields, not 3"),
            (f'{{"ts": "{BEYOND}", "g": "a", "x": 1.0}}', f"column 'ts' is BIGINT, got str '{BEYOND}'"),
            ('{"ts": null, "g": "b", "x": 1.0}', "null or NaN in order column 'ts'"),
        }),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_kept_with_their_text_and_reason(
    open_engine: Any, tmp_path: Path, name: str, text: str, refused: set[tuple[str, str]]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(text)
    with open_engine() as engine:
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert [(ts, g, repr(x)) for ts, g, x in values(engine.read("s"))] == [
            (1, "a", "2.0"), (4, "a", "nan"), (5, "b", "None"),
        ]  # fmt: skip
        kept = engine.rejected("s").collect()
        assert {(r.row, r.reason) for r in kept} == refused
        assert (done.admitted, done.rejected) == (3, len(kept))


def test_files_of_another_type_fit_value_by_value(open_engine: Any, tmp_path: Path) -> None:
    wide = pa.schema([("X", pa.float32()), ("g", pa.large_string()), ("ts", pa.int32()), ("more", pa.int8())])
    write(tmp_path / "in", "1.parquet", [{"X": 1.5, "g": "a", "ts": 7, "more": 1}], wide)
    with open_engine() as engine:
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 1
        assert values(engine.read("s")) == [(7, "a", 1.5)]


def test_late_and_repeated_tuples_of_a_stream_are_kept(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(10, 4))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        write(tmp_path / "in", "2.json", [*numbered(13, 2), *numbered(3, 2)])
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.admitted, done.rejected, done.late) == (1, 1, 2)
        late = values(engine.late("s"))
        assert [(ts, why) for ts, _, _, why in late] == [
            (3, "later than the lateness of stream 's' allows"), (4, "later than the lateness of stream 's' allows"),
        ]  # fmt: skip
        assert [r.reason for r in engine.rejected("s").collect()] == ["duplicate key (ts=13, g=b)"]


# --- other sources ---


def rate(spark: SparkSession, per_batch: int = 40) -> DataFrame:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).option("numPartitions", 3)
    return frame.load().selectExpr("value AS ts", "string(value % 3) AS g", "double(value % 7) AS x")


def run_until(engine: Engine, sources: dict[str, Any], rows: int, **options: Any) -> int:
    """Run until ctrl-C, which comes once, when output 'big' has got so many rows more; the tuples admitted."""
    left = [rows]

    def stop(table: pa.Table, _: int) -> None:
        before, left[0] = left[0], left[0] - len(table)
        if left[0] <= 0 < before:
            os.kill(os.getpid(), signal.SIGINT)

    engine.deliver("big", lambda *_: None, name="stop", form="arrow")
    engine.deliver("big", stop, name="stop", form="arrow")
    done = engine.run(sources, timeout_s=100, **options)
    assert done.stopped
    assert left[0] <= 0
    return done.admitted


def test_a_rate_source_runs_until_ctrl_c_and_goes_on(open_engine: Any, spark: SparkSession) -> None:
    total = 0
    for _ in range(2):
        with open_engine() as engine:
            total += run_until(engine, {"s": rate(spark)}, 40, processing_time="50 milliseconds")
            assert total == 40 * engine.last_epoch
            assert [ts for ts, _, _ in values(engine.read("s"))] == list(range(total))


def test_the_rate_source_runs_without_a_trigger(open_engine: Any, spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    frame = frame.selectExpr("value AS ts", "'a' AS g", "double(value) AS x")
    with open_engine() as engine:
        admitted = run_until(engine, {"s": frame}, 1)
        assert [ts for ts, _, _ in values(engine.read("s"))] == list(range(admitted))


def test_a_run_ends_when_its_time_is_up(open_engine: Any, spark: SparkSession) -> None:
    with open_engine() as engine:
        done = engine.run({"s": rate(spark)}, processing_time="1 hour", timeout_s=0.5)
        assert done.stopped
        assert done.seconds > 0.5
        assert done.admitted == 40 * engine.last_epoch


@contextmanager
def server(lines: list[str]) -> Iterator[int]:
    """Says these lines to the first that asks, and holds the line."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        over = threading.Event()

        def serve() -> None:
            talk, _ = listener.accept()
            with talk:
                talk.sendall("".join(f"{line}\n" for line in lines).encode())
                over.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_socket_source_is_a_streaming_frame_like_any_other(open_engine: Any, spark: SparkSession) -> None:
    rows = numbered(0, 30)
    with server(["no row", *map(json.dumps, rows)]) as port, open_engine() as engine:
        text = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        frame = text.selectExpr("from_json(value, 'ts LONG, g STRING, x DOUBLE') AS r").select("r.*")
        big = sum(r["x"] >= 2 for r in rows)
        assert run_until(engine, {"s": frame}, big, processing_time="100 milliseconds") == 30
        assert [r.reason for r in engine.rejected("s").collect()] == ["null or NaN in order column 'ts'"]
        assert values(engine.read("s")) == tuples(rows)


# --- several sources in one query ---


def test_several_sources_are_one_query_and_each_batch_one_epoch(open_engine: Any, tmp_path: Path) -> None:
    other = pa.schema([("ts", pa.int64()), ("g", pa.string()), ("top", pa.float64())])
    tops = [{"ts": i, "g": "ab"[i % 4 > 1], "top": i / 2} for i in range(20)]
    write(tmp_path / "s", "1.json", numbered(0, 20))
    write(tmp_path / "t", "1.parquet", tops, other)
    with open_engine(pair()) as engine:
        done = engine.run({"s": tmp_path / "s", "t": tmp_path / "t"}, available_now=True)
        assert (done.epochs, done.admitted) == (1, 40)
        write(tmp_path / "s", "2.json", [*numbered(20, 3), {"ts": "x", "g": "a"}])
        done = engine.run({"t": tmp_path / "t", "s": tmp_path / "s"}, available_now=True)
        assert (done.epochs, done.admitted, done.rejected) == (1, 3, 1)
        engine.finish()
        found = contents(engine._store)
    with open_engine(pair(), "fed") as engine:
        engine.feed_all({"s": numbered(0, 20), "t": tops})
        engine.feed("s", numbered(20, 3))
        engine.finish()
        expected = contents(engine._store)
    found.pop("rejected")
    assert found == expected
    assert found["stream limited"]


# --- stops ---


def test_a_batch_that_spark_runs_again_is_recognised(open_engine: Any, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / "in", f"{n}.json", numbered(10 * n, 10))
        with open_engine() as engine:
            engine.run({"s": tmp_path / "in"}, available_now=True)
            before = contents(engine._store)
    commits = tmp_path / "store" / "_streaming" / "s" / "commits"
    for path in (commits / "2", commits / ".2.crc"):
        path.unlink(missing_ok=True)
    with open_engine() as engine:
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.epochs, done.repeated, done.admitted, engine.last_epoch) == (0, 1, 0, 3)
        assert contents(engine._store) == before
        assert (commits / "2").exists()


def test_a_batch_whose_epoch_failed_is_run_again(
    open_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 10))

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with open_engine() as engine:
        with monkeypatch.context() as patch:
            patch.setattr("clew.archive.journal.write_new", fails)
            with pytest.raises(clew.ClewError, match="the disk is full"):
                engine.run({"s": tmp_path / "in"}, available_now=True)
        assert engine.last_epoch == 0
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.epochs, done.repeated, done.admitted) == (1, 0, 10)


def test_a_lost_streaming_checkpoint_takes_no_batch_for_an_old_one(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 10))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        shutil.rmtree(tmp_path / "store" / "_streaming")
        write(tmp_path / "in", "2.json", numbered(10, 5))
        done = engine.run({"s": tmp_path / "in"}, available_now=True)
        assert (done.repeated, done.admitted, done.late + done.rejected) == (0, 5, 10)
        assert [ts for ts, _, _ in values(engine.read("s"))] == list(range(15))


INTERRUPTED = """
import sys
import clew
from clew.engine.spark_session import local_session
from tests.spark.test_run import network, rate

spark = local_session(cores=2, memory="1g")
with clew.open(sys.argv[1], network(), spark=spark, durable=False) as engine:
    def tell(rows, epoch):
        print("epoch", epoch, flush=True)
    engine.deliver("big", tell, form="arrow")
    done = engine.run({"s": rate(spark)}, processing_time="20 milliseconds")
    print("stopped", done.stopped, done.admitted, engine.last_epoch, flush=True)
spark.stop()
"""


def test_ctrl_c_ends_a_run_between_two_epochs(open_engine: Any, spark: SparkSession, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "store")]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "epoch 1\n"
            assert child.stdout.readline() == "epoch 2\n"
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 0, err[-3000:]
    assert "Traceback" not in DAEMON.sub("", err), err[-3000:]
    word, stopped, admitted, last = out.split()[-4:]
    assert (word, stopped) == ("stopped", "True")
    assert int(admitted) == 40 * int(last)
    with open_engine() as engine:
        assert engine.last_epoch == int(last)
        run_until(engine, {"s": rate(spark)}, 1, processing_time="20 milliseconds")
        assert [ts for ts, _, _ in values(engine.read("s"))] == list(range(40 * engine.last_epoch))
        assert engine.last_epoch > int(last)


# --- what cannot be run ---


def test_a_source_that_disappears_is_named_and_what_was_committed_stays(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 10))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        shutil.rmtree(tmp_path / "in")
        with pytest.raises(SourceFailed, match=r"source 's' reads '.*in', which is not there"):
            engine.run({"s": tmp_path / "in"}, available_now=True)
        write(tmp_path / "in", "2.json", numbered(10, 5))
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5


def test_a_broken_file_fails_the_run_and_not_the_store(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.parquet", numbered(0, 10))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        (tmp_path / "in" / "2.parquet").write_bytes(b"PAR1 and nothing more")
        with pytest.raises(SourceFailed, match=r"2\.parquet"):
            engine.run({"s": tmp_path / "in"}, available_now=True)
        assert engine.last_epoch == 1
        write(tmp_path / "in", "2.parquet", numbered(10, 5))
        assert engine.run({"s": tmp_path / "in"}, available_now=True).admitted == 5


def test_a_source_that_fails_while_it_runs_is_told_in_one_form(
    open_engine: Any, spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "in", "1.parquet", numbered(0, 10))
    frame = spark.readStream.schema("ts long, g string, x double").parquet(str(tmp_path / "in"))
    with open_engine() as engine:
        with pytest.raises(SourceFailed, match="the streaming query has failed\n") as failed:
            engine.run({"s": frame.selectExpr("ts", "g", "1 / (x - 3) AS x")}, available_now=True)
        assert "DIVIDE_BY_ZERO" in str(failed.value)
        assert "what was committed stays; run again to go on from there" in str(failed.value)
        assert failed.value.__cause__ is not None
        assert engine.last_epoch == 0


@pytest.mark.parametrize(
    ("sources", "options", "kind", "text"),
    [
        ({}, {}, BatchError, "run was given no sources\n  sources: s"),
        ({"r": "in"}, {}, UnknownStream, "network 'running' has no source stream 'r'\n  sources: s"),
        ({"s": [1]}, {}, BatchError, "source 's' is list\n  hint: give a streaming DataFrame or a path"),
        ({"s": "nowhere"}, {}, SourceFailed, "source 's' reads 'nowhere', which is not there"),
        ({"s": "notes"}, {}, SourceFailed, "source 's' reads 'notes', which holds no files of a known form\n"
         "  forms: .csv, .tsv, .jsonl, .ndjson, .json, .parquet; text may be packed by gzip (.csv.gz)\n"
         "  hint: give a streaming DataFrame: spark.readStream.format(...).load(...)"),
        ({"s": "a.json"}, {"trigger": "soon"}, BatchError, "run cannot read 'soon' as a trigger\n  hint: "),
        ({"s": "a.json"}, {"trigger": "1 second", "available_now": True}, BatchError,
         "run was given several triggers\n  given: 1 second, available_now"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_by_name(
    open_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Any, options: Any, kind: Any, text: str
) -> None:
    (tmp_path / "a.json").write_text('{"ts": 1}')
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read-me.txt").write_text("ts is in seconds")
    monkeypatch.chdir(tmp_path)
    with open_engine() as engine, pytest.raises(kind) as refused:
        engine.run(sources, **options)
    assert str(refused.value).startswith(text)


def test_a_batch_frame_is_no_source_and_a_frame_lacks_no_column(open_engine: Any, spark: SparkSession) -> None:
    with open_engine() as engine:
        with pytest.raises(BatchError, match=r"source 's' is a batch DataFrame\n  hint: use feed\(...\) for it"):
            engine.run({"s": spark.range(3)}, available_now=True)
        with pytest.raises(BatchError, match=r"batch for stream 's' lacks column 'x'"):
            engine.run({"s": rate(spark).drop("x")}, available_now=True)
        with pytest.raises(BatchError, match=r"batch for stream 's' has column 'ts' twice"):
            engine.run({"s": rate(spark).selectExpr("ts", "ts AS TS", "g", "x")}, available_now=True)


def test_nothing_runs_behind_the_end(open_engine: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", numbered(0, 10))
    with open_engine() as engine:
        engine.run({"s": tmp_path / "in"}, available_now=True)
        engine.finish()
        assert engine.run({"s": tmp_path / "in"}, available_now=True).epochs == 0
        write(tmp_path / "in", "2.json", numbered(10, 10))
        for options in ({"available_now": True}, {"processing_time": "1 second"}):
            with pytest.raises(Finished, match=r"the sources have ended: finish\(\) was called"):
                engine.run({"s": tmp_path / "in"}, **options)
        assert engine.last_epoch == 2
