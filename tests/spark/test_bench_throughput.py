"""The systems that the throughput benchmark compares do the same work: they give the same rows."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from clew.archive import Store
from clew.bench.quotes import SYMBOLS, quotes, write_quotes
from clew.bench.throughput import QUERIES, run_clew, run_plain

SECONDS = 660  # two whole windows of five minutes, and a beginning


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_quotes(tmp_path_factory.mktemp("quotes"), SECONDS * SYMBOLS, 2)


@pytest.mark.parametrize("query", QUERIES)
def test_clew_and_plain_spark_give_the_same_rows(spark: SparkSession, source: Path, tmp_path: Path, query: str) -> None:
    run_clew(spark, query, source, tmp_path / "clew")
    run_plain(spark, query, source, tmp_path / "plain", keep_input=True)
    with Store.open(tmp_path / "clew" / "store", read_only=True) as store:
        ours = store.read_table("result")
        kept = store.read_table("quotes", ["ts", "symbol", "price"])
    theirs = pq.read_table(tmp_path / "plain" / "result" / "data")
    value = ours.column_names[2] if query == "passthrough" else "price"
    found, expected = (
        sorted(zip(*(t.column(c).to_pylist() for c in ("symbol", "ts", value)), strict=True)) for t in (ours, theirs)
    )
    assert len(found) == len(expected) > SYMBOLS
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert all(math.isclose(a[2], b[2], rel_tol=1e-12) for a, b in zip(found, expected, strict=True))
    assert len(kept) == pq.read_table(tmp_path / "plain" / "input" / "data").num_rows == SECONDS * SYMBOLS


def test_quotes_are_the_same_however_they_are_cut_into_files() -> None:
    seven = quotes(600, 1_400).drop(["price"])
    assert seven.slice(0, 700).equals(quotes(600, 700).drop(["price"]))
    assert seven.slice(700).equals(quotes(1_300, 700).drop(["price"]))
    assert seven.column("symbol").to_pylist()[:SYMBOLS] == [f"S{i:03d}" for i in range(SYMBOLS)]
