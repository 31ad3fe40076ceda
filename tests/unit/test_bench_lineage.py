"""The parts of the lineage benchmark: what is fed, what is compared, and that it measures what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clew
from clew.bench.lineage import CASES, retrieved
from clew.bench.lineage_cost import Plan, costs, cpu_seconds, opener
from clew.bench.lineage_kernel import WithoutOrigins, kernel_ratio
from clew.bench.lineage_networks import Tuples, basic, complex_network, nested
from clew.bench.lineage_peer import network
from clew.bench.tpch_like import Sizes, Tables
from clew.bench.windows import window_plan
from clew.engine.stored import source_rows


def test_tuples_go_on_where_they_were_and_are_the_same_again() -> None:
    feed, again = Tuples(), Tuples()
    first, second = feed.batch(50)["s"], feed.batch(50)["s"]
    assert second.column("ts").to_pylist() == list(range(50, 100))
    assert again.batch(50)["s"].equals(first)
    assert Tuples.of(complex_network(2)).batch(20).keys() == {"s1", "s2"}


def test_all_modes_of_a_network_cost_something() -> None:
    found = costs(basic(10), {mode: opener(mode) for mode in ("off", "exact")}, Plan(100, (100, 2_000), 2))
    assert found.keys() == {"off", "exact"}
    assert all(seconds > 0 for seconds in found.values())


def test_cpu_seconds_grow_with_work() -> None:
    before = cpu_seconds()
    np.sort(np.random.default_rng(0).random(300_000))
    assert cpu_seconds() > before


def test_the_kernel_without_origins_gives_the_same_rows_and_tells_nothing() -> None:
    (step,) = window_plan(3, "avg").kernels.values()
    off = WithoutOrigins.__new__(WithoutOrigins)
    vars(off).update(vars(step.kernel))
    table = Tuples().batch(50)["s"].select(["ts", "kind", "a"]).rename_columns(["ts", "kind", "value"])
    rows = source_rows("readings", table, np.arange(1, 51), 1)
    mute, told = (kernel.run(kernel.empty(), [rows], []) for kernel in (off, step.kernel))
    assert mute.rows.table.equals(told.rows.table)
    assert not mute.origin.first_stamp.any()
    assert told.origin.first_stamp.any()
    ratio, seconds = kernel_ratio(3, 1_000, 2)
    assert ratio > 0
    assert {mode: len(each) for mode, each in seconds.items()} == {"off": 2, "exact": 2}


@pytest.mark.parametrize(("slide", "inputs"), [(1, 37), (3, 361)])
def test_four_nested_aggregations_are_made_of_sets(tmp_path: Path, slide: int, inputs: int) -> None:
    with opener("exact")(tmp_path / "s", nested(4, slide=slide)) as engine:
        engine.feed_all(Tuples().batch(20_000))
        assert retrieved(engine, "result", [1, 2]) == 2 * inputs


@pytest.mark.parametrize("kind", ["group", "join"])
def test_the_peers_queries_are_the_same_as_networks(tmp_path: Path, kind: str) -> None:
    tables = Tables(Sizes(400, 100))
    batches = {"lineitem": tables.lineitem} | ({"orders": tables.orders} if kind == "join" else {})
    with clew.open(tmp_path / "s", network(kind), lane="driver", durable=False) as engine:
        engine.feed_all(batches)
        engine.finish()
        found = engine._store.read_table("result")
        lineage = engine.why("result").tids
    if kind == "group":
        assert sum(found.column("lines").to_pylist()) == 400
        assert sum(len(tids["lineitem"]) for tids in lineage.values()) == 400
        return
    dated = dict(zip(tables.orders["orderkey"].to_pylist(), tables.orders["orderdate"].to_pylist(), strict=True))
    wanted = [key for key in tables.lineitem["orderkey"].to_pylist() if dated[key] < 9204]
    assert sorted(found.column("orderkey").to_pylist()) == sorted(wanted)
    assert all(len(tids["lineitem"]) == len(tids["orders"]) == 1 for tids in lineage.values())


def test_the_aims_are_these() -> None:
    aims = {case.name: case.aim for case in CASES if case.aim is not None}
    assert aims == {
        "interval_ws100": 1.05, "exact_ws100": 1.10, "exact_ws20000": 1.15, "exact_ws500000": 1.25,
        "exact_nested4": 1.5, "exact_complex": 1.3, "kernel_exact_ws100": 1.3, "state_bytes_ws20000": 384 * 1024,
        "stored_bytes_per_output": 8, "latency_exact": 1.1, "why_seconds": 1.0, "why_100M_over_10M": 1.3,
    }  # fmt: skip
