"""The networks and tuples of Glavic et al., "Efficient Stream Provenance", §6: Basic, nested aggregations, Complex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clew.network.network import Network

COLUMNS = "ts LONG, kind INT, a DOUBLE, b DOUBLE, c DOUBLE"  # 36 bytes of numbers
SENSOR = "ts LONG, location INT, celsius DOUBLE, wind DOUBLE, rain DOUBLE"


def basic(size: int, slide: int = 1, kept: int = 25) -> Network:
    """A selection that keeps `kept` percent, an aggregation, and a selection behind it that keeps all (Fig. 12)."""
    net = Network("basic")
    tuples = net.stream("s", COLUMNS, order="ts", key="ts").filter(f"kind < {kept}")
    tuples.window(rows=size, slide=slide).agg(ts="max(ts)", value="avg(a)").filter("value >= 0").output("result")
    return net


def nested(depth: int, size: int = 10, slide: int = 1) -> Network:
    """Basic with `depth` aggregations, each over the results of the one before (Fig. 14 and 20)."""
    net = Network("nested")
    found = net.stream("s", COLUMNS, order="ts", key="ts").filter("kind < 25")
    for _ in range(depth):
        found = found.window(rows=size, slide=slide).agg(ts="max(ts)", a="avg(a)")
    found.filter("a >= 0").output("result")
    return net


def complex_network(size: int) -> Network:
    """The running example (Fig. 1): two sensors, outliers dropped, averages over `size`, union, sort, alarms."""
    net = Network("complex")
    fronts = []
    for number in (1, 2):
        sensor = net.stream(f"s{number}", SENSOR, order="ts", key="ts").filter("celsius < 350")
        front = sensor.window(rows=size, slide=1)
        fronts.append(front.agg(ts="min(ts)", location="min(location)", celsius="avg(celsius)"))
    hot = fronts[0].union(fronts[1]).sort("ts", slack=10).filter("celsius > 90")
    alarms = hot.window(span=2, slide=1, on="ts", anchor="tuple")
    alarms.agg(ts="min(ts)", locations="count(distinct location)").filter("locations >= 2").output("result")
    return net


Batches = Mapping[str, pa.Table]


@dataclass
class Tuples:
    """Batch after batch for the sources of one of the networks; the same ones for the same seed."""

    sources: tuple[str, ...] = ("s",)
    seed: int = 7
    fed: int = 0

    @staticmethod
    def of(network: Network) -> Tuples:
        return Tuples(tuple(network.sources))

    def batch(self, rows: int) -> Batches:
        """The next `rows` tuples, all sources together."""
        each = rows // len(self.sources)
        random = np.random.default_rng([self.seed, self.fed])
        ts = np.arange(self.fed, self.fed + each)
        self.fed += each
        if self.sources == ("s",):
            return {"s": _plain(ts, random)}
        return {name: _sensor(ts, number, random) for number, name in enumerate(self.sources, 1)}


def _plain(ts: np.ndarray, random: np.random.Generator) -> pa.Table:
    kind = random.integers(0, 100, len(ts), dtype=np.int32)
    return pa.table({"ts": ts, "kind": kind, **{name: random.random(len(ts)) for name in "abc"}})


def _sensor(ts: np.ndarray, number: int, random: np.random.Generator) -> pa.Table:
    """Uniform between 60 and 130 degrees, one in a hundred an outlier."""
    celsius = random.uniform(60, 130, len(ts))
    celsius[random.random(len(ts)) < 0.01] = 399.0
    location = np.full(len(ts), number, np.int32)
    return pa.table({"ts": ts, "location": location, "celsius": celsius, "wind": random.random(len(ts)),
                     "rain": random.random(len(ts))})  # fmt: skip
