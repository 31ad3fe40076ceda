"""The line items and orders of the lineage benchmark: the same every time, of the schema and in the relation told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.bench import tpch_like
from clew.bench.tpch_like import Sizes, Tables
from clew.model.schema import parse_schema

SMALL = Sizes(4_000, 1_000)


def column(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy()


@settings(max_examples=20)
@given(lineitems=st.integers(1, 3_000), orders=st.integers(1, 800), seed=st.integers(0, 2**31))
def test_tables_are_as_large_as_asked_for_and_follow_from_their_seed(lineitems: int, orders: int, seed: int) -> None:
    made, again = (Tables(Sizes(lineitems, orders), seed) for _ in range(2))
    assert (made.lineitem.num_rows, made.orders.num_rows) == (lineitems, orders)
    assert made.lineitem.equals(again.lineitem)
    assert made.orders.equals(again.orders)
    assert made.lineitem.schema == parse_schema(tpch_like.LINEITEM)
    assert made.orders.schema == parse_schema(tpch_like.ORDERS)


def test_another_seed_gives_other_rows() -> None:
    one, other = Tables(SMALL, 1), Tables(SMALL, 2)
    assert not one.lineitem.equals(other.lineitem)
    assert not one.orders.equals(other.orders)


@settings(max_examples=20)
@given(lineitems=st.integers(1, 3_000), orders=st.integers(1, 800), seed=st.integers(0, 2**31))
def test_every_line_is_of_an_order_and_shipped_after_it(lineitems: int, orders: int, seed: int) -> None:
    tables = Tables(Sizes(lineitems, orders), seed)
    key = column(tables.lineitem, "orderkey")
    assert np.array_equal(column(tables.orders, "orderkey"), np.arange(orders))
    assert np.all(np.diff(key) >= 0)
    assert 0 <= key.min() <= key.max() < orders
    days = column(tables.lineitem, "shipdate") - column(tables.orders, "orderdate")[key]
    assert 1 <= days.min() <= days.max() <= 121


@settings(max_examples=20)
@given(lineitems=st.integers(1, 3_000), orders=st.integers(1, 800))
def test_order_and_line_number_identify_a_line(lineitems: int, orders: int) -> None:
    lines = Tables(Sizes(lineitems, orders)).lineitem
    counted: dict[int, int] = {}
    for key, number in zip(lines["orderkey"].to_pylist(), lines["linenumber"].to_pylist(), strict=True):
        counted[key] = counted.get(key, 0) + 1
        assert number == counted[key]


def test_flags_follow_from_dates_and_make_four_groups() -> None:
    lines = Tables(SMALL).lineitem
    status, shipped = column(lines, "linestatus"), column(lines, "shipdate")
    assert np.array_equal(status == "O", shipped > tpch_like.TODAY)
    groups = set(zip(column(lines, "returnflag"), status, strict=True))
    assert groups == {("A", "F"), ("R", "F"), ("N", "F"), ("N", "O")}


def test_what_is_written_is_what_was_made(tmp_path: Path) -> None:
    tables = Tables(SMALL)
    tables.write(tmp_path / "new")
    assert pq.read_table(tmp_path / "new" / "lineitem.parquet").equals(tables.lineitem)
    assert pq.read_table(tmp_path / "new" / "orders.parquet").equals(tables.orders)


@pytest.mark.parametrize(
    ("sizes", "rows"), [(tpch_like.FULL, (1_000_000, 250_000)), (tpch_like.QUICK, (200_000, 50_000))]
)
def test_sizes_are_those_the_benchmark_tells(sizes: Sizes, rows: tuple[int, int]) -> None:
    assert (sizes.lineitems, sizes.orders) == rows
