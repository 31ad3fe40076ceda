"""What runs inside the peer's environment: SmokedDuck over two Parquet files, its lineage capture off and on.

    python smokedduck_script.py FOLDER ROUNDS

Loads `lineitem.parquet` and `orders.parquet` of FOLDER into the engine's memory, runs every query plainly and with
capture, taking turns, and prints one JSON object. A sample is the time from the query's text to its answer as an
Arrow table; the statements that switch capture on and off are outside it. The package keeps the engine to one
thread, so both ways run in one. What capture leaves for later is measured apart: the time of the first reading of all
lineage of an answer. At the end every row of an answer is made again from the rows its lineage names; and every
timed run must have kept lineage, or none, as it was asked to.

This file imports nothing of clew, and needs the peer only when it runs.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

QUERIES = {
    "group": "SELECT returnflag, linestatus, sum(quantity) AS quantity, sum(extendedprice) AS extendedprice, "
    "avg(discount) AS discount, count(*) AS lines FROM lineitem GROUP BY returnflag, linestatus",
    "join": "SELECT l.orderkey, l.extendedprice, l.discount, o.orderdate, o.orderpriority "
    "FROM lineitem l JOIN orders o ON l.orderkey = o.orderkey WHERE o.orderdate < 9204",  # 1995-03-15
}
TABLES = ("lineitem", "orders")

Columns = dict[str, Any]


class Peer:
    """The engine with both tables loaded."""

    def __init__(self, folder: Path) -> None:
        # Not by name: whoever checks clew's types has no such package.
        package: Any = importlib.import_module("smokedduck")
        self.lineage_aware = package.prov_connect(":memory:")
        self.plain = self.lineage_aware.duckdb_conn
        for name in TABLES:
            path = str(folder / f"{name}.parquet").replace("'", "''")
            self.plain.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{path}')")

    def setting(self, name: str) -> Any:
        return self.plain.execute("SELECT current_setting(?)", [name]).fetchone()[0]

    def answer(self, query: str, captured: bool) -> tuple[float, Any]:
        """The seconds of one run, and its answer."""
        if captured:
            self.plain.execute("PRAGMA enable_lineage")
        started = time.perf_counter()
        found = self.plain.execute(query).arrow()
        seconds = time.perf_counter() - started
        if captured:
            self.plain.execute("PRAGMA disable_lineage")
        return seconds, found

    def lineage(self, query: str) -> tuple[float, Any, Columns]:
        """The seconds of the first reading of all lineage of a fresh answer; that answer, and what was read.

        It is read as a row for each pair of a row of the answer (`out_index`) and the rows of the tables it is
        from, all by their numbers.
        """
        answer = self.lineage_aware.execute(query, capture_lineage="lineage").arrow()
        started = time.perf_counter()
        found = self.lineage_aware.lineage().fetchnumpy()
        return time.perf_counter() - started, answer, found

    def forget(self) -> list[int]:
        """Let go of all lineage; how many rows each operator had kept.

        Its numbering begins anew, and the tables it is shown in would be in the way.
        """
        listed = "SELECT table_name FROM information_schema.tables WHERE starts_with(table_name, 'LINEAGE_')"
        names = [name for (name,) in self.plain.execute(listed).fetchall()]
        kept = [self.plain.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names]
        self.plain.execute("PRAGMA clear_lineage")
        for name in names:
            self.plain.execute(f'DROP TABLE "{name}"')
        return kept

    def columns(self, table: str) -> Columns:
        return columns_of(self.plain.execute(f"SELECT * FROM {table}").arrow())


def columns_of(table: Any) -> Columns:
    return {name: table.column(name).to_numpy() for name in table.column_names}


def measure(peer: Peer, name: str, rounds: int) -> dict[str, Any]:
    """All samples of one query, the first round of each left out, and whether its lineage is right."""
    query = QUERIES[name]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    kept: dict[bool, list[list[int]]] = {False: [], True: []}
    readings = []
    for number in range(-1, rounds):
        for captured in (False, True) if number % 2 else (True, False):
            taken, _ = peer.answer(query, captured)
            kept[captured].append(peer.forget())
            if number >= 0:
                seconds[captured].append(taken)
        taken, answer, lineage = peer.lineage(query)
        peer.forget()
        if number >= 0:
            readings.append(taken)
    _, plain = peer.answer(query, captured=False)
    source = {table: peer.columns(table) for table in TABLES}
    pairs = len(lineage["out_index"])
    captured_when_timed = all(pairs in rows for rows in kept[True]) and not any(kept[False])
    right = CHECKS[name](columns_of(plain), lineage, source)
    return {
        "sql": query,
        "plain_seconds": seconds[False],
        "lineage_seconds": seconds[True],
        "reading_seconds": readings,
        "rows": plain.num_rows,
        "pairs": pairs,
        "checked": captured_when_timed and right and same(columns_of(plain), columns_of(answer)),
    }


def same(one: Columns, other: Columns) -> bool:
    """Whether two answers are equal, row by row; sums and means to a rounding."""
    return list(one) == list(other) and all(alike(one[name], other[name]) for name in one)


def alike(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    floats = one.dtype.kind == other.dtype.kind == "f"
    return bool(np.allclose(one, other, rtol=1e-9)) if floats else bool(np.array_equal(one, other))


def group_is_right(answer: Columns, lineage: Columns, source: dict[str, Columns]) -> bool:
    """Whether the lines that lineage names for a group are all its lines, once each, and give its aggregates."""
    lines, out = source["lineitem"], lineage["out_index"]
    if not np.array_equal(np.sort(lineage["lineitem"]), np.arange(len(lines["quantity"]))):
        return False
    for number in range(len(answer["lines"])):
        rows = lineage["lineitem"][out == number]
        if len(rows) != answer["lines"][number] or not all(
            np.all(lines[flag][rows] == answer[flag][number]) for flag in ("returnflag", "linestatus")
        ):
            return False
        again = (lines["quantity"][rows].sum(), lines["extendedprice"][rows].sum(), lines["discount"][rows].mean())
        given = [answer[name][number] for name in ("quantity", "extendedprice", "discount")]
        if not np.allclose(again, np.array(given, dtype=float), rtol=1e-9):
            return False
    return True


def join_is_right(answer: Columns, lineage: Columns, source: dict[str, Columns]) -> bool:
    """Whether each row of the answer has one line and one order of the same key, and its values from them."""
    order = np.argsort(lineage["out_index"], kind="stable")
    if not np.array_equal(lineage["out_index"][order], np.arange(len(answer["orderkey"]))):
        return False
    lines = {name: values[lineage["lineitem"][order]] for name, values in source["lineitem"].items()}
    orders = {name: values[lineage["orders"][order]] for name, values in source["orders"].items()}
    again = {
        **{name: lines[name] for name in ("orderkey", "extendedprice", "discount")},
        **{name: orders[name] for name in ("orderdate", "orderpriority")},
    }
    return bool(np.array_equal(lines["orderkey"], orders["orderkey"])) and all(
        np.array_equal(again[name], answer[name]) for name in answer
    )


CHECKS = {"group": group_is_right, "join": join_is_right}


def main(folder: Path, rounds: int) -> None:
    # The engine and its package talk on standard output: there they are in the way of the JSON.
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)
        peer = Peer(folder)
        results = {name: measure(peer, name, rounds) for name in QUERIES}
        facts = {
            "version": version("smokedduck"),
            "python": platform.python_version(),
            "threads": peer.setting("threads"),
            "load": os.getloadavg()[0],
            "rounds": rounds,
            "queries": results,
        }
        json.dump(facts, told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
