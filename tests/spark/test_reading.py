"""What a store gives to read once its network has changed, or its rows have aged out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.unit.test_network_changes import nulls, windows

import clew
from clew.errors import TooOld, UnknownStream


def test_late_tuples_stay_with_their_box(spark: SparkSession, tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", windows("w"), spark=spark, durable=False) as engine:
        assert engine.late("w").columns == ["at", "a", "_reason"]
        engine.feed("s", nulls(0, 2))
    with clew.open(tmp_path / "s", windows("v"), spark=spark, durable=False) as engine:
        assert [row.a for row in engine.late("v").collect()] == [0.0, 0.5]
    with clew.open(tmp_path / "s", windows("w", "b", "other"), spark=spark, durable=False) as engine:
        engine.feed("s", nulls(2, 1))
        assert [row.b for row in engine.late("w").collect()][-1] == "b2"
        assert engine.late("w").columns == ["at", "b", "_reason"]
    net = clew.Network("changing")
    net.stream("s", "t LONG, at LONG, a DOUBLE, b STRING", order="t", key="t").output("all")
    with clew.open(tmp_path / "s", net, spark=spark, durable=False) as engine:
        assert engine.late("w").count() >= 3
        with pytest.raises(UnknownStream, match="has no stream or box 'u'"):
            engine.late("u")


def test_an_epoch_whose_tuples_have_aged_out_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    net = clew.Network("short")
    net.stream("s", "t LONG", order="t", key="t", retention=5).output("all")
    with clew.open(tmp_path / "s", net, spark=spark, durable=False) as engine:
        for t in range(0, 40, 10):
            engine.feed("s", [{"t": t}])
        gone = engine._store.state.streams["s"].gone
        assert gone is not None
        assert [row.t for row in engine.read("s", as_of=gone.epoch).collect()][-1] == 10 * (gone.epoch - 1)
        with pytest.raises(TooOld, match="stream 's' cannot be read as of epoch 1: tuples that it had then have aged"):
            engine.read("s", as_of=1)
        assert engine.read("all", as_of=1).count() == 1
