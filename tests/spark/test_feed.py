"""The program of the first page, fed in every form; and what a Spark DataFrame of another shape gives."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import clew
from clew.errors import BatchError, StoreSettings
from clew.testing.laws import contents

SCHEMA = "ts LONG, sensor INT, celsius DOUBLE"


def overheating() -> clew.Network:
    net = clew.Network("overheating")
    readings = net.stream("readings", SCHEMA, order="ts", key=["ts", "sensor"])
    smooth = (readings.filter("celsius < 350")
                      .window(rows=3, slide=1, by="sensor")
                      .agg(ts="min(ts)", celsius="avg(celsius)"))  # fmt: skip
    hot = smooth.sort("ts", slack=10).filter("celsius > 90")
    (hot.window(span=2, slide=1, on="ts", anchor="tuple")
        .agg(ts="min(ts)", sensors="count(distinct sensor)")
        .filter("sensors >= 3")
        .output("alarms"))  # fmt: skip
    return net


def readings() -> list[dict[str, Any]]:
    """Three sensors, hot from 10 to 18, an outlier among them."""
    rows = [
        {"ts": ts, "sensor": s, "celsius": 95.0 if 10 <= ts < 19 else 20.0 + s} for ts in range(30) for s in (1, 2, 3)
    ]
    rows[36]["celsius"] = 399.0
    return rows


ALARMS = [(10, 3), (12, 3), (14, 3), (16, 3)]
"""Three readings average above 90 if they begin at 10 to 16; for sensor 1, whose reading at 12 is left out, at 10, 11,
and 13 to 16. A window holds what is up to 2 behind its head; the next head is the first more than 1 behind."""


def arrow() -> pa.Table:
    return pa.Table.from_pylist(
        readings(), pa.schema([("ts", pa.int64()), ("sensor", pa.int32()), ("celsius", pa.float64())])
    )


def as_dicts(_: SparkSession, __: Path) -> Any:
    return readings()


def as_arrow(_: SparkSession, __: Path) -> Any:
    return arrow()


def as_pandas(_: SparkSession, __: Path) -> Any:
    return pd.DataFrame(readings())


def as_spark(spark: SparkSession, _: Path) -> DataFrame:
    return spark.createDataFrame(arrow()).repartition(3)


def as_wider_spark(spark: SparkSession, _: Path) -> DataFrame:
    """Columns in another order, case and type, and one more."""
    frame = spark.createDataFrame(arrow())
    return frame.select(f.col("celsius").alias("Celsius"), f.col("sensor").cast("long"), f.lit("x").alias("more"), "ts")


def as_streaming(spark: SparkSession, folder: Path) -> DataFrame:
    (folder / "in").mkdir()
    pq.write_table(arrow(), folder / "in" / "1.parquet")
    return spark.readStream.schema("ts long, sensor int, celsius double").parquet(str(folder / "in"))


def alarms(engine: clew.Engine) -> list[tuple[int, int]]:
    return [(row.ts, row.sensors) for row in engine.read("alarms").collect()]


@pytest.mark.parametrize(
    "form", [as_dicts, as_arrow, as_pandas, as_spark, as_wider_spark, as_streaming], ids=lambda f: f.__name__
)
def test_the_program_of_the_first_page(
    spark: SparkSession, tmp_path: Path, form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = form(spark, tmp_path)
    with clew.open(tmp_path / "store", overheating(), spark=spark) as engine:
        done = engine.feed("readings", rows)
        assert (done.number, done.admitted, done.rejected, done.late) == (1, {"readings": 90}, 0, 0)
        engine.read("alarms").show()
        assert alarms(engine) == ALARMS
        assert engine.read("alarms").columns == ["ts", "sensors"]
        assert engine.read("readings").count() == 90
    assert "|sensors|" in capsys.readouterr().out


def test_every_form_fills_a_store_alike(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for form in (as_dicts, as_spark, as_streaming):
        with clew.open(tmp_path / form.__name__, overheating(), spark=spark) as engine:
            engine.feed("readings", form(spark, tmp_path))
            found.append(contents(engine._store))
    assert found[0] == found[1] == found[2]


def test_a_streaming_frame_is_fed_from_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    frame = as_streaming(spark, tmp_path)
    with clew.open(tmp_path / "store", overheating(), spark=spark) as engine:
        assert engine.feed("readings", frame).admitted == {"readings": 90}
        again = engine.feed("readings", frame)
        assert (again.repeated, again.admitted, engine.last_epoch) == (True, {"readings": 0}, 1)
        with pytest.raises(BatchError, match="a streaming DataFrame was given an id\n  id: a\n  hint: leave it out"):
            engine.feed("readings", frame, id="a")


# --- frames that do not fit ---


def small(**options: Any) -> clew.Network:
    net = clew.Network("small")
    net.stream("s", "ts LONG, id INT, g STRING, x DOUBLE", order="ts", key=["ts", "id"], **options).filter(
        "x > 0"
    ).output("o")
    return net


def test_values_of_a_frame_that_do_not_fit_reject_their_row(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT * FROM VALUES (1L, 1L, 'a', 1.0D), (2L, 99999999999L, 'b', 2.0D), (null, 3L, 'c', 3.0D), "
                      "(4L, null, 'd', 4.0D), (5L, 5L, null, double('NaN')) AS t(ts, id, g, x)")  # fmt: skip
    with clew.open(tmp_path / "s", small(), spark=spark) as engine:
        done = engine.feed("s", frame)
        assert (done.admitted, done.rejected) == ({"s": 2}, 3)
        assert {(r.reason, json.loads(r.row)["g"]) for r in engine.rejected("s").collect()} == {
            ("column 'id' does not fit its type", "b"),
            ("null or NaN in order column 'ts'", "c"),
            ("null or NaN in key column 'id'", "d"),
        }
        (misfit,) = (json.loads(r.row) for r in engine.rejected("s").collect() if "fit" in r.reason)
        assert misfit == {"ts": 2, "id": 99999999999, "g": "b", "x": 2.0}


def test_no_fraction_is_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's casts do so without a word, in an order column too."""
    net = clew.Network("numbers")
    net.stream("s", "ts LONG, d DECIMAL(5, 1)", order="ts", key="ts").output("o")
    frame = spark.sql("SELECT * FROM VALUES (1D, 2.5D), (1.9D, 3.5D), (4D, 4.25D), (5D, null) AS t(ts, d)")
    with clew.open(tmp_path / "s", net, spark=spark) as engine:
        assert engine.feed("s", frame).admitted == {"s": 2}
        assert [(r.ts, str(r.d)) for r in engine.read("s").collect()] == [(1, "2.5"), (5, "None")]
        assert {(json.loads(r.row)["ts"], json.loads(r.row)["d"]) for r in engine.rejected("s").collect()} == {
            (1.9, "3.5"), (4.0, 4.25),
        }  # fmt: skip


