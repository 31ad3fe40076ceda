"""A network with a box of every kind, and batches for it: what tests of faults feed, alone or as a child process."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clew
from clew.session import Engine

EPOCHS = 24
Row = dict[str, Any]


def network(retention: int | None = None, user: Callable[..., Any] | None = None) -> clew.Network:
    net = clew.Network("faults")
    readings = net.stream(
        "readings", "ts LONG, id INT, g STRING, x DOUBLE", order="ts", key=["ts", "id"], lateness=4, retention=retention
    )
    limits = net.stream("limits", "ts LONG, g STRING, top DOUBLE", order="ts", key=["ts", "g"], retention=retention)
    small = readings.filter("x < 90", name="small")
    rise = small.window(rows=3, slide=1, by="g", name="rise").agg(ts="max(ts)", x="avg(x)").output("rise")
    rise.sort("ts", slack=3, name="sorted").window(span=10, by="g", name="tens").agg(n="count(*)").output("tens")
    limited = readings.join(limits, within=(-8, 0), by="g", how="left", name="limited")
    limited.filter("x > coalesce(top, 40)").output("over")
    readings.map("ts", "g", ratio="100 / cast(id AS DOUBLE)", name="ratio").keep("ratios")
    if user is not None:
        readings.window(rows=4, name="own").agg(ts="max(ts)", n=clew.function(user, "INT")).output("own")
    return net


def batches() -> list[dict[str, list[Row]]]:
    """The same in every process: ties, nulls, late and repeated tuples, and two streams in one epoch."""
    chance = random.Random(3)
    found: list[dict[str, list[Row]]] = []
    for epoch in range(EPOCHS):
        start = epoch * 10
        rows: list[Row] = [
            {"ts": start + chance.randint(-6, 12), "id": chance.randint(0, 40), "g": chance.choice("abc"),
             "x": chance.choice([None, 95.5, round(chance.uniform(0, 89), 2)])}
            for _ in range(12)
        ]  # fmt: skip
        rows.append({"ts": start, "id": None, "g": "a", "x": 1.0})
        rows.append({"ts": start, "id": 1, "g": "a", "x": "warm"})
        limits = [{"ts": start + 2, "g": g, "top": chance.uniform(0, 60)} for g in "ab"]
        found.append({"readings": rows, "limits": limits} if epoch % 3 else {"readings": rows})
    return found


def opened(root: str | Path, net: clew.Network | None = None, *, durable: bool = False) -> Engine:
    return clew.open(root, net or network(), durable=durable, lane="driver", grace_s=0)


def feed_all(engine: Engine, upto: int = EPOCHS, told: bool = False) -> int:
    """Feed the first batches, each under its id, whether they were fed before or not; the last epoch."""
    for number, batch in enumerate(batches()[:upto], start=1):
        epoch = engine.feed_all(batch, id=f"batch {number}")
        if told and not epoch.repeated:
            print(epoch.number, flush=True)
    return engine.last_epoch


def small_limits(set_to: Callable[[str, Any], None]) -> None:
    """Let compaction, folding and checkpoints happen within few epochs."""
    set_to("clew.archive.compaction.MAX_SMALL", 3)
    set_to("clew.archive.delta.CHECKPOINT_EVERY", 4)
    set_to("clew.archive.journal.FOLD_EVERY", 4)
    set_to("clew.engine.runtime.CHECKPOINT_EPOCHS", 5)


def work(root: str) -> None:
    """What a child process does: open, feed everything, say which epochs are committed."""

    def set_to(target: str, value: Any) -> None:
        module, _, name = target.rpartition(".")
        setattr(sys.modules[module], name, value)

    small_limits(set_to)
    with opened(root) as engine:
        feed_all(engine, told=True)
