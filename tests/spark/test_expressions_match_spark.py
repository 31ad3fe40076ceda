"""Compiled expressions against Spark itself: types, values to the bit, nulls, and what fails.

The corpus is generated from a seed: expressions of each family over columns of nasty values. Spark
evaluates each where clew says that it does not fail (if Spark fails there, the test fails); rows that
clew marks as failed are then given to Spark one by one.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clew.expressions.compile import Compiled, compile_expression

INT_VALUES = {8: [0, 1, -1, 5, 127, -128], 16: [0, 1, -1, 300, 32767, -32768]}
INT_VALUES[32] = [0, 1, -1, 2, 7, -13, 46341, 2**31 - 1, -(2**31)]
INT_VALUES[64] = [0, 1, -1, 3, -10, 2**31, 3037000500, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOAT_VALUES = [0.0, -0.0, 1.0, -1.5, 0.1, 3.7, 1e-45, 1e38, 2.0**31, 127.5, math.nan, math.inf, -math.inf]
DOUBLE_VALUES = [*FLOAT_VALUES, 1e300, 5e-324, 2.0**63, -(2.0**63), 2147483647.9, 4.9]
STRINGS = ["", "a", "A", "ab", "é", "\U0001f600", "￿", "null", "a%b", " a"]
MOMENTS = [dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29, 1, 2, 3)]

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "y": (pa.int8(), [*INT_VALUES[8]]),
    "h": (pa.int16(), [*INT_VALUES[16]]),
    "i": (pa.int32(), [*INT_VALUES[32]]),
    "j": (pa.int32(), [*INT_VALUES[32]]),
    "l": (pa.int64(), [*INT_VALUES[64]]),
    "k": (pa.int64(), [*INT_VALUES[64]]),
    "f": (pa.float32(), [*FLOAT_VALUES]),
    "g": (pa.float32(), [*FLOAT_VALUES]),
    "d": (pa.float64(), [*DOUBLE_VALUES]),
    "e": (pa.float64(), [*DOUBLE_VALUES]),
    "s": (pa.string(), [*STRINGS]),
    "t": (pa.string(), [*STRINGS]),
    "b": (pa.bool_(), [True, False]),
    "c": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [m.date() for m in MOMENTS]),
    "ts": (pa.timestamp("us", tz="UTC"), [m.replace(tzinfo=dt.UTC) for m in MOMENTS]),
    "ts2": (pa.timestamp("us", tz="UTC"), [m.replace(tzinfo=dt.UTC) for m in MOMENTS]),
    "ntz": (pa.timestamp("us"), [*MOMENTS]),
}
INT_LITERALS = ["0", "1", "-1", "2", "7", "100", "2147483647", "-2147483648", "3000000000", "5L", "-3L", "4Y", "300S"]
FLOAT_LITERALS = ["0.0", "1.5", "-2.25", "1e3", "1.5D", "-0.0D", "2.5F", "0.1", "1e-3", "0", "2", "9223372036854775807"]


def nasty_table(rows: int = 240, seed: int = 5) -> pa.Table:
    chance = random.Random(seed)
    columns = {}
    for name, (kind, values) in COLUMNS.items():
        picked = [None if chance.random() < 0.12 else chance.choice(values) for _ in range(rows)]
        columns[name] = pa.array(picked, kind)
    return pa.table(columns)


class Corpus:
    """Random expressions of each family."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)

    def whole(self, depth: int) -> str:
        if depth == 0:
            return self.pick("y", "h", "i", "j", "l", "k", "i", "l", self.pick(*INT_LITERALS))
        a, b = self.whole(depth - 1), self.whole(self.chance.randrange(depth))
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} % {b})", f"({a} div {b})", f"(- {a})", f"abs({a})",
            f"cast({a} as {self.pick('tinyint', 'smallint', 'int', 'bigint')})",
            f"cast({self.real(depth - 1)} as {self.pick('int', 'bigint', 'smallint')})",
            f"cast({self.truth(depth - 1)} as int)", self.choice(self.whole, depth), f"nullif({a}, {b})",
            f"greatest({a}, {b})", f"least({a}, {b}, {self.whole(0)})", f"({a} + null)",
        )  # fmt: skip

    def real(self, depth: int) -> str:
        if depth == 0:
            return self.pick("d", "e", "d", "f", "g", self.pick(*FLOAT_LITERALS))
        a, b = self.real(depth - 1), self.chance.choice([self.real, self.whole])(self.chance.randrange(depth))
        if self.chance.random() < 0.3:
            a, b = b, a
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})", f"(-{a})", f"abs({a})",
            f"({self.whole(depth - 1)} / {self.whole(0)})", f"cast({a} as {self.pick('float', 'double')})",
            f"cast({self.whole(depth - 1)} as {self.pick('float', 'double')})", self.choice(self.real, depth),
            f"nullif({a}, {b})", f"greatest({a}, {b})", f"least({a}, {b})",
        )  # fmt: skip

    def truth(self, depth: int) -> str:
        if depth == 0:
            return self.pick("b", "c", "b", "true", "false")
        op = self.pick("=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "==")
        family = self.chance.choice([self.whole, self.real, self.moment])
        a, b = family(depth - 1), family(self.chance.randrange(depth))
        p, q = self.truth(depth - 1), self.truth(self.chance.randrange(depth))
        s, r = self.text(depth - 1), self.text(0)
        number = a if family is not self.moment else "i"
        quoted, listed = self.pick("'é'", "null"), self.pick("null", "5")
        return self.pick(
            f"({a} {op} {b})", f"({self.whole(depth - 1)} {op} {self.real(0)})",
            f"({s} {self.pick('=', '<', '>=', '<>')} {r})", f"({p} and {q})", f"({p} or {q})", f"(not {p})",
            f"({p} and {q})", f"({p} or {q})", f"({a} is null)", f"({p} is not null)",
            f"isnan({self.pick('d', 'f')})", f"({a} between {b} and {family(0)})",
            f"({self.whole(depth - 1)} in (1, 2, {self.pick(*INT_LITERALS)}, {listed}))",
            f"({self.real(depth - 1)} not in (0, 1.5, {self.pick('2', 'null')}))", f"({s} in ('a', '', {quoted}))",
            f"({s} like '{self.pick('a%', '%b', '%a%', 'a', '%', '')}')", f"({s} not like 'a%')",
            self.choice(self.truth, depth), f"cast({self.pick(number, 'd')} as boolean)", f"({p} is true)",
            f"({p} = {q})", f"({p} <=> null)", f"({p} and null)",
        )  # fmt: skip

    def text(self, depth: int) -> str:
        if depth == 0:
            return self.pick("s", "t", "s", "'a'", "''", "'é'")
        return self.pick(self.choice(self.text, depth), f"nullif({self.text(depth - 1)}, {self.text(0)})")

    def moment(self, depth: int) -> str:
        if depth == 0:
            return self.pick("ts", "ts2", "timestamp'2024-02-29 01:02:03'", "timestamp'1969-12-31 23:59:59.999999'")
        return self.pick(self.choice(self.moment, depth), f"greatest(ts, {self.moment(0)})")

    def choice(self, family: object, depth: int) -> str:
        a, b, p = family(depth - 1), family(0), self.truth(depth - 1)  # type: ignore[operator]
        return self.pick(
            f"if({p}, {a}, {b})", f"coalesce({a}, {b})", f"case when {p} then {a} when c then {b} end",
            f"case when {p} then {a} else {b} end", f"nvl({b}, {a})", f"if({p}, {a}, null)",
            f"case i when {self.whole(0)} then {a} else {b} end",
        )  # fmt: skip


def corpus(seed: int, each: int) -> list[str]:
    made = Corpus(seed)
    families = [made.whole, made.real, made.truth, made.text, made.moment]
    texts = [f(depth) for f in families for depth in (1, 2, 3) for _ in range(each)]
    plain = ["day", "ntz", "s", "day = date'2024-02-29'", "ntz < timestamp_ntz'2024-02-29 01:02:03'", "day is null"]
    return list(dict.fromkeys([*plain, *texts]))


def bits(column: pa.Array) -> list[object]:
    """Values that compare equal only if they are the same bits; all NaNs are one."""
    if not pa.types.is_floating(column.type):
        return list(column.to_pylist())
    return [v if v is None else "nan" if math.isnan(v) else (v, math.copysign(1, v)) for v in column.to_pylist()]


def compiled_corpus(table: pa.Table, seed: int, each: int) -> list[Compiled]:
    made = [compile_expression(sql, table.schema) for sql in corpus(seed, each)]
    return [m for m in made if m is not None]


def from_spark(spark: SparkSession, path: Path, table: pa.Table, made: list[Compiled]) -> pa.Table:
    """Spark's values of the expressions on the rows on which clew says they do not fail."""
    fails = [m.evaluate(table).failed for m in made]
    wide = table.append_column("_row", pa.array(range(len(table))))
    for n, failed in enumerate(fails):
        if failed is not None:
            wide = wide.append_column(f"_ok{n}", pa.array(~failed))
    pq.write_table(wide, path)
    texts = [
        f"{m.sql} as _v{n}" if fails[n] is None else f"case when _ok{n} then {m.sql} end as _v{n}"
        for n, m in enumerate(made)
    ]
    frame = spark.read.parquet(str(path))
    return frame.selectExpr("_row", *texts).orderBy("_row").toArrow()


def same_in_both(spark: SparkSession, path: Path, table: pa.Table, made: list[Compiled]) -> None:
    for start in range(0, len(made), 40):
        part = made[start : start + 40]
        theirs = from_spark(spark, path / f"{start}.parquet", table, part)
        for n, one in enumerate(part):
            column, ours = theirs.column(f"_v{n}").combine_chunks(), one.evaluate(table).values
            ours.validate(full=True)
            assert column.type == one.type, one.sql
            assert bits(column) == bits(ours), one.sql


@pytest.fixture
def tree_by_tree(spark: SparkSession) -> SparkSession:
    """A session that does not hoist common parts out of branches that are not taken."""
    session = spark.newSession()
    for name in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive"):
        session.conf.set(name, str(spark.conf.get(name)))
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    return session


def test_a_generated_corpus_has_the_types_values_and_nulls_of_sparks_compiled_code(
    tree_by_tree: SparkSession, tmp_path: Path
) -> None:
    table = nasty_table()
    made = compiled_corpus(table, seed=11, each=4)
    assert len(made) > 45
    same_in_both(tree_by_tree, tmp_path, table, made)


def test_a_generated_corpus_has_the_types_values_and_nulls_of_sparks_interpreter(
    tree_by_tree: SparkSession, tmp_path: Path
) -> None:
    tree_by_tree.conf.set("spark.sql.codegen.wholeStage", "false")
    tree_by_tree.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    table = nasty_table(seed=6)
    made = compiled_corpus(table, seed=12, each=15)
    assert len(made) > 160
    same_in_both(tree_by_tree, tmp_path, table, made)


LAZY = [
    "i <> 0 and 10 / i > 1",
    "i = 0 or 10 / i > 1",
    "i is null or i = 0 or 10 % i >= 0",
    "case when i = 0 then -1 when 10 div i > 1 then 1 else 0 end",
    "if(i = 0, 0, 10 div i)",
    "coalesce(j, 10 div nullif(i, 0))",
    "case when i <> 0 then 1 / i end",
    "i <> 0 and i + 0 <> 0 and (b or 100 div i > 3)",
    "10 / nullif(i, 0)",
    "true or 1 / i > 0",
    "1 / i > 0 and false",
    "1 / i + null",
    "l = 9007199254740992e0",
    "d = 1 or d in (0, 1.5)",
    "d = -0.0D and e <=> 0",
    "-0.0 + d",
    "cast(9223372036854775807 as double) = d",
    "cast(d as double) > 3",
    "f = 0.1 or f = 0.1F",
    "l > 3.5D",
    "y = 127 and h > 100 and 2147483648 > i",
    "s > 'a' and s <= '￿'",
    "s in ('a', 'é') or s like '%b'",
    "ts >= timestamp'1969-12-31 23:59:59.999999'",
]


def test_what_spark_does_not_evaluate_does_not_fail(tree_by_tree: SparkSession, tmp_path: Path) -> None:
    table = nasty_table()
    made = [compile_expression(sql, table.schema) for sql in LAZY]
    assert [sql for sql, one in zip(LAZY, made, strict=True) if one is None] == []
    lazy = [one for one in made if one is not None]
    assert [m.sql for m in lazy[:13] if m.evaluate(table).failed is not None] == []
    same_in_both(tree_by_tree, tmp_path, table, lazy)


FAILURES = [
    ("i + j", {"i": 2**31 - 1, "j": 1}, "ARITHMETIC_OVERFLOW"),
    ("i - j", {"i": -(2**31), "j": 1}, "ARITHMETIC_OVERFLOW"),
    ("i * j", {"i": 46341, "j": 46341}, "ARITHMETIC_OVERFLOW"),
    ("l + k", {"l": 2**63 - 1, "k": 1}, "ARITHMETIC_OVERFLOW"),
    ("l - k", {"l": -2, "k": 2**63 - 1}, "ARITHMETIC_OVERFLOW"),
    ("l * k", {"l": 3037000500, "k": 3037000500}, "ARITHMETIC_OVERFLOW"),
    ("l * k", {"l": -1, "k": -(2**63)}, "ARITHMETIC_OVERFLOW"),
    ("l div -1", {"l": -(2**63)}, "ARITHMETIC_OVERFLOW"),
    ("-l", {"l": -(2**63)}, "ARITHMETIC_OVERFLOW"),
    ("abs(i)", {"i": -(2**31)}, "ARITHMETIC_OVERFLOW"),
    ("abs(y)", {"y": -128}, "ARITHMETIC_OVERFLOW"),
    ("-h", {"h": -32768}, "ARITHMETIC_OVERFLOW"),
    ("y + 1Y", {"y": 127}, "BINARY_ARITHMETIC_OVERFLOW"),
    ("h * h", {"h": 300}, "BINARY_ARITHMETIC_OVERFLOW"),
    ("1 / i", {"i": 0}, "DIVIDE_BY_ZERO"),
    ("d / e", {"d": 1.0, "e": -0.0}, "DIVIDE_BY_ZERO"),
    ("d / e", {"d": math.nan, "e": 0.0}, "DIVIDE_BY_ZERO"),
    ("l div i", {"l": 1, "i": 0}, "DIVIDE_BY_ZERO"),
    ("l % i", {"l": 1, "i": 0}, "REMAINDER_BY_ZERO"),
    ("d % e", {"d": 1.0, "e": 0.0}, "REMAINDER_BY_ZERO"),
    ("cast(d as int)", {"d": 2147483648.0}, "CAST_OVERFLOW"),
    ("cast(d as bigint)", {"d": math.nan}, "CAST_OVERFLOW"),
    ("cast(f as tinyint)", {"f": 128.0}, "CAST_OVERFLOW"),
    ("cast(l as int)", {"l": 2**31}, "CAST_OVERFLOW"),
    ("cast(i as tinyint)", {"i": -129}, "CAST_OVERFLOW"),
    ("b and 1 / i > 0", {"i": 0}, "DIVIDE_BY_ZERO"),  # null and ...: the right side decides
    ("1 / i > 0 and b", {"i": 0, "b": False}, "DIVIDE_BY_ZERO"),
    ("(i + j) / (l % k)", {"i": 2**31 - 1, "j": 1, "l": 1, "k": 0}, "REMAINDER_BY_ZERO"),  # divisor first
    ("(i + j) * (l % k)", {"i": 2**31 - 1, "j": 1, "l": 1, "k": 0}, "ARITHMETIC_OVERFLOW"),
    ("(1 / i) <=> d", {"i": 0}, "DIVIDE_BY_ZERO"),
    ("greatest(j, 1 div i)", {"j": 5, "i": 0}, "DIVIDE_BY_ZERO"),
]


@pytest.mark.parametrize(("sql", "row", "reason"), FAILURES)
def test_a_row_marked_as_failed_fails_in_spark_for_the_same_reason(
    spark: SparkSession, sql: str, row: dict[str, object], reason: str
) -> None:
    table = pa.table({name: pa.array([row.get(name)], kind) for name, (kind, _) in COLUMNS.items()})
    made = compile_expression(sql, table.schema)
    assert made is not None
    result = made.evaluate(table)
    assert (result.values.to_pylist(), result.reason(0)) == ([None], reason)
    with pytest.raises(PySparkException) as raised:
        spark.createDataFrame(table).selectExpr(f"{sql} as value").toArrow()
    assert str(raised.value.getCondition()).split(".")[0] == reason