def test_a_misfit_beside_a_time_that_python_cannot_hold_is_kept_whole(spark: SparkSession, tmp_path: Path) -> None:
    """The whole batch failed."""
    net = clew.Network("times")
    net.stream("s", "ts LONG, id INT, at TIMESTAMP, d DATE", order="ts", key="ts").output("o")
    frame = spark.sql("SELECT 1D AS ts, 1e12D AS id, timestamp_seconds(400000000000) AS at, "
                      "DATE'9999-12-31' + 366 AS d UNION ALL SELECT 2D, 2D, null, null")  # fmt: skip
    with clew.open(tmp_path / "s", net, spark=spark) as engine:
        assert engine.feed("s", frame).admitted == {"s": 1}
        (row,) = engine.rejected("s").collect()
        kept = json.loads(row.row)
        assert (row.reason, kept["id"], kept["d"]) == ("column 'id' does not fit its type", 1e12, "10000-12-31")
        assert kept["at"].startswith("14645-06-30T15:06:40")


def test_a_frame_with_a_column_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1L AS ts, 2L AS TS, 1 AS id, 'a' AS g, 1.0D AS x")
    said = r"batch for stream 's' has column 'ts' twice\n  hint: names are found in any case"
    with clew.open(tmp_path / "s", small(), spark=spark) as engine, pytest.raises(BatchError, match=said):
        engine.feed("s", frame)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("ts, id, g", r"batch for stream 's' lacks column 'x'\n  it has: ts, id, g\n  the stream has: ts, id, g, x"),
        ("ts, id, g, 'warm' AS x", r"has column 'x' as STRING, not DOUBLE\n  hint: cast it before feeding"),
        ("ts, id, array(1) AS g, x", r"has column 'g' as ARRAY<INT>, not STRING"),
        ("ts, true AS id, g, x", r"has column 'id' as BOOLEAN, not INT"),
    ],
)
def test_a_frame_of_another_schema_is_refused_whole(
    spark: SparkSession, tmp_path: Path, columns: str, said: str
) -> None:
    frame = spark.sql(f"SELECT {columns} FROM VALUES (1L, 1, 'a', 1.0D) AS t(ts, id, g, x)")
    with clew.open(tmp_path / "s", small(), spark=spark) as engine:
        with pytest.raises(BatchError, match=said):
            engine.feed("s", frame)
        assert engine.last_epoch == 0


