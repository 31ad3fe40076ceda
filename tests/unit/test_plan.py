"""What a plan says of its steps, without running them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import clew
from clew.engine.plan import Stateless, build_plan


def texts(columns: Any, *_: Any) -> list[pa.DataType]:
    """The types that Spark would find."""
    return [pa.string() if name == "mark" else pa.int64() for name, _ in columns]


def test_a_column_carries_progress_whoever_evaluates_its_neighbours() -> None:
    net = clew.Network("net")
    s = net.stream("s", "ts LONG, g STRING", order="ts", key="ts")
    s.map(ts="ts", later="ts + 1", mark="sha2(g, 256)", name="m").window(span=5, on="later").agg(n="count(*)").output(
        "o"
    )
    plan = build_plan(net, texts)
    step = plan.steps["m"]
    assert isinstance(step, Stateless)
    assert not step.on_arrow
    found = {name: step.source_of(name) for name in ("ts", "later", "mark")}
    assert found == {"ts": ("same", "ts"), "later": ("monotone", "ts"), "mark": ("rows", None)}
    assert plan.asked_of_rows == frozenset()
