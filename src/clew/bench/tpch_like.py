"""Line items and orders in the manner of TPC-H, made from a seed, as Parquet files that any system can read.

Kept of TPC-H are the shapes: about four lines to an order and all of one order together, ten orders to a customer,
thirty lines to a part, dates of seven years, and flags that follow from the dates, so that a grouping by them has
four groups. Days are counted from 1970-01-01. Both tables are sorted by `orderkey`, which counts from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LINEITEM = (
    "orderkey LONG, linenumber LONG, partkey LONG, quantity DOUBLE, extendedprice DOUBLE, discount DOUBLE, "
    "shipdate LONG, returnflag STRING, linestatus STRING"
)
ORDERS = "orderkey LONG, custkey LONG, orderdate LONG, orderpriority STRING"

FIRST_DAY, LAST_DAY = 8035, 10440  # of orders: 1992-01-01 and 1998-08-02
TODAY = 9298  # 1995-06-17: what has not arrived by then cannot have been returned
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")


@dataclass(frozen=True)
class Sizes:
    """How many rows the tables have."""

    lineitems: int = 1_000_000
    orders: int = 250_000


FULL, QUICK = Sizes(), Sizes(200_000, 50_000)


@dataclass(frozen=True)
class Tables:
    """The two tables of one seed; the same seed and sizes give the same rows."""

    sizes: Sizes = FULL
    seed: int = 11

    @cached_property
    def orders(self) -> pa.Table:
        """A row an order, with columns as in `ORDERS`."""
        rows = self.sizes.orders
        random = np.random.default_rng([self.seed, 1])
        return pa.table(
            {
                "orderkey": np.arange(rows),
                "custkey": random.integers(0, max(rows // 10, 1), rows),
                "orderdate": random.integers(FIRST_DAY, LAST_DAY, rows, endpoint=True),
                "orderpriority": _words(PRIORITIES, random.integers(0, len(PRIORITIES), rows)),
            }
        )

    @cached_property
    def lineitem(self) -> pa.Table:
        """A row a line of an order, with columns as in `LINEITEM`; `orderkey` and `linenumber` identify it."""
        rows = self.sizes.lineitems
        random = np.random.default_rng([self.seed, 2])
        order = np.sort(random.integers(0, self.sizes.orders, rows))
        part = random.integers(0, max(rows // 30, 1), rows)
        quantity = random.integers(1, 50, rows, endpoint=True).astype(np.float64)
        shipped = self.orders.column("orderdate").to_numpy()[order] + random.integers(1, 121, rows, endpoint=True)
        arrived = shipped + random.integers(1, 30, rows, endpoint=True)
        sent_back = random.integers(0, 2, rows)
        return pa.table(
            {
                "orderkey": order,
                "linenumber": np.arange(rows) - np.searchsorted(order, order) + 1,
                "partkey": part,
                "quantity": quantity,
                "extendedprice": np.round(quantity * (900 + part % 1000 * 0.1 + part // 10 % 20_001 * 0.01), 2),
                "discount": random.integers(0, 10, rows, endpoint=True) / 100,
                "shipdate": shipped,
                "returnflag": _words("RAN", np.where(arrived <= TODAY, sent_back, 2)),
                "linestatus": _words("FO", (shipped > TODAY).astype(np.int64)),
            }
        )

    def write(self, folder: Path) -> None:
        """Write `lineitem.parquet` and `orders.parquet` into the folder, which is made if it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.lineitem, folder / "lineitem.parquet")
        pq.write_table(self.orders, folder / "orders.parquet")


def _words(words: str | tuple[str, ...], numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(list(words))).cast(pa.string())