def test_a_frame_that_fails_while_it_runs_costs_one_try(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT id AS ts, 1 AS id, 'a' AS g, 1 / (id - 3) AS x FROM range(6)")
    with clew.open(tmp_path / "s", small(), spark=spark) as engine:
        with pytest.raises(BatchError, match=r"batch for stream 's' failed in Spark\n  \[DIVIDE_BY_ZERO\] Division by"):
            engine.feed("s", frame)
        assert engine.last_epoch == 0
        assert engine.feed("s", frame.where("ts < 3")).admitted == {"s": 3}


def test_an_empty_frame_is_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", small(), spark=spark) as engine:
        assert engine.feed("s", spark.sql("SELECT 1L AS ts, 1 AS id, '' AS g, 1.0D AS x WHERE false")).number == 1
        assert engine.read("o").collect() == []
        assert engine.read("o").dtypes == [("ts", "bigint"), ("id", "int"), ("g", "string"), ("x", "double")]


def test_every_type_comes_back_as_it_was_fed(spark: SparkSession, tmp_path: Path) -> None:
    net = clew.Network("types")
    schema = ("ts TIMESTAMP, n TIMESTAMP_NTZ, d DATE, c DECIMAL(10, 2), b BOOLEAN, t TINYINT, s SMALLINT, f FLOAT, "
              "raw BINARY, l ARRAY<STRING>, g STRING")  # fmt: skip
    net.stream("s", schema, order="ts", key=["ts", "g"]).filter("true").output("o")
    when = dt.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=dt.UTC)
    row = {"ts": when, "n": when.replace(tzinfo=None), "d": when.date(), "c": Decimal("-1.50"), "b": True, "t": -128,
           "s": 32767, "f": 0.5, "raw": b"\x00\xff", "l": ["", None, "x"], "g": ""}  # fmt: skip
    nulls = {**dict.fromkeys(row), "ts": when, "g": "nulls"}
    with clew.open(tmp_path / "s", net, spark=spark) as engine:
        engine.feed("s", [row, nulls])
        given = engine.read("s")
        assert given.toArrow().to_pylist() == [row, nulls]
        assert engine.read("o").toArrow().to_pylist() == [row, nulls]
        later = given.withColumn("ts", f.expr("ts + INTERVAL 1 HOUR"))
        assert engine.feed("s", later).admitted == {"s": 2}
        hour = dt.timedelta(hours=1)
        assert engine.read("o").toArrow().to_pylist()[2:] == [{**row, "ts": when + hour}, {**nulls, "ts": when + hour}]


# --- settings ---


