"""A reader and expressions that only Spark evaluates: the store knows their types, Spark makes their values again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import clew
from clew.engine.typing import SparkTyper
from clew.explain.reader import Reader, _plan


def no_spark(*_: Any) -> Any:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Path:
    net = clew.Network("sounds")
    s = net.stream("s", "t LONG, word STRING", order="t", key="t")
    sounds = s.map("t", sound="soundex(word)", name="sounds").output("heard")
    sounds.window(rows=2, by="sound", name="pairs").agg(t="max(t)", n="count(*)").output("pairs")
    with clew.open(tmp_path / "s", net, spark=spark, durable=False) as engine:
        words = ["Robert", "Rupert", "Tymczak", "Robin", "Robert"]
        engine.feed("s", [{"t": t, "word": word} for t, word in enumerate(words)])
        assert engine._store.state.network is not None
        assert engine._store.state.network["typed"] == {"sounds": {"t": "bigint", "soundex(word)": "string"}}
    return tmp_path / "s"


def test_what_is_stored_is_explained_without_a_session(store: Path) -> None:
    with Reader(store, session=no_spark) as reader:
        assert reader.why("heard", 3).tids == {"heard:3": {"s": ["s:3"]}}
        assert "sound T522" in str(reader.why("heard", 3))


def test_values_that_spark_must_make_again_start_one(store: Path, spark: SparkSession) -> None:
    zones: list[str] = []

    def session(zone: str) -> SparkSession:
        zones.append(zone)
        return spark

    with Reader(store, session=session) as reader:
        assert reader.why("pairs", 1).tids == {"pairs:1": {"s": ["s:1", "s:2"]}}
        assert "sound R163" in str(reader.why("pairs", 1))
        assert reader.why("pairs", 1).verify()
        assert reader.why("pairs", 1).frame().count() == 2
    assert zones == ["UTC"]


def test_a_store_that_knows_no_types_has_spark_find_them(store: Path, spark: SparkSession) -> None:
    with Reader(store, session=no_spark) as reader:
        assert reader._store.state.network is not None
        del reader._store.state.network["typed"]  # as an earlier clew wrote it
        plan = _plan(reader._store, None, SparkTyper(lambda: spark), "UTC")
        assert plan.steps.keys() == reader._plan.steps.keys()
        assert plan.steps["sounds"].schema == reader._plan.steps["sounds"].schema
