"""What answers are made of, worked out by hand; each in both modes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clew
from clew.errors import LineageError
from clew.session import Engine

Rows = list[dict[str, Any]]


@pytest.fixture(params=["exact", "interval"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(names: str, *values: tuple[Any, ...]) -> Rows:
    return [dict(zip(names.split(), each, strict=True)) for each in values]


def opened(net: clew.Network, place: Path, mode: Any) -> Engine:
    return clew.open(place / "store", net, durable=False, lane="driver", lineage=mode)


def told(engine: Engine, output: str, *, of: Any = None) -> list[list[str]]:
    """For each tuple of an output all that it is made of; proven on the way."""
    explanation = engine.why(output, of=of)
    assert explanation.verify()
    return [[tid for tids in each.values() for tid in tids] for each in explanation.tids.values()]


def numbers(first: int, last: int, **more: Any) -> Rows:
    return [{"t": t, **more} for t in range(first, last + 1)]


def overheating() -> clew.Network:
    """Figure 1 of Glavic et al., "Efficient Stream Provenance": two sensors, one alarm."""
    net = clew.Network("overheating")
    averages = []
    for name in ("s1", "s2"):
        s = net.stream(name, "ti DOUBLE, l INT, t DOUBLE", order="ti", key="ti")
        three = s.filter("t < 350").window(rows=3, slide=1, name=f"mean_{name}")
        averages.append(three.agg(ti="min(ti)", l="min(l)", t="avg(t)").keep(f"avg_{name}"))
    seven = averages[0].union(averages[1]).keep("seven")
    hot = seven.sort("ti", slack=4).filter("t > 90").keep("nine")
    ten = hot.window(span=1, slide=0.5, on="ti", anchor="tuple").agg(n="count(distinct l)").keep("ten")
    ten.filter("n >= 2").output("alarms")
    return net


def test_the_running_example_of_the_paper(tmp_path: Path, mode: str) -> None:
    first = [(1.0, 1, 399.0), (2.0, 1, 83.8), (3.0, 1, 84.0), (4.0, 1, 86.0), (5.0, 1, 88.0), (6.0, 1, 100.0)]
    with opened(overheating(), tmp_path, mode) as engine:
        engine.feed("s1", rows("ti l t", *first))
        engine.feed("s2", rows("ti l t", *((float(ti), 2, 95.0) for ti in range(1, 6))))
        engine.finish()
        assert engine.why("avg_s1", 1).inputs("s1").table["ti"].to_pylist() == [2.0, 3.0, 4.0]
        assert engine.why("avg_s1", 1).tids == {"avg_s1:1": {"s1": ["s1:2", "s1:3", "s1:4"], "s2": []}}
        assert engine.why("avg_s1", 1).answers.table["t"].to_pylist() == [pytest.approx(84.6)]
        assert told(engine, "nine", of="seven")[0] == ["seven:4"]
        assert told(engine, "ten", of="seven")[:3] == [
            ["seven:4", "seven:5"], ["seven:5", "seven:6"], ["seven:3", "seven:6"],
        ]  # fmt: skip
        assert engine.why("alarms", 1, of=["avg_s1", "s2"]).tids["alarms:1"] == {
            "avg_s1": ["avg_s1:3"], "s2": ["s2:3", "s2:4", "s2:5"],
        }  # fmt: skip
        assert engine.impact("s1", 1).tids["s1:1"] == {name: [] for name in engine.impact("s1", 1).targets}
        assert engine.impact("s1", 2).tids["s1:2"]["alarms"] == []
        assert engine.impact("s1", 5).tids["s1:5"]["alarms"] == ["alarms:1"]


def test_what_a_union_takes_from_elsewhere_is_named_as_outside(tmp_path: Path, mode: str) -> None:
    """The paper leaves it undefined; here the rows of the other input are simply made of nothing that was asked."""
    with opened(overheating(), tmp_path, mode) as engine:
        engine.feed("s1", rows("ti l t", (1.0, 1, 1.0), (2.0, 1, 1.0), (3.0, 1, 1.0)))
        engine.feed("s2", rows("ti l t", (1.0, 2, 1.0), (2.0, 2, 1.0), (3.0, 2, 1.0)))
        explanation = engine.why("seven", of="s1")
        assert explanation.tids == {"seven:1": {"s1": ["s1:1", "s1:2", "s1:3"]}, "seven:2": {"s1": []}}
        assert explanation.outside == ("mean_s2",)
        assert "not asked about" in str(explanation)


def test_a_window_may_slide_by_more_than_its_size(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    s.window(rows=1, slide=2).agg(t="min(t)").window(rows=2, slide=1).agg(n="count(*)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", numbers(1, 4))
        engine.feed("s", numbers(5, 5))
        assert told(engine, "o") == [["s:1", "s:3"], ["s:3", "s:5"]]
        assert engine.impact("s", 2).tids["s:2"]["o"] == []


def test_windows_of_windows(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    pairs = s.window(rows=2, slide=1).agg(t="max(t)", n="count(*)")
    pairs.window(span=3).agg(n="sum(n)", t="max(t)").window(rows=2, slide=1).agg(n="sum(n)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", numbers(1, 9))
        engine.finish()
        expected = [range(1, 6), range(2, 9), range(5, 10)]
        assert told(engine, "o") == [[f"s:{seq}" for seq in each] for each in expected]


def test_a_filter_between_windows_takes_rows_out(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, x INT", order="t", key="t")
    twos = s.window(rows=2, slide=2).agg(t="max(t)", x="sum(x)")
    twos.filter("x > 0").window(rows=2, slide=1).agg(x="sum(x)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", rows("t x", *((t, 0 if t in (3, 4) else 1) for t in range(1, 7))))
        assert told(engine, "o") == [["s:1", "s:2", "s:5", "s:6"]]
        assert engine.impact("s", 3).tids["s:3"]["o"] == []


def test_a_window_whose_ends_lie_in_the_middle_of_another_groups_is_made_of_its_own_group(
    tmp_path: Path, mode: str
) -> None:
    """Run again from the covering range alone, the windows of the other group would be ones that never were."""
    net = clew.Network("net")
    s = net.stream("s", "t LONG, g STRING", order="t", key="t")
    threes = s.window(rows=3, by="g").agg(t="max(t)", n="count(*)", all="collect_list(t)")
    threes.window(rows=1, by="g").agg(n="max(n)").output("o")
    groups = ["a", "b", "b", "a", "b", "b", "a", "a"]
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", rows("t g", *enumerate(groups, 1)))
        engine.feed("s", rows("t g", *enumerate(["b", "a", "b", "a"], 9)))
        assert told(engine, "o") == [
            ["s:2", "s:3", "s:5"], ["s:1", "s:4", "s:7"], ["s:6", "s:9", "s:11"], ["s:8", "s:10", "s:12"],
        ]  # fmt: skip


def test_equal_tuples_are_told_apart_and_stand_in_for_each_other(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, x INT", order="t", key=["t", "x"])
    s.filter("x > 0").map("t").output("o")
    s.window(rows=2).agg(n="count(*)").output("n")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", rows("t x", (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)))
        assert told(engine, "o")[:3] == [["s:1"], ["s:2"], ["s:3"]]
        assert [(c.equal, c.needed) for c in engine.why("o").verify().checked] == [(n, n) for n in range(1, 7)]
        assert [w.outcome for w in engine.why("n").counterfactual().found] == ["gone", "gone", "gone"]
        engine.feed("s", rows("t x", (2, 1)))
        assert [w.outcome for w in engine.why("n", 1).counterfactual().found] == ["gone"]


def test_outer_rows_are_made_of_the_left_row_alone(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    left, right = (net.stream(name, "t LONG, k INT", order="t", key="t") for name in ("l", "r"))
    left.join(right, within=1, by="k", how="left").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed_all({"l": rows("t k", (1, 1), (2, 2)), "r": rows("t k", (1, 1), (2, 1))})
        engine.finish()
        assert told(engine, "o") == [["l:1", "r:1"], ["l:1", "r:2"], ["l:2"]]
        assert "the end of the sources" in str(engine.why("o", 3))
        assert engine.impact("r", None).tids == {"r:1": {"o": ["o:1"]}, "r:2": {"o": ["o:2"]}}


def test_a_resample_with_nothing_in_reach_is_made_of_the_row_that_asks(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    a, b = (net.stream(name, "t LONG, x INT", order="t", key="t") for name in ("a", "b"))
    a.resample(b, within=1).agg(near="count(*)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed_all({"a": rows("t x", (1, 1), (2, 1), (9, 1)), "b": rows("t x", (1, 0), (5, 0), (8, 0))})
        engine.finish()
        assert told(engine, "o") == [["a:1", "a:2", "b:1"], ["b:2"], ["a:3", "b:3"]]
        assert engine.why("o", 2, of="a").tids == {"o:2": {"a": []}}
        assert "a  source" in str(engine.why("o", 2, of="a"))


@pytest.mark.parametrize("options", [{"landmark": 0, "slide": 5}, {"latch": 5}])
def test_windows_that_grow_and_rows_that_come_late(tmp_path: Path, mode: str, options: dict[str, Any]) -> None:
    """A landmark takes a row that its bucket had been closed for into the next one, a latch does not."""
    net = clew.Network("net")
    s = net.stream("s", "t LONG, at LONG", order="t", key="t")
    s.window(**options, on="at").agg(n="count(*)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", rows("t at", (1, 1), (2, 6), (3, 3), (4, 7)))
        engine.feed("s", rows("t at", (5, 12)))
        second = ["s:1", "s:2", "s:3", "s:4"] if "landmark" in options else ["s:1", "s:2", "s:4"]
        assert told(engine, "o") == [["s:1"], second]
        assert engine.impact("s", 3).tids["s:3"]["o"] == (["o:2"] if "landmark" in options else [])


def doubled(table: pa.Table) -> pa.Table:
    return table.select(["t"])


def every_second(state: pa.Table | None, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    seen = 0 if state is None else state["n"][0].as_py()
    picked = [i for i in range(len(table)) if (seen + i) % 2]
    return pa.table({"n": [seen + len(table)]}), table.select(["t"]).take(pa.array(picked, pa.int64())).append_column(
        "_row", pa.array(picked, pa.int64())
    )


def counted(table: pa.Table) -> pa.Table:
    return table.select(["t"]).slice(0, 1)


def applied(function: Any, how: str) -> clew.Network:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    made = s.apply(function, "t LONG", how=how, name="mine", version="1")
    made.window(rows=2, slide=1).agg(n="count(*)").output("o")
    return net


@pytest.mark.parametrize(("function", "how", "expected"), [
    (doubled, "rows", [["s:1", "s:2"], ["s:2", "s:3"], ["s:3", "s:4"]]),
    (every_second, "stateful", [["s:2", "s:4"]]),
    (counted, "opaque", [["s:1", "s:2"], ["s:1", "s:2", "s:3"], ["s:1", "s:2", "s:3", "s:4"]]),
])  # fmt: skip
def test_user_code_is_traced_as_it_declares_itself(
    tmp_path: Path, function: Any, how: str, expected: list[list[str]]
) -> None:
    with opened(applied(function, how), tmp_path, "exact") as engine:
        for t in range(1, 5):
            engine.feed("s", numbers(t, t))
        assert [list(dict.fromkeys(each)) for each in told(engine, "o")] == expected


@pytest.mark.parametrize(("function", "how"), [(every_second, "stateful"), (counted, "opaque")])
def test_user_code_that_remembers_is_refused_in_interval_mode(tmp_path: Path, function: Any, how: str) -> None:
    with pytest.raises(LineageError, match="mine") as caught:
        opened(applied(function, how), tmp_path, "interval")
    assert "lineage={'*': 'interval', 'mine': 'exact', 'window': 'exact'}" in str(caught.value)
    assert not (tmp_path / "store").exists()
    opened(applied(function, how), tmp_path, {"*": "interval", "mine": "exact", "window": "exact"}).close()


def test_what_advance_and_the_end_complete_says_so(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    s.window(span=5).agg(n="count(*)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", numbers(1, 2))
        engine.advance("s", 7)
        engine.feed("s", numbers(8, 8))
        engine.finish()
        assert told(engine, "o") == [["s:1", "s:2"], ["s:3"]]
        assert "completed by progress without a tuple" in str(engine.why("o", 1))
        assert "completed by the end of the sources" in str(engine.why("o", 2))


def test_null_and_nan_groups_are_groups(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, g DOUBLE", order="t", key="t")
    s.window(rows=2, by="g").agg(t="max(t)", n="count(*)").window(rows=1, by="g").agg(n="max(n)").output("o")
    values = [None, math.nan, 0.0, None, -0.0, math.nan]
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", rows("t g", *enumerate(values, 1)))
        assert told(engine, "o") == [["s:1", "s:4"], ["s:3", "s:5"], ["s:2", "s:6"]]


def test_axes_of_floats(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t DOUBLE", order="t", key="t")
    tenths = s.map(t="t", x="t").window(span=0.3, slide=0.1).agg(t="min(t)", n="count(*)").keep("k")
    tenths.window(span=0.2).agg(n="sum(n)").output("o")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", [{"t": t / 10} for t in range(-3, 8)])
        engine.finish()
        found = told(engine, "k")
        table = engine._store.read_table("k").to_pylist()
        assert [len(each) for each in found] == [row["n"] for row in table]
        assert [len(engine.why("o", i + 1, of="k").tids[f"o:{i + 1}"]["k"]) > 0 for i in range(len(told(engine, "o")))]


def test_an_output_that_is_a_source_with_rows_left_out(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    s.filter("t > 2").output("o")
    s.output("same")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", numbers(1, 4))
        assert told(engine, "o") == [["s:3"], ["s:4"]]
        assert told(engine, "same") == [["s:1"], ["s:2"], ["s:3"], ["s:4"]]
        assert told(engine, "s") == [["s:1"], ["s:2"], ["s:3"], ["s:4"]]
        assert engine.impact("s", 3).tids == {"s:3": {"o": ["o:1"], "same": ["same:3"]}}
        assert [w.outcome for w in engine.why("o").counterfactual().found] == ["gone", "gone"]
        assert [w.outcome for w in engine.why("s", 1).counterfactual().found] == ["gone"]


def test_one_box_with_two_outputs_that_feeds_another(tmp_path: Path, mode: str) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    twos = s.window(rows=2).agg(t="max(t)").output("a").output("b")
    twos.window(rows=2, slide=1).agg(n="count(*)").output("c")
    with opened(net, tmp_path, mode) as engine:
        engine.feed("s", numbers(1, 6))
        assert told(engine, "a") == told(engine, "b") == [["s:1", "s:2"], ["s:3", "s:4"], ["s:5", "s:6"]]
        assert told(engine, "c", of="b") == [["b:1", "b:2"], ["b:2", "b:3"]]
        assert told(engine, "c", of="a") == [["a:1", "a:2"], ["a:2", "a:3"]]
        assert told(engine, "a", of="b") == [["b:1"], ["b:2"], ["b:3"]]
        assert engine.impact("a", 2).tids == {"a:2": {"a": ["a:2"], "b": ["b:2"], "c": ["c:1", "c:2"]}}


def test_a_kept_stream_in_the_middle_is_read_not_made_again(tmp_path: Path) -> None:
    net = clew.Network("net")
    s = net.stream("s", "t LONG", order="t", key="t")
    twos = s.window(rows=2).agg(t="max(t)").keep("twos")
    twos.window(span=4).agg(n="count(*)").output("o")
    with opened(net, tmp_path, "interval") as engine:
        engine.feed("s", numbers(1, 10))
        explanation = engine.why("o", 2)
        assert explanation.tids == {"o:2": {"s": ["s:3", "s:4", "s:5", "s:6"]}}
        assert explanation.replayed == {}


def test_impact_tells_no_rows_that_a_filter_dropped_though_it_cannot_run_it_again(tmp_path: Path) -> None:
    """It took all for passed, and looked for the numbers of tuples that were never there."""
    net = clew.Network("net")
    s = net.stream("s", "t LONG, at LONG", order="t", key="t")
    grown = s.window(landmark=0, slide=5, on="at").agg(n="count(*)", first="first(at)")
    grown.filter("n > 1", name="more").filter("n > 2", name="most").output("o")
    with opened(net, tmp_path, "exact") as engine:
        engine.feed("s", rows("t at", (1, 1), (2, 6), (3, 3), (4, 11), (5, 16)))
        impact = engine.impact("s", 1)
        assert impact.tids == {"s:1": {"o": ["o:1", "o:2"]}}
        assert impact.at_most == {"more"}
        assert (impact.boxes["more"], impact.boxes["most"]) == (3, 2)
        assert "more at most 3, most 2" in str(impact)
        assert impact.verify()
