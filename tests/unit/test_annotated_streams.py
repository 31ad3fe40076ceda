"""Which boxes take part in P(O, I), what may be asked for, and what a restart, a cut and an encoding leave as it is."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

import clew
from clew.engine import annotations, runtime
from clew.engine.annotations import Annotate
from clew.engine.instrument import Instrumented
from clew.engine.plan import Plan, build_plan
from clew.errors import LineageError, TooOld, Untraced
from clew.model.encodings import Encoding
from clew.session import Engine


def figure_1() -> clew.Network:
    """The paper's running example, its streams 5 and 8 by name."""
    net = clew.Network("fig1")
    schema = "t LONG, l INT"
    first = net.stream("S1", schema, order="t", key="t").filter("l > 0", name="left").window(rows=2, name="counted")
    one = first.agg(t="max(t)", l="max(l)")
    two = net.stream("S2", schema, order="t", key="t").filter("l > 0", name="right")
    five = one.union(two, name="five")
    eight = five.sort("l", slack=3, name="sorted").filter("l < 90", name="chosen")
    eight = eight.window(rows=2, slide=1, name="eight").agg(t="max(t)", l="count(*)")
    eight.keep("eight")
    eight.filter("l > 0", name="last").output("out")
    return net


def roles(plan: Plan, output: str, *of: str) -> dict[str, str]:
    steps = {**plan.ends, **plan.stored}
    return Instrumented(plan, {n: steps[n] for n in of}, {output: plan.stored[output]}).roles


def planned(net: clew.Network) -> Plan:
    return build_plan(net, lambda *_: [])


def opened(folder: Path, net: clew.Network, annotate: object = None, **options: Any) -> Engine:
    return clew.open(folder / "store", net, durable=False, lane="driver", annotate=annotate, **options)


def alarms(rows: int = 3, slide: int = 1, *, more: bool = False) -> clew.Network:
    net = clew.Network("small")
    readings = net.stream("readings", "ts LONG, x DOUBLE", order="ts", key="ts", retention=1_000)
    readings.filter("x > 0.5", name="hot").window(rows=rows, slide=slide).agg(ts="max(ts)", x="avg(x)").output("alarms")
    if more:
        readings.window(rows=4, slide=2).agg(ts="max(ts)").output("all")
    return net


def some(first: int, count: int) -> pa.Table:
    ts = np.arange(first, first + count)
    return pa.table({"ts": ts, "x": (ts * 7 % 10) / 10})


def all_of(engine: Engine, output: str = "alarms") -> list[dict[str, list[str]] | None]:
    folder = engine._store.state.streams.get(output)
    return [engine.annotation(output, n) for n in range(1, (folder.seq if folder else 0) + 1)]


# --- Algorithm 1 ---


def test_boxes_of_the_whole_network_are_annotated_as_in_figure_8a() -> None:
    found = roles(planned(figure_1()), "out", "S1", "S2")
    assert {b: r for b, r in found.items() if r == "PG"} == {"left": "PG", "right": "PG"}
    assert set(found.values()) == {"PG", "PP"}
    assert {"counted", "five", "sorted", "chosen", "eight", "last"} <= set(found)


def test_boxes_of_a_part_of_the_network_are_annotated_as_in_figure_8b() -> None:
    found = roles(planned(figure_1()), "eight", "five")
    assert found == {"sorted": "PG", "chosen": "PP", "eight": "PP", "last": "PD"}


def test_where_a_box_reads_a_stream_of_i_and_another_the_stream_is_wrapped() -> None:
    found = roles(planned(figure_1()), "out", "S1", "right")
    assert found == {
        "left": "PG", "counted": "PP", "right:wrapped": "PG", "five": "PP", "sorted": "PP", "chosen": "PP",
        "eight": "PP", "last": "PP",
    }  # fmt: skip


def test_a_box_that_reads_streams_of_i_alone_generates() -> None:
    found = roles(planned(figure_1()), "out", "counted", "right")
    assert found["five"] == "PG"
    assert not any(name.endswith(":wrapped") for name in found)
    assert "left" not in found


