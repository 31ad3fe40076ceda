"""Compiled expressions: values, nulls, failures, what is left to Spark, and what carries progress."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from clew.expressions.compile import Compiled, compile_expression, is_monotone_in

TABLE = pa.table(
    {
        "i": pa.array([1, None, 0, -(2**31)], pa.int32()),
        "l": pa.array([1, 2, None, 2**63 - 1], pa.int64()),
        "d": pa.array([0.5, math.nan, None, -0.0], pa.float64()),
        "f": pa.array([1.1, None, 2.0, math.inf], pa.float32()),
        "s": pa.array(["a", "", None, "é"], pa.string()),
        "b": pa.array([True, None, False, True], pa.bool_()),
        "ts": pa.array([-1, 0, None, 10**6], pa.timestamp("us", tz="UTC")),
        "day": pa.array([0, 1, None, 19782], pa.date32()),
        "left.x": pa.array([1, 2, 3, 4], pa.int32()),
        "money": pa.array([1, None, 3, 4], pa.decimal128(10, 2)),
    }
)


def compiled(sql: str) -> Compiled:
    made = compile_expression(sql, TABLE.schema)
    assert made is not None, sql
    return made


VALUES: list[tuple[str, str, list[object]]] = [
    ("i + 1", "int32", [2, None, 1, -(2**31) + 1]),
    ("i + 1L", "int64", [2, None, 1, -(2**31) + 1]),
    ("i / 2", "double", [0.5, None, 0.0, -(2.0**30)]),
    ("i div 2", "int64", [0, None, 0, -(2**30)]),
    ("i % 3", "int32", [1, None, 0, -2]),
    ("f + f", "float", [float(np.float32(2.2)), None, 4.0, math.inf]),
    ("f * 1.5", "double", [float(np.float32(1.1)) * 1.5, None, 3.0, math.inf]),
    ("i + null", "int32", [None, None, None, None]),
    ("d = d", "bool", [True, True, None, True]),
    ("d > 1e300", "bool", [False, True, None, False]),
    ("d = 0", "bool", [False, False, None, True]),
    ("d <=> null", "bool", [False, False, True, False]),
    ("s >= 'a'", "bool", [True, False, None, True]),
    ("s like 'a%'", "bool", [True, False, None, False]),
    ("s in ('a', null)", "bool", [True, None, None, None]),
    ("l in (1, 2)", "bool", [True, True, None, False]),
    ("l not in (1, 3)", "bool", [False, True, None, True]),
    ("i between 0 and 1", "bool", [True, None, True, False]),
    ("b and i = 1", "bool", [True, None, False, False]),
    ("b or i = 1", "bool", [True, None, False, True]),
    ("not b", "bool", [False, None, True, False]),
    ("b is null", "bool", [False, True, False, False]),
    ("isnan(d)", "bool", [False, True, False, False]),
    ("case when b then s end", "string", ["a", None, None, "é"]),
    ("coalesce('a', s) in ('b', null)", "bool", [None, None, None, None]),
    ("coalesce('a', s) like 'a%'", "bool", [True, True, True, True]),
    ("coalesce(l, i, 7)", "int64", [1, 2, 0, 2**63 - 1]),
    ("nullif(i, 0)", "int32", [1, None, None, -(2**31)]),
    ("greatest(i, l)", "int64", [1, 2, 0, 2**63 - 1]),
    ("cast(b as int)", "int32", [1, None, 0, 1]),
    ("ts < timestamp'1970-01-01 00:00:00.5'", "bool", [True, True, None, False]),
    ("day = date'2024-02-29'", "bool", [False, False, None, True]),
    ("left.x * 2", "int32", [2, 4, 6, 8]),
    ("money is null", "bool", [False, True, False, False]),
    ("7", "int32", [7, 7, 7, 7]),
    ("I + `left.x`", "int32", [2, None, 3, -(2**31) + 4]),
]


@pytest.mark.parametrize(("sql", "kind", "values"), VALUES)
def test_an_expression_has_sparks_type_values_and_nulls(sql: str, kind: str, values: list[object]) -> None:
    made = compiled(sql)
    result = made.evaluate(TABLE)
    result.values.validate(full=True)
    assert (str(made.type), result.values.type, result.failed) == (kind, made.type, None)
    assert result.values.to_pylist() == values


def test_columns_are_passed_on_without_a_copy() -> None:
    assert compiled("money").evaluate(TABLE).values.equals(TABLE.column("money").chunk(0))
    column = TABLE.column("l").chunk(0)
    assert compiled("l").evaluate(TABLE).values.buffers()[1].address == column.buffers()[1].address


@pytest.mark.parametrize(
    ("sql", "reasons"),
    [
        ("10 / i", ["", "", "DIVIDE_BY_ZERO", ""]),
        ("10 % i", ["", "", "REMAINDER_BY_ZERO", ""]),
        ("-i", ["", "", "", "ARITHMETIC_OVERFLOW"]),
        ("l + 1", ["", "", "", "ARITHMETIC_OVERFLOW"]),
        ("cast(d as int)", ["", "CAST_OVERFLOW", "", ""]),
        ("10 / i + (l + 1)", ["", "", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW"]),
    ],
)
def test_a_row_on_which_spark_would_raise_is_marked_with_the_reason(sql: str, reasons: list[str]) -> None:
    result = compiled(sql).evaluate(TABLE)
    assert [result.reason(row) for row in range(4)] == reasons
    assert result.failed is not None
    assert result.failed.tolist() == [r != "" for r in reasons]
    assert all(v is None for v, r in zip(result.values.to_pylist(), reasons, strict=True) if r)


@pytest.mark.parametrize(
    "sql",
    [
        "i <> 0 and 10 / i > 1",
        "i = 0 or 10 / i > 1",
        "if(i = 0, null, 10 / i)",
        "case when i = 0 then 0 else 10 / i end",
        "coalesce(left.x, 10 div i)",
        "10 / nullif(i, 0)",
        "10 / i > 1 and false",
        "null + 10 / i",
    ],
)
def test_what_spark_does_not_evaluate_does_not_fail(sql: str) -> None:
    assert compiled(sql).evaluate(TABLE).failed is None


def test_a_timestamp_literal_needs_the_zone() -> None:
    sql = "ts < timestamp'1970-01-01 00:00:00'"
    assert compile_expression(sql, TABLE.schema, zone="Europe/Paris") is None
    assert compile_expression(sql, TABLE.schema, zone="UTC") is not None


def test_null_and_a_failure_fails() -> None:
    table = pa.table({"b": pa.array([None, False], pa.bool_()), "i": pa.array([0, 0], pa.int32())})
    made = compile_expression("b and 1 / i > 0", table.schema)
    assert made is not None
    assert made.evaluate(table).reason(0) == "DIVIDE_BY_ZERO"
    assert made.evaluate(table).reason(1) == ""


def test_a_condition_keeps_what_is_true() -> None:
    keep, result = compiled("10 / i > 1").keep(TABLE)
    assert keep.tolist() == [True, False, False, False]
    assert result.reason(2) == "DIVIDE_BY_ZERO"
    assert compiled("i is null or true").keep(TABLE)[0].tolist() == [True] * 4


def test_rows_are_the_same_however_the_table_is_chunked_and_sliced() -> None:
    table = pa.concat_tables([TABLE, TABLE, TABLE])
    for sql, _, _ in VALUES:
        whole = compiled(sql).evaluate(table).values
        parts = [compiled(sql).evaluate(table.slice(at, 5)).values for at in range(0, 12, 5)]
        assert repr(pa.concat_arrays(parts).to_pylist()) == repr(whole.to_pylist()), sql


def test_an_empty_table_gives_an_empty_column() -> None:
    for sql, _, _ in VALUES:
        made = compiled(sql)
        result = made.evaluate(TABLE.slice(0, 0))
        assert (len(result.values), result.values.type, result.failed) == (0, made.type, None), sql


@pytest.mark.parametrize("sql", ["l + 1 + l", "l * 2 * l", "i + (1 + (i + i))", "(l + 1) + 1"])
def test_integer_chains_that_spark_reorders_are_left_to_it(sql: str) -> None:
    assert compile_expression(sql, TABLE.schema) is None


@pytest.mark.parametrize(
    "sql",
    [
        "nowhere", "null", "1.5", "i > 1.5", "upper(s)", "s = 1", "day > '2024-01-01'", "day = ts", "day + 1", "s || s",
        "cast(s as int)", "cast(i as string)", "try_cast(i as tinyint)", "cast(1.5 as int)", "round(d)", "money + 1",
        "1 / 0", "2147483647 + 1", "i = 1 = true", "b = b is null and i < 1 = b", "+s", "s = 'a''b'", "s = 'a\\n'",
        "s like 'a_'", "s like '%a%b%'", "s like s", "timestamp'2024-01-01' = ts", "cast(cast(l as float) as double)",
        "d in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "if(b, 1, 'a')", "sum(i)", "count(*)", "i ~ 1", "rand() > i",
        "99999999999999999999", "1e999", "s = '${x}'", "money > 1", "-9223372036854775808L",
    ],
)  # fmt: skip
def test_what_is_outside_the_subset_is_left_to_spark(sql: str) -> None:
    assert compile_expression(sql, TABLE.schema) is None


@pytest.mark.parametrize(
    "sql",
    ["ts", "(TS)", "ts + 1", "1.5 + ts", "ts - 3", "ts - -3", "ts * 2", "0.5 * ts", "ts / 2", "ts div 60L",
     "cast(ts as bigint) div 60 * 60", "double(ts)"],
)  # fmt: skip
def test_what_never_decreases_carries_progress(sql: str) -> None:
    assert is_monotone_in(sql, "ts")


@pytest.mark.parametrize(
    "sql",
    ["-ts", "5 - ts", "ts * -1", "ts * 0", "2 / ts", "ts % 5", "ts + x", "x", "abs(ts)", "ts * ts", "ts + null",
     "cast(ts as string)", "left.ts", "try_cast(ts as int)", "ts ts", "7", "ts + ts", "ts / -2", "cast(ts as boolean)"],
)  # fmt: skip
def test_what_may_decrease_or_reads_more_does_not(sql: str) -> None:
    assert not is_monotone_in(sql, "ts")
