"""A row on which Spark fails is rejected with Spark's reason, whatever the error; the others go on."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import clew
from clew.errors import BoxFailed, NetworkError, TypeProblem

CASES = [
    ("str_to_map(x)['a']", "STRING", "a:1", "a:1,a:2", "[DUPLICATED_MAP_KEY]"),
    ("sequence(1, x, 1)[0]", "INT", 5, -5, "requirement failed: Illegal sequence boundaries: 1 to -5 by 1"),
    ("url_decode(x)", "STRING", "a", "%z", "[CANNOT_DECODE_URL]"),
    ("encode(x, 'US-ASCII')", "STRING", "e", "é", "[MALFORMED_CHARACTER_CODING]"),
]


def one_box(expression: str, kind: str) -> clew.Network:
    net = clew.Network("one")
    net.stream("s", f"t LONG, x {kind}", order="t", key="t").map("t", f"{expression} AS y").output("o")
    return net


@pytest.mark.parametrize(("expression", "kind", "good", "bad", "reason"), CASES, ids=[c[0] for c in CASES])
def test_a_row_on_which_spark_fails_is_rejected_for_sparks_reason(
    spark: SparkSession, tmp_path: Path, expression: str, kind: str, good: Any, bad: Any, reason: str
) -> None:
    rows = [{"t": t, "x": bad if t == 3 else good} for t in range(6)]
    with clew.open(tmp_path / "s", one_box(expression, kind), spark=spark, lane="driver") as engine:
        done = engine.feed("s", rows)
        assert (done.outputs, done.rejected) == ({"o": 5}, 1)
        (rejected,) = engine.rejected("map").collect()
        assert rejected.reason.startswith(reason)
        assert '"t": 3' in rejected.row


def test_what_fails_without_rows_too_is_no_rows_fault(spark: SparkSession, tmp_path: Path) -> None:
    spark.udf.register("gone_by_then", lambda x: x, "int")
    with clew.open(tmp_path / "s", one_box("gone_by_then(x)", "INT"), spark=spark, lane="driver") as engine:
        spark.sql("DROP TEMPORARY FUNCTION gone_by_then")
        with pytest.raises(BoxFailed, match="box 'map' failed in Spark"):
            engine.feed("s", [{"t": 1, "x": 1}])
        assert engine.last_epoch == 0


def test_an_expression_of_no_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TypeProblem, match=r"computes 'raise_error\(x\)', which is VOID: no column can hold it"):
        clew.open(tmp_path / "s", one_box("raise_error(x)", "STRING"), spark=spark)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            f"x > {'9' * 44}",
            "[DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION] Decimal precision 44 exceeds max precision 38.",
        ),
        (
            "x > timestamp'garbage'",
            "[INVALID_TYPED_LITERAL] The value of the typed literal \"TIMESTAMP\" is invalid: 'garbage'.",
        ),
    ],
)
def test_what_spark_refuses_is_told_with_its_reason(spark: SparkSession, tmp_path: Path, sql: str, reason: str) -> None:
    net = clew.Network("net")
    net.stream("s", "t LONG, x DOUBLE", order="t", key="t").filter(sql).output("o")
    with pytest.raises(TypeProblem) as raised:
        clew.open(tmp_path / "s", net, spark=spark)
    assert str(raised.value).splitlines()[:3] == [
        f"box 'net.filter' (filter) has an expression that Spark refuses: '{sql}'",
        f"  {reason}",
        "  input: t BIGINT, x DOUBLE",
    ]


def test_spark_gets_every_type_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """A time without a zone stays one, also where a clock skips it; a comment ends with its line."""
    net = clew.Network("types")
    s = net.stream("s", "t LONG, n TIMESTAMP_NTZ, a ARRAY<TIMESTAMP_NTZ>", order="t", key="t")
    s.map("t", "n", "a", u="pmod(t, 7) -- of a week", kind="typeof(n)").output("o")
    times = [dt.datetime(2024, 7, 31, 2, 30), dt.datetime(2024, 3, 31, 2, 30)]  # the second is skipped in Berlin
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with clew.open(tmp_path / "s", net, spark=session, time_zone="Europe/Berlin", lane="driver") as engine:
        engine.feed("s", [{"t": i, "n": n, "a": [n]} for i, n in enumerate(times)])
        rows = engine._store.read_table("o").to_pylist()
    assert [(r["n"], r["a"], r["u"], r["kind"]) for r in rows] == [
        (n, [n], i, "timestamp_ntz") for i, n in enumerate(times)
    ]


def joined(how: Any, where: str) -> clew.Network:
    net = clew.Network("joined")
    left, right = (net.stream(n, f"t LONG, {n} DECIMAL(9, 2)", order="t", key="t") for n in ("x", "y"))
    left.join(right, within=1, where=where, how=how, name="near").output("o")
    return net


@pytest.mark.parametrize("where", ["x > y", "abs(x) > y and hash(x) is not null"])
def test_an_inner_join_takes_any_condition(spark: SparkSession, tmp_path: Path, where: str) -> None:
    rows = {n: pa.table({"t": range(4), n: pa.array(range(4), pa.int64()).cast(pa.decimal128(21, 2)).cast(
        pa.decimal128(9, 2))}) for n in "xy"}  # fmt: skip
    with clew.open(tmp_path / "s", joined("inner", where), spark=spark, lane="driver") as engine:
        engine.feed_all(rows)
        found = [(r.t, r.t_right) for r in engine.read("o").collect()]
        assert engine.late("near").count() == 0
    assert found == [(1, 0), (2, 1), (3, 2)]


def test_a_left_join_says_which_conditions_it_does_not_take(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="has a condition that only Spark can evaluate, in a left join: 'x > y'"):
        clew.open(tmp_path / "s", joined("left", "x > y"), spark=spark)
