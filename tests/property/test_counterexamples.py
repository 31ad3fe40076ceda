"""Networks on which a law once did not hold, shrunk; each says what was wrong."""

from __future__ import annotations

import math
from pathlib import Path

import clew
from clew.testing import FINISH, check_reference

SCHEMA = "ts LONG, id INT, g STRING, x DOUBLE, n INT"


def row(ts: int, id: int = 0, x: float | None = None, g: str | None = None, n: int | None = None) -> dict[str, object]:
    return {"ts": ts, "id": id, "g": g, "x": x, "n": n}


def test_an_infinite_value_does_not_flush_a_sort(tmp_path: Path) -> None:
    """Progress of a DOUBLE column at inf was taken for the end of the stream."""
    net = clew.Network("net")
    net.stream("s", SCHEMA, order="ts", key=["ts", "id"]).sort("x", slack=2).output("o")
    batches = [{"s": [row(1, x=2.0), row(2, x=math.inf), row(3, x=1.0)]}, {"s": [row(4, x=0.0), row(5, x=3.0)]}, FINISH]
    check_reference(net, batches, tmp_path / "store")
