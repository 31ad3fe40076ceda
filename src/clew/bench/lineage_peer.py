"""A system that keeps lineage inside a relational engine, beside clew: each one's overhead over its own plain run.

The same TPC-H-like tables, the same group-by and join. The peer is SmokedDuck, in an environment of its own; its
capture stays in memory and is made ready by the first reading, so both are told. clew's is on disk, and ready.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from clew.bench.core import Progress, Samples
from clew.bench.lineage_cost import opener
from clew.bench.peer_smokedduck import PeerFailed, peer_available, run_peer
from clew.bench.tpch_like import FULL, LINEITEM, ORDERS, QUICK, Tables
from clew.network.network import Network

KINDS = ("group", "join")
ALL = 10**12  # more than any order key


def network(kind: str) -> Network:
    """The peer's query as a network: a group-by is one window over all, a join one whose band is a point."""
    net = Network(kind)
    items = net.stream("lineitem", LINEITEM, order="orderkey", key=["orderkey", "linenumber"])
    if kind == "group":
        window = items.window(span=ALL, slide=ALL, on="orderkey", by=["returnflag", "linestatus"])
        sums = {"quantity": "sum(quantity)", "extendedprice": "sum(extendedprice)"}
        window.agg(**sums, discount="avg(discount)", lines="count(*)").output("result")
        return net
    orders = net.stream("orders", ORDERS, order="orderkey", key="orderkey").filter("orderdate < 9204")
    pairs = items.join(orders, on="orderkey", within=0)
    pairs.map("orderkey", "extendedprice", "discount", "orderdate", "orderpriority").output("result")
    return net


def overheads(quick: bool, samples: Samples, progress: Progress) -> None:
    """Both systems' overheads as cases of the samples; of the peer only where it can be had."""
    tables = Tables(QUICK if quick else FULL)
    for number in range(-1, 3 if quick else 9):
        for kind in KINDS:
            progress(f"TPC-H-like {kind}, round {number + 2}")
            seconds = _round(kind, tables)
            if number >= 0:
                samples.add(f"overhead_{kind}", seconds["exact"] / seconds["off"])
                samples.measured(tpch=kind, round=number, seconds=seconds)
    peer = peer_available(progress)
    if peer is None:
        return
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        tables.write(Path(folder))
        try:
            found = run_peer(peer, Path(folder), 5 if quick else 21, progress)
        except PeerFailed as error:
            progress(str(error))
            return
    samples.notes["peer"] = f"smokedduck {peer.version}"
    for kind, result in found.items():
        rounds = zip(result.plain_seconds, result.lineage_seconds, result.reading_seconds, strict=True)
        for plain, lineage, reading in rounds:
            samples.add(f"overhead_{kind}_peer", lineage / plain)
            samples.add(f"overhead_{kind}_peer_read", (lineage + reading) / plain)
        samples.measured(peer=kind, **vars(result))


def _round(kind: str, tables: Tables) -> dict[str, float]:
    """Wall seconds of feeding all and finishing, in each mode."""
    batches: dict[str, pa.Table] = {"lineitem": tables.lineitem}
    if kind == "join":
        batches["orders"] = tables.orders
    seconds: dict[str, Any] = {}
    for mode in ("off", "exact"):
        with (
            tempfile.TemporaryDirectory(prefix="clew-bench-") as folder,
            opener(mode)(Path(folder) / "store", network(kind)) as engine,
        ):
            started = time.perf_counter()
            engine.feed_all(batches)
            engine.finish()
            seconds[mode] = time.perf_counter() - started
    return seconds
