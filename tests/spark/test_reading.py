"""What a store gives to read once its network has changed, or its rows have aged out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.unit.test_network_changes import nulls, windows

import clew
from clew.errors import UnknownStream


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
