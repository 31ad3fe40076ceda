"""Retention by lineage: what goes, what stays, and what is told of what went."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clew
from clew.archive.gone import MOST_HOLES, Gone, Hole
from clew.archive.store import Store
from clew.engine import runtime
from clew.engine.plan import build_plan
from clew.errors import NetworkChanged, StoreError, TooOld, TypeProblem, UnknownTuple
from clew.explain import needed
from clew.explain.horizon import RetentionPlan, retention_plan
from clew.network.network import Network
from clew.network.stream import Stream
from clew.session import Engine

HOT = 500  # every so many readings three are hot


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needed, "LOOK_ROWS", 100)
        yield


def source(retention: Any = "lineage", **more: Any) -> tuple[Network, Stream]:
    net = clew.Network("heat")
    given = {"order": "t", "key": ["t", "sensor"], **more}
    return net, net.stream("readings", "t LONG, sensor STRING, celsius DOUBLE", retention=retention, **given)


def alarms(retention: Any = "lineage", **more: Any) -> Network:
    """Three readings of a sensor that are hot on average."""
    net, readings = source(retention, **more)
    mean = readings.window(rows=3, slide=1, by="sensor").agg(t="max(t)", celsius="avg(celsius)")
    mean.filter("celsius > 90").output("alarms")
    return net


def readings(low: int, high: int, sensors: str = "ab") -> list[dict[str, Any]]:
    return [
        {"t": t, "sensor": s, "celsius": 100.0 if s == "a" and t % HOT < 3 else 50.0}
        for t in range(low, high)
        for s in sensors
    ]


def opened(place: Path, net: Network, **more: Any) -> Engine:
    return clew.open(place, net, lane="driver", durable=False, **more)


def fed(engine: Engine, upto: int, step: int = 50, low: int = 0) -> Engine:
    for at in range(low, upto, step):
        engine.feed("readings", readings(at, at + step))
    return engine


def seqs(engine: Engine, stream: str = "readings") -> list[int]:
    found: list[int] = engine._store.read_table(stream, ["_seq"]).column("_seq").to_pylist()
    return found


def gone(engine: Engine, stream: str = "readings") -> Gone:
    found = engine._store.state.streams[stream].gone
    assert found is not None
    return found


# --- what goes ---


def test_where_alarms_are_rare_nearly_all_goes_and_every_alarm_is_explained(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "whole", alarms(None)), 2000) as whole:
        expected = whole.why("alarms").tids
        assert len(seqs(whole)) == 4000
    with fed(opened(tmp_path / "pruned", alarms()), 2000) as engine:
        assert engine.why("alarms").tids == expected
        assert len(expected) == 4
        assert len(seqs(engine)) <= 4000 * 0.06
        assert gone(engine).rows == 4000 - len(seqs(engine))


def test_what_stays_of_settled_buckets_is_what_alarms_and_open_windows_are_made_of(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms()), 2000) as engine:
        made = {tid for tids in engine.why("alarms").tids.values() for tid in tids["readings"]}
        settled = engine._store.state.streams["readings"].meta["settled"]
        stays = engine._store.read_table("readings", ranges={"_stamp": (None, settled)})
        assert {f"readings:{seq}" for seq in stays.column("_seq").to_pylist()} == made
        assert len(made) == 12


def test_a_group_that_pauses_holds_back_its_own_rows_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "s", alarms()) as engine:
        engine.feed("readings", readings(0, 2, "z"))
        fed(engine, 2000, low=2)
        assert seqs(engine)[:2] == [1, 2]
        assert len(seqs(engine)) <= 4000 * 0.06
        found = engine.feed("readings", [{"t": 2010, "sensor": "z", "celsius": 1000.0}])
        assert found.outputs == {"alarms": 1}
        last = engine._store.state.streams["alarms"].seq
        tids = engine.why("alarms", last).tids[f"alarms:{last}"]["readings"]
        assert tids == ["readings:1", "readings:2", f"readings:{engine._store.state.streams['readings'].seq}"]


def test_nothing_goes_where_all_is_needed(tmp_path: Path) -> None:
    net, stream = source()
    stream.window(rows=2, slide=1).agg(t="max(t)").output("pairs")
    with fed(opened(tmp_path / "pairs", net), 400) as engine:
        assert engine._store.state.streams["readings"].gone is None
    net, stream = source()
    stream.window(landmark=0, slide=100, on="t").agg(most="max(celsius)").filter("most > 1000").output("most")
    with fed(opened(tmp_path / "landmark", net), 400) as engine:
        assert engine._store.state.streams["readings"].gone is None
        assert "looked" not in engine._store.state.streams["readings"].meta


def test_without_lineage_nothing_goes_and_the_log_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), fed(opened(tmp_path / "s", alarms(), lineage="off"), 700) as engine:
        assert engine._store.state.streams["readings"].gone is None
    told = [r.getMessage() for r in caplog.records if r.name == "clew"]
    assert 1 <= len(told) < 14  # not with every epoch
    assert told[0].startswith("nothing more of readings was pruned: box 'mean' has no lineage of what it made at")


def test_keys_that_may_be_repeated_stay(tmp_path: Path) -> None:
    net, stream = source(key="sensor", key_span=300)
    stream.filter("celsius > 90").output("alarms")
    with opened(tmp_path / "s", net) as engine:
        for t in range(1000):
            row = {"t": t, "sensor": f"{t}", "celsius": 1.0}
            engine.feed("readings", [row])
            if t == 990:
                assert engine.feed("readings", [{**row, "celsius": 2.0}]).rejected == 1
        assert gone(engine).order is not None
        assert gone(engine).order < 1000 - 300  # type: ignore[operator]
        assert engine.feed("readings", [{"t": 999, "sensor": "720", "celsius": 1.0}]).rejected == 1


def test_interval_mode_keeps_what_it_must_make_again(tmp_path: Path) -> None:
    def nested(retention: Any) -> Network:
        net, stream = source(retention)
        mean = stream.window(rows=2, slide=2, by="sensor").agg(t="max(t)", celsius="avg(celsius)")
        hot = mean.window(rows=2, slide=2, by="sensor").agg(t="max(t)", celsius="max(celsius)")
        hot.filter("celsius > 90").output("alarms")
        return net

    with fed(opened(tmp_path / "whole", nested(None), lineage="interval"), 2000) as whole:
        expected = whole.why("alarms").tids
    with fed(opened(tmp_path / "s", nested("lineage"), lineage="interval"), 2000) as engine:
        assert engine.why("alarms").tids == expected
        assert len(seqs(engine)) <= 4000 * 0.06


# --- restarts and changes ---


def test_restarts_change_nothing_and_go_on_pruning(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "whole", alarms(None)), 2000) as whole:
        expected = whole.why("alarms").tids
    for at in range(0, 2000, 250):
        with fed(opened(tmp_path / "s", alarms()), at + 250, low=at):
            pass
    with opened(tmp_path / "s", alarms()) as engine:
        assert engine.why("alarms").tids == expected
        assert len(seqs(engine)) <= 4000 * 0.06
    assert len(list((tmp_path / "s" / "checkpoints").iterdir())) <= runtime.CHECKPOINTS_KEPT


@pytest.mark.parametrize("lose", [1, 2, 3])
def test_a_damaged_checkpoint_is_made_good_by_the_one_of_the_look_before(tmp_path: Path, lose: int) -> None:
    with fed(opened(tmp_path / "s", alarms()), 1510) as engine:
        expected = engine.why("alarms").tids
    for place in sorted((tmp_path / "s" / "checkpoints").iterdir())[-lose:]:
        shutil.rmtree(place)
    if lose == 3:
        with pytest.raises(StoreError, match="stream 'readings' has been pruned up to seq"):
            opened(tmp_path / "s", alarms())
        return
    with fed(opened(tmp_path / "s", alarms()), 1600, 45, low=1510) as engine:
        assert engine.why("alarms").tids == expected


def test_a_store_that_kept_all_is_pruned_once_it_is_asked_to_and_then_ages_out(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms(None)), 1000) as engine:
        expected = engine.why("alarms").tids
    with fed(opened(tmp_path / "s", alarms()), 1200, low=1000) as engine:
        assert len(seqs(engine)) < 450
        assert {k: v for k, v in engine.why("alarms").tids.items() if k in expected} == expected
        before = gone(engine)
    with fed(opened(tmp_path / "s", alarms(100)), 1600, low=1200) as engine:
        after = gone(engine)
        assert (after.rows, after.seq) == (3200 - len(seqs(engine)), seqs(engine)[0] - 1)
        assert after.seq > before.seq  # type: ignore[operator]
        with pytest.raises(TooOld, match="tuples of stream 'readings' between readings:1 and "):
            print(engine.why("alarms", 1).tids)


def test_new_boxes_are_refused_once_tuples_are_pruned(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms()), 500):
        pass
    net = alarms()
    other, stream = source()
    mean = stream.window(rows=3, slide=1, by="sensor").agg(t="max(t)", celsius="avg(celsius)")
    mean.filter("celsius > 90").output("alarms")
    stream.filter("celsius > 70").output("warm")
    with pytest.raises(NetworkChanged, match="stream 'readings' has been pruned up to seq"):
        opened(tmp_path / "s", other)
    with opened(tmp_path / "s", net) as engine:
        assert engine.last_epoch == 10


# --- what is told of it ---


def test_pruned_tuples_are_named_with_the_epoch_since_which_they_are_gone(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms()), 1000) as engine:
        assert not {90, 100} & set(seqs(engine))
        for ask in (engine.why, engine.impact):
            with pytest.raises(TooOld) as caught:
                ask("readings", [1, 90, "readings:100"])
            lines = str(caught.value).splitlines()
            assert lines == [
                "stream 'readings' no longer has readings:90, readings:100",
                "  readings:90 is gone since epoch 3",
                "  readings:100 is gone since epoch 3",
                "  hint: no output or kept stream was made of what was pruned",
            ]
        with pytest.raises(UnknownTuple, match="has no tuple readings:9999"):
            engine.why("readings", 9999)
        with pytest.raises(TooOld, match=r"pruned: .* tuples, up to seq"):
            engine._store.read_table("readings", as_of=2)


def test_impact_tells_of_outputs_and_of_what_is_open_as_without_pruning(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "whole", alarms(None)), 1000) as whole, \
            fed(opened(tmp_path / "s", alarms()), 1000) as engine:  # fmt: skip
        for seq in (1, 3, 5, 1001, 2000):
            expected, found = (e.impact("readings", seq) for e in (whole, engine))
            assert (found.tids, found.open) == (expected.tids, expected.open)
        assert engine.impact("readings", 1).verify()


def test_a_replay_over_a_gap_is_refused_and_one_behind_a_checkpoint_is_not(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms()), 1490) as engine:
        with pytest.raises(TooOld, match="cannot be replayed: tuples in front of its lineage, or between, are gone"):
            engine.why("alarms", 1).verify()
        engine.feed("readings", readings(1490, 1505))
        last = engine._store.state.streams["alarms"].seq
        assert engine.why("alarms", last).verify()
        assert engine.why("alarms", last).counterfactual().found[0].outcome == "gone"


def test_holes_are_remembered_and_the_oldest_told_as_one(tmp_path: Path) -> None:
    with fed(opened(tmp_path / "s", alarms()), 1000) as engine:
        expected = gone(engine)
    with Store.open(tmp_path / "s", read_only=True) as store:
        assert store.state.streams["readings"].gone == expected
    assert Gone.from_json(expected.to_json()) == expected
    many = [Hole((i, i), (i, i), i, i) for i in range(1, MOST_HOLES + 10)]
    joined = Gone(1, 1, 1, 1, 1, 1, many)
    assert joined.tells_of("s", [3, 400]) == ["s:3 is gone since epoch 3"]
    assert Gone(5, 5, 9, 1, 7).tells_of("s", [5, 6]) == ["s:5 is gone since epoch 7"]
    assert Gone(5, 5, 9, 1, 7).holes_at(10, 12) == []


# --- what is known beforehand ---


def plan_of(net: Network) -> RetentionPlan:
    def typer(*_: Any) -> Any:
        raise TypeProblem("needs Spark")

    return retention_plan(build_plan(net, typer))


def counted(stream: Stream) -> Stream:
    return stream.window(rows=10, slide=5).agg(t="max(t)", celsius="avg(celsius)")


def test_count_windows_compose() -> None:
    net, stream = source()
    inner = counted(stream).map("t", c="celsius + 1")
    inner.window(rows=4, slide=2).agg(t="max(t)", c="avg(c)").window(rows=3, slide=1).agg(t="max(t)").output("o")
    found = plan_of(net)["readings"]
    # 10 rows; then 3 more of these, 5 rows apart; then 2 more of those, 10 rows apart
    assert str(found) == "readings: rows to come reach back to the newest 45"
    assert found.bounded


def test_a_filter_behind_a_count_window_keeps_the_bound_and_one_before_it_does_not() -> None:
    net, stream = source()
    counted(stream).filter("celsius > 90").output("o")
    assert str(plan_of(net)["readings"]) == "readings: rows to come reach back to the newest 10"
    net, stream = source()
    counted(stream.filter("celsius > 90")).output("o")
    found = plan_of(net)["readings"]
    assert not found.bounded
    assert "counts rows, and box 'filter' leaves some out" in str(found)


def test_value_windows_and_joins_are_bounded_by_their_spans() -> None:
    net, stream = source()
    windows = stream.filter("celsius > 90").window(span=20, slide=5, on="t", by="sensor").agg(t="max(t)")
    windows.output("o")
    assert str(plan_of(net)["readings"]) == "readings: rows to come reach back to the newest and 20 of t"
    net, stream = source()
    limits = net.stream("limits", "t LONG, sensor STRING, top DOUBLE", order="t", key=["t", "sensor"])
    stream.join(limits, within=(-5, 3), by="sensor", on="t").output("o")
    told = "rows to come reach back to the newest and -5 to 3 of t behind the slowest of limits, readings"
    assert str(plan_of(net)).splitlines() == [
        f"readings: {told}",
        f"limits: {told} (nothing is pruned: its retention is not 'lineage')",
    ]


def test_of_several_paths_the_longest_counts_and_a_source_without_outputs_is_told() -> None:
    net, stream = source()
    net.stream("unused", "t LONG", order="t", key="t", retention="lineage")
    counted(stream).output("a")
    stream.window(rows=30, slide=1).agg(t="max(t)", celsius="avg(celsius)").output("b")
    assert str(plan_of(net)).splitlines() == [
        "readings: rows to come reach back to the newest 30",
        "unused: no output is made of it",
    ]


def summed(rows: pa.Table) -> pa.Table:
    return rows.select(["t"])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda s: s.sort("t", slack=3), "(sort) may hold a tuple for any length of time"),
        (lambda s: counted(s.sort("t", slack=3)), "(sort) may hold a tuple for any length of time"),
        (lambda s: s.window(rows=3, slide=1, by="sensor").agg(t="max(t)"), "counts rows by sensor"),
        (lambda s: counted(s).window(span=9, slide=9, on="t").agg(n="count(*)"), "goes by column 't' of rows"),
        (lambda s: s.window(landmark=0, slide=9, on="t").agg(n="count(*)"), "(landmark) makes its rows of all"),
        (lambda s: s.sort("t", slack=3).window(latch=9, on="t").agg(n="count(*)"), "(latch) makes its rows of all"),
        (lambda s: s.apply(summed, "t LONG", how="opaque"), "(opaque) may remember any tuple"),
    ],
)
def test_these_have_no_static_bound(make: Any, why: str) -> None:
    net, stream = source()
    make(stream).output("o")
    found = plan_of(net)["readings"]
    assert not found.bounded
    assert why in str(found)
    assert found.to_json()["bounds"] is None


def test_a_sort_is_pruned_by_what_it_holds_and_not_beforehand(tmp_path: Path) -> None:
    def sorted_(retention: Any) -> Network:
        net, stream = source(retention)
        stream.sort("celsius", slack=5).filter("celsius > 90").output("hot")
        return net

    with fed(opened(tmp_path / "whole", sorted_(None)), 1000) as whole:
        expected = whole.why("hot").tids
    with fed(opened(tmp_path / "s", sorted_("lineage")), 1000) as engine:
        assert not engine.retention_plan()["readings"].bounded
        assert engine.why("hot").tids == expected
        buffer = engine._runtime.memory.boxes.kernels["sort"]["buffer"].column("_stamp").to_pylist()
        stamps = engine._store.read_table("readings", ["_stamp"]).column("_stamp").to_pylist()
        assert set(buffer) <= set(stamps)
        assert len(stamps) < 300
