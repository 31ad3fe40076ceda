"""Explanations as DataFrames: an output tuple beside each tuple that it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import clew
from clew.session import Engine


@pytest.fixture
def engine(tmp_path: Path, spark: SparkSession) -> Iterator[Engine]:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, x INT", order="t", key="t")
    never = net.stream("never", "t LONG", order="t", key="t")
    s.map(tid="t", s_t="x", input="t", S_TID="x").output("odd")
    pairs = s.window(rows=2, name="pairs").agg(t="max(t)").output("a").output("b")
    pairs.union(never).filter("t > 2").output("o")
    with clew.open(tmp_path / "s", net, durable=False, lane="driver", spark=spark) as opened:
        opened.feed("s", [{"t": t, "x": -t} for t in range(1, 5)])
        yield opened


def told(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_frame_names_the_stream_in_front_of_each_column(engine: Engine) -> None:
    frame = engine.why("o", of="s").frame()
    assert frame.columns == ["tid", "t", "s_tid", "s_t", "s_x"]
    assert told(frame) == [("o:1", 4, "s:3", 3, -3), ("o:1", 4, "s:4", 4, -4)]
    assert told(engine.why("o", of="b").frame()) == [("o:1", 4, "b:2", 4)]


def test_of_several_streams_it_says_which_and_one_without_tuples_has_columns(engine: Engine) -> None:
    frame = engine.why("o").frame()
    assert frame.columns == ["input", "tid", "t", "s_tid", "s_t", "s_x", "never_tid", "never_t"]
    assert told(frame)[0] == ("s", "o:1", 4, "s:3", 3, -3, None, None)
    assert told(engine.why("o").frame("never")) == []


def test_a_name_that_the_output_has_already_gets_a_sign_behind_it(engine: Engine) -> None:
    frame = engine.why("odd", 2, of="s").frame()
    assert frame.columns == ["tid_", "tid", "s_t", "input", "S_TID", "s_tid_", "s_t_", "s_x"]
    assert told(frame) == [("odd:2", 2, -2, 2, -2, "s:2", 2, -2)]
    assert engine.why("odd", 2).frame().columns[:2] == ["input_", "tid_"]


def test_impact_is_the_part_of_the_outputs_frame_that_was_asked_about(engine: Engine) -> None:
    assert told(engine.impact("s", 3, on="a").frame()) == [("a:2", 4, "s:3", 3, -3)]
    assert told(engine.impact("s", 3, on="odd").frame()) == [("odd:3", 3, -3, 3, -3, "s:3", 3, -3)]
    assert told(engine.impact("s", [], on="a").frame()) == []


def test_a_filter_on_input_columns_reaches_the_scan_of_the_archive(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = engine.why("o", of="s").frame().where("s_x > -4")
    frame.explain("formatted")
    scans = [line for line in capsys.readouterr().out.splitlines() if "PushedFilters" in line]
    assert any("GreaterThan(x,-4)" in line and "GreaterThanOrEqual(_stamp" in line for line in scans), scans
    assert told(frame) == [("o:1", 4, "s:3", 3, -3)]
