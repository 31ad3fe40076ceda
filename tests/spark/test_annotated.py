"""Annotated streams as Spark reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.unit.test_annotated_streams import alarms, figure_1, some

import clew
from clew.engine import annotated
from clew.engine.annotations import Annotate


@pytest.mark.parametrize("encoding", ["adaptive", "single"])
def test_each_tuple_has_the_seqs_that_it_is_made_of(
    spark: SparkSession, tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(tmp_path / "s", alarms(), spark=spark, durable=False) as engine:
        engine.feed("readings", some(0, 20))
    annotate = Annotate({"alarms": ["readings"]}, encoding)  # type: ignore[arg-type]
    monkeypatch.setattr(annotated, "DECODED_ROWS", 5)
    with clew.open(tmp_path / "s", alarms(), spark=spark, durable=False, annotate=annotate) as engine:
        for first in range(20, 120, 50):
            engine.feed("readings", some(first, 50))
        found = engine.annotated("alarms")
        assert found.columns == ["tid", "ts", "x", "provenance"]
        rows = found.collect()
        why = {tid: [int(t.split(":")[1]) for t in of["readings"]] for tid, of in engine.why("alarms").tids.items()}
        assert [row.tid for row in rows] == list(why)
        assert [row.provenance.readings for row in rows[:6]] == [None] * 6
        assert [row.provenance.readings for row in rows[6:]] == list(why.values())[6:]
        assert [row.x for row in rows] == [row.x for row in engine.read("alarms").collect()]


def test_rows_of_a_box_without_tids_are_named_by_place_as_why_names_them(spark: SparkSession, tmp_path: Path) -> None:
    asked = {"eight": ["five", "S2"], "out": ["eight"]}
    with clew.open(tmp_path / "s", figure_1(), spark=spark, durable=False, annotate=asked) as engine:
        empty = engine.annotated("eight")
        assert empty.collect() == []
        engine.feed("S2", [{"t": t, "l": 1 + t * 7 % 10} for t in range(1, 30)])
        found = engine.annotated("eight")
        assert found.schema.simpleString() == empty.schema.simpleString()
        rows = found.collect()
        why = engine.why("eight", of=["five", "S2"]).tids
        assert len(rows) == len(why) > 10
        for row in rows:
            assert sorted(row.provenance.five) == sorted(why[row.tid]["five"])
            assert row.provenance.S2 == []  # what is in I is made of itself alone
        first = engine.annotated("out").first()
        assert first is not None
        assert first.provenance.eight == [1]
        assert engine.annotation("out", 2) == {"eight": ["eight:2"]}