def test_a_session_with_other_settings_is_refused_before_there_is_a_store(spark: SparkSession, tmp_path: Path) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(
        StoreSettings, match=r"the Spark session has spark.sql.ansi.enabled=false, the store needs true"
    ):
        clew.open(tmp_path / "s", small(), spark=other)
    assert not (tmp_path / "s").exists()


def test_a_store_is_opened_under_its_own_time_zone_only(spark: SparkSession, tmp_path: Path) -> None:
    clew.open(tmp_path / "s", small(), spark=spark).close()
    paris = spark.newSession()
    paris.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    with pytest.raises(StoreSettings, match=r"has spark.sql.session.timeZone=Europe/Paris, the store needs UTC"):
        clew.open(tmp_path / "s", small(), spark=paris)
    with pytest.raises(StoreSettings) as refused:
        clew.open(tmp_path / "s", small(), spark=paris, time_zone="Europe/Paris")
    assert "time_zone" in str(refused.value)
    assert "UTC" in str(refused.value)
    assert "Europe/Paris" in str(refused.value)
    clew.open(tmp_path / "s", small(), spark=spark).close()


def test_the_time_zone_of_a_store_decides_what_its_boxes_say(spark: SparkSession, tmp_path: Path) -> None:
    net = clew.Network("hours")
    stream = net.stream("s", "ts TIMESTAMP, id INT", order="ts", key=["ts", "id"])
    stream.map("ts", "id", h="hour(ts)", d="cast(ts AS DATE)").output("o")
    rows = [{"ts": "2024-06-30T23:30:00+00:00", "id": 1}]
    for zone, hour, day in (("UTC", 23, 30), ("Asia/Tokyo", 8, 1)):
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        with clew.open(tmp_path / zone.replace("/", "-"), net, spark=session, time_zone=zone) as engine:
            engine.feed("s", rows)
            (row,) = engine.read("o").collect()
            assert (row.h, row.d.day) == (hour, day)


def test_times_of_a_frame_of_another_session_are_taken_in_the_store_s_zone(spark: SparkSession, tmp_path: Path) -> None:
    """They were read in the zone of the session that made the frame."""
    net = clew.Network("times")
    net.stream("s", "t TIMESTAMP, n TIMESTAMP_NTZ", order="t", key="t").output("o")
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = other.sql("SELECT TIMESTAMP_NTZ'2024-06-01 12:00:00' AS t, TIMESTAMP'2024-06-01 12:00:00 UTC' AS n")
    for zone, hour in (("UTC", 12), ("Asia/Tokyo", 3), ("+02:00", 10)):
        with clew.open(tmp_path / str(hour), net, time_zone=zone) as engine:
            engine.feed("s", frame)
            (row,) = engine.read("o").toArrow().to_pylist()
            assert row["t"].astimezone(dt.UTC) == dt.datetime(2024, 6, 1, hour, tzinfo=dt.UTC)
            assert row["n"] == dt.datetime(2024, 6, 1, 24 - hour)


def test_rows_that_waited_are_put_in_front_of_what_stays_in_files(spark: SparkSession, tmp_path: Path) -> None:
    net = clew.Network("patient")
    net.stream("s", "ts LONG, id INT, g STRING", order="ts", key=["ts", "id"], lateness=15).filter("id > 0").output("o")
    found = []
    for lane in ("spark", "driver"):
        with clew.open(tmp_path / lane, net, spark=spark, lane=lane, durable=False) as engine:
            for low, high in ((0, 100), (90, 300), (300, 500), (460, 700)):
                rows = spark.range(low, high, 1, 3).selectExpr("id AS ts", "int(id % 7) AS id", "string(id % 5) AS g")
                engine.feed("s", rows if lane == "spark" else rows.toArrow())
            rejected = {(r.reason, r.row) for r in engine.rejected("s").collect()}
            found.append((contents(engine._store), rejected, engine.late("s").count()))
    assert found[0] == found[1]
    assert (len(found[0][1]), found[0][2]) == (26, 24)
