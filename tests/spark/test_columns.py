"""pyspark's Columns in a network mean what they mean in Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

import clew
from clew.errors import NetworkError
from clew.network.columns import column_text
from clew.network.stream import Stream

TEXTS = [
    (lambda: f.col("x") + 1, "(x + 1)"),
    (lambda: (f.col("x") > 5) & ~(f.col("s") == "it's"), "((x > 5) AND (NOT (s = 'it\\'s')))"),
    (lambda: f.col("x").isin(1, 2) | f.col("x").isNull(), "((x IN (1, 2)) OR (x IS NULL))"),
    (lambda: -f.col("x") * 2.5, "((-x) * 2.5D)"),
    (lambda: f.col("two words").cast("int").alias("n"), "CAST(`two words` AS INT) AS `n`"),
    (lambda: f.when(f.col("x") > 1, "a").otherwise("b"), "CASE WHEN (x > 1) THEN 'a' ELSE 'b' END"),
    (lambda: f.countDistinct("x", "s"), "count(DISTINCT x, s)"),
    (lambda: f.sum("x") / f.count("*"), "(sum(x) / count(*))"),
    (lambda: f.expr("x + 1") * 2, "((x + 1) * 2)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_a_column_becomes_sql(spark: SparkSession, make: Any, text: str) -> None:
    assert spark.getActiveSession() is not None
    assert column_text(make()) == text


def test_what_a_network_cannot_hold_is_refused(spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None
    with pytest.raises(NetworkError, match="cannot stand in a network"):
        column_text(f.transform(f.col("a"), lambda x: x + 1))
    with pytest.raises(NetworkError, match="3 is no column or expression"):
        column_text(3)


def test_a_wrapped_udf_is_told_to_be_registered(spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None

    def twice(x: int) -> int:
        return 2 * x

    with pytest.raises(NetworkError) as raised:
        column_text(f.udf(twice, "int", useArrow=False)(f.col("x")))
    assert str(raised.value).splitlines() == [
        "a pyspark Column calls the Python UDF 'twice', which has no name in SQL",
        "  hint: register it, spark.udf.register('f', ...), and call it in text: 'f(x)'",
    ]


def columns() -> list[Column]:
    x, y, s, t = (f.col(name) for name in ("x", "y", "s", "t"))
    return [
        x + y, x - 1, x * 2.5, y / x, x % 3, -x, x == 2, x != 2, x <= 2, x.eqNullSafe(None), x.between(1, 2),
        x.isin(1, 3), x.isNull(), x.isNotNull(), (x > 1) & (y > 1), (x > 1) | (y > 1), ~(x > 1), x.cast("string"),
        s.cast("string").like("a%"), s.startswith("a"), f.upper(s), f.concat(s, f.lit("'\\")), f.lit(Decimal("1.50")),
        f.lit(2**40), f.lit(float("nan")), f.lit(None).cast("int"), f.coalesce(x, f.lit(7)), f.length(s),
        f.when(x > 1, y).when(x > 0, 0.0).otherwise(f.lit(-1.0)), x.bitwiseAND(3), s.substr(1, 2), f.round(y, 1),
        f.lit(dt.date(2024, 2, 29)), t >= f.lit(dt.datetime(2024, 1, 1)), f.hour(t), f.expr("x + 1") * 2,
    ]  # fmt: skip


def test_columns_give_what_spark_gives(spark: SparkSession, tmp_path: Any) -> None:
    rows = [
        {"n": 1, "x": 1, "y": 0.1, "s": "abc", "t": dt.datetime(2024, 5, 1, 13)},
        {"n": 2, "x": 2, "y": 2.5, "s": None, "t": dt.datetime(2023, 5, 1, 3)},
        {"n": 3, "x": None, "y": None, "s": "b'\\", "t": None},
    ]
    schema = "n LONG, x INT, y DOUBLE, s STRING, t TIMESTAMP"
    made = [column.alias(f"c{i}") for i, column in enumerate(columns())]
    net = clew.Network("columns")
    stream: Stream = net.stream("rows", schema, order="n", key="n").map(*made)
    stream.filter(f.col("c0").isNull() | (f.col("c0") > 0)).output("out")
    with clew.open(tmp_path / "store", net, spark=spark, durable=False) as engine:
        engine.feed("rows", rows)
        found = engine.read("out")
        expected = spark.createDataFrame(rows, schema).orderBy("n").select(*made)
        assert found.dtypes == expected.dtypes
        assert repr(found.collect()) == repr(expected.collect())


def test_columns_may_be_called_by_any_word_of_sql(spark: SparkSession, tmp_path: Any) -> None:
    words = sorted({row.keyword.lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()})
    assert len(words) > 300
    net = clew.Network("words")
    schema = ", ".join(["n LONG", *(f"`{word}` LONG" for word in words)])
    rows = net.stream("rows", schema, order="n", key="n")
    rows.map("*", by_spark="n + cast(soundex('x') = '' AS INT)").output("starred")
    some = ("case", "values", "current_date")
    rows.map("n", *(f.col(word).alias(word) for word in some), x=f.col("from") + 1).output("named")
    batch = [{"n": 1, **{word: i for i, word in enumerate(words)}}]
    with clew.open(tmp_path / "store", net, spark=spark, durable=False) as engine:
        engine.feed("rows", batch)
        (starred,), (named,) = engine.read("starred").collect(), engine.read("named").collect()
    assert starred.asDict() == {**batch[0], "by_spark": 1}
    assert named.asDict() == {word: batch[0][word] for word in ("n", *some)} | {"x": words.index("from") + 1}