def test_windows_over_a_sorted_stream_are_annotated_as_in_example_2(tmp_path: Path) -> None:
    """Provenance {5:4, 5:5}, {5:5, 5:6} and {5:3, 5:6}, for rows that the sort lets out in that order."""
    with opened(tmp_path, figure_1(), {"eight": ["five"]}) as engine:
        ell = [95, 96, 9, 1, 2, 3, 99, 99, 99]
        engine.feed("S2", [{"t": t, "l": value} for t, value in enumerate(ell, 1)])
        found = [each["five"] for each in all_of(engine, "eight") if each]
        why = engine.why("eight", of="five").tids
        assert found[:3] == [["five@4.0", "five@5.0"], ["five@5.0", "five@6.0"], ["five@3.0", "five@6.0"]]
        assert [sorted(of["five"]) for of in why.values()] == [sorted(f) for f in found]


# --- what stays as it is ---


@pytest.mark.parametrize("encoding", get_args(Encoding))
@pytest.mark.parametrize("cuts", [(), (50,), (1, 2, 3, 30, 31, 99)])
def test_no_encoding_and_no_cut_changes_an_annotation(
    tmp_path: Path, encoding: Encoding, cuts: tuple[int, ...]
) -> None:
    with opened(tmp_path, alarms(), Annotate("alarms", encoding)) as engine:
        for first, stop in itertools.pairwise([0, *cuts, 100]):
            engine.feed("readings", some(first, stop - first))
        expected = [{"readings": sorted(of["readings"])} for of in engine.why("alarms").tids.values()]
        assert [{n: sorted(t) for n, t in (each or {}).items()} for each in all_of(engine)] == expected
        assert len(expected) == 38


@pytest.mark.parametrize("lineage", ["exact", "interval"])
@pytest.mark.parametrize("checkpoint", [1, 10**6])
def test_a_window_that_a_restart_lies_in_is_annotated_whole(
    tmp_path: Path, checkpoint: int, lineage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the nearest checkpoint lies in its middle."""
    monkeypatch.setattr(runtime, "CHECKPOINT_ROWS", checkpoint)
    for first in range(0, 100, 20):
        with opened(tmp_path, alarms(rows=30), "alarms", lineage=lineage) as engine:
            engine.feed("readings", some(first, 10))
            engine.feed("readings", some(first + 10, 10))
    with opened(tmp_path, alarms(rows=30)) as engine:
        expected = [{"readings": of["readings"]} for of in engine.why("alarms").tids.values()]
        assert all_of(engine) == expected
        assert [len(each["readings"]) for each in expected] == [30] * 11


def test_tuples_that_came_while_nothing_was_annotated_have_no_annotation(tmp_path: Path) -> None:
    with opened(tmp_path, alarms()) as engine:
        engine.feed("readings", some(0, 30))
        with pytest.raises(Untraced, match="output 'alarms' was never annotated"):
            engine.annotated("alarms")
    with opened(tmp_path, alarms(), "alarms") as engine:
        engine.feed("readings", some(30, 30))
        found = all_of(engine)
    assert found[:10] == [None] * 10
    assert [len(each["readings"]) for each in found[10:] if each] == [3] * len(found[10:])


def test_an_epoch_that_fails_leaves_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, alarms(), "alarms") as engine:
        engine.feed("readings", some(0, 25))

        def broken(*_: Any) -> None:
            raise OSError("no more")

        with monkeypatch.context() as patch:
            patch.setattr(engine._store, "commit", broken)
            with pytest.raises(OSError, match="no more"):
                engine.feed("readings", some(25, 25))
        engine.feed("readings", some(25, 25))
        expected = [{"readings": of["readings"]} for of in engine.why("alarms").tids.values()]
        assert all_of(engine) == expected


def test_many_small_buckets_merged_hold_the_same_annotations(tmp_path: Path) -> None:
    with opened(tmp_path, alarms(), "alarms") as engine:
        for first in range(0, 400, 5):
            engine.feed("readings", some(first, 5))
        files = len(engine._store.files(annotations.TABLE, kind="tables"))
        assert files < 60
        expected = [{"readings": of["readings"]} for of in engine.why("alarms").tids.values()]
        assert all_of(engine) == expected


def test_large_sets_are_written_in_several_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "BUCKET_TIDS", 100)
    with opened(tmp_path, alarms(rows=10), "alarms") as engine:
        engine.feed("readings", some(0, 200))
        assert len(engine._store.files(annotations.TABLE, kind="tables")) == 8
        assert all_of(engine) == [{"readings": of["readings"]} for of in engine.why("alarms").tids.values()]


def test_what_no_window_needs_is_let_go(tmp_path: Path) -> None:
    with opened(tmp_path, alarms(rows=20), "alarms") as engine:
        sizes = []
        for first in range(0, 1_000, 100):
            engine.feed("readings", some(first, 100))
            annotator = engine._runtime.annotator
            assert annotator is not None
            (held,) = annotator.held.values()
            sizes.append(len(held.known))
        assert sizes == [19] * 10
        assert annotator.held_bytes <= 19 * 16


def test_what_has_aged_out_cannot_be_had_back_after_a_restart(tmp_path: Path) -> None:
    """The windows go on; it is told by whom their annotations are missed, and without them the store runs on."""
    with opened(tmp_path, alarms(rows=3_000), "alarms") as engine:
        for first in range(0, 6_000, 2_000):
            engine.feed("readings", some(first, 2_000))
    with opened(tmp_path, alarms(rows=3_000), "alarms") as engine:
        epoch = engine.last_epoch
        with pytest.raises(TooOld, match="that have aged out: its rows cannot be annotated"):
            engine.feed("readings", some(6_000, 2_000))
        assert engine.last_epoch == epoch
    with opened(tmp_path, alarms(rows=3_000)) as engine:
        assert engine.feed("readings", some(6_000, 2_000)).outputs["alarms"] > 0


def test_an_output_that_is_new_is_annotated_from_then_on(tmp_path: Path) -> None:
    with opened(tmp_path, alarms(), "alarms") as engine:
        engine.feed("readings", some(0, 30))
    with opened(tmp_path, alarms(more=True), ["alarms", "all"]) as engine:
        engine.feed("readings", some(30, 30))
        for output in ("alarms", "all"):
            found = all_of(engine, output)
            expected = list(engine.why(output).tids.values())
            past = 0 if output == "alarms" else 14
            assert found == [None] * past + expected[past:]
            assert len(expected) > 20


def test_rows_that_a_sort_and_a_join_held_at_a_restart_are_annotated(tmp_path: Path) -> None:
    net = clew.Network("held")
    a = net.stream("a", "t LONG, v LONG", order="t", key="t")
    b = net.stream("b", "t LONG, w LONG", order="t", key="t")
    pairs = a.sort("v", slack=4, name="sorted").window(rows=3, slide=1).agg(t="max(t)", v="max(v)")
    pairs.join(b, within=6, on=("t", "t"), suffix="_b").output("pairs")
    asked = {"pairs": ["a", "b"]}
    for t in range(1, 40):
        with opened(tmp_path, net, asked) as engine:
            engine.feed_all({"a": [{"t": t, "v": t * 7 % 11}], "b": [{"t": t, "w": t}] if t % 3 == 0 else []})
    with opened(tmp_path, net) as engine:
        found, expected = all_of(engine, "pairs"), list(engine.why("pairs").tids.values())
        assert [{n: sorted(t) for n, t in (of or {}).items()} for of in found] == [
            {n: sorted(t) for n, t in of.items()} for of in expected
        ]
        assert len(expected) > 50


# --- what may be asked for ---


@pytest.mark.parametrize(
    ("annotate", "text"),
    [
        ("alarm", "network 'small' has no output 'alarm' to annotate"),
        ("readings", "network 'small' has no output 'readings' to annotate"),
        (5, "annotate=5 names no output"),
        ({"alarms": ["redings"]}, "output 'alarms' is not made of 'redings', by which it shall be annotated"),
        ({"alarms": []}, "output 'alarms' shall be annotated by no stream"),
    ],
)
def test_what_cannot_be_annotated_is_named(tmp_path: Path, annotate: Any, text: str) -> None:
    with pytest.raises(LineageError) as refused:
        opened(tmp_path, alarms(), annotate)
    assert refused.value.message == text
    assert not (tmp_path / "store").exists()


def test_an_unknown_encoding_is_named_with_the_nearest() -> None:
    with pytest.raises(LineageError) as refused:
        Annotate("alarms", "intervals")  # type: ignore[arg-type]
    assert str(refused.value).splitlines() == [
        "annotations cannot be encoded as 'intervals'",
        "  encodings: single, interval, delta, lz, adaptive",
        "  hint: did you mean 'interval'?",
    ]


def test_a_box_without_lineage_carries_no_annotations(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match="of which no lineage is written: a restart would lose them"):
        opened(tmp_path, alarms(), "alarms", lineage="off")
