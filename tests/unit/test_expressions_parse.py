"""What an expression may be, which columns it reads, and the text of every refusal."""

from __future__ import annotations

from textwrap import dedent

import pytest

from clew.errors import ClewError, NetworkError, NonDeterministic, SyntaxProblem, UnknownColumn
from clew.expressions.functions import NON_DETERMINISTIC, WITHOUT_PARENTHESES
from clew.expressions.parse import check_expression, columns_of, parse_expression, qualified_columns_of

COLUMNS = ["ts", "sensor", "celsius"]
WHAT, AT = "box 'overheating.hot' (filter) uses", "examples/overheating.py:14"


def check(sql: str, columns: list[str] = COLUMNS, *, aggregates: bool = False) -> tuple[str, ...]:
    return check_expression(sql, columns, what=WHAT, at=AT, aggregates=aggregates)


TEXTS = [
    (
        "celcius > 90",
        UnknownColumn,
        """
        box 'overheating.hot' (filter) uses column 'celcius', which its input does not have
          columns: ts, sensor, celsius
          hint: did you mean 'celsius'?
          at examples/overheating.py:14
        """,
    ),
    (
        "celsius > zzz",
        UnknownColumn,
        """
        box 'overheating.hot' (filter) uses column 'zzz', which its input does not have
          columns: ts, sensor, celsius
          at examples/overheating.py:14
        """,
    ),
    (
        "celsius < 350 and",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          celsius < 350 and
                        ^^^ something is missing here
          at examples/overheating.py:14
        """,
    ),
    (
        "celsius\n + sensor ts",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
           + sensor ts
                    ^^ unexpected here
          at examples/overheating.py:14
        """,
    ),
    (
        "abs(celsius",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          abs(celsius
              ^^^^^^^ not closed: ) is missing
          at examples/overheating.py:14
        """,
    ),
    (
        "sensor = 'a",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          sensor = 'a
                   ^ this quote is not closed
          at examples/overheating.py:14
        """,
    ),
    (
        "sensor; ts",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          sensor; ts
                ^ one expression ends here
          at examples/overheating.py:14
        """,
    ),
    (
        "sensor in (select 1)",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          sensor in (select 1)
                     ^^^^^^ no subquery can stand here
          hint: join the streams in the network
          at examples/overheating.py:14
        """,
    ),
    (
        "sum(ts) over (order by ts)",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          sum(ts) over (order by ts)
                  ^^^^ no window function can stand here
          hint: windows are boxes: .window(...).agg(...)
          at examples/overheating.py:14
        """,
    ),
    (
        "*",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          *
          ^ a star can stand in count(*) only
          hint: name the columns
          at examples/overheating.py:14
        """,
    ),
    (
        " ",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an empty expression
          at examples/overheating.py:14
        """,
    ),
    (
        "ts > :now",
        SyntaxProblem,
        """
        box 'overheating.hot' (filter) uses an expression that is not Spark SQL
          ts > :now
               ^ no parameter can stand here
          at examples/overheating.py:14
        """,
    ),
    (
        "celsius > avg(celsius)",
        NetworkError,
        """
        box 'overheating.hot' (filter) uses avg(), an aggregate, but sees one row at a time
          expression: celsius > avg(celsius)
          hint: aggregate over a window: .window(...).agg(...)
          at examples/overheating.py:14
        """,
    ),
    (
        "celsius > 90 * Rand(7)",
        NonDeterministic,
        """
        box 'overheating.hot' (filter) uses rand(), whose value is not one of its arguments
          hint: drop(fraction=...) samples rows by a hash, the same in every run
          at examples/overheating.py:14
        """,
    ),
    (
        "ts < current_timestamp",
        NonDeterministic,
        """
        box 'overheating.hot' (filter) uses current_timestamp, whose value is not one of its arguments
          hint: let a column of the stream carry the time
          at examples/overheating.py:14
        """,
    ),
    (
        "ts < date'today'",
        NonDeterministic,
        """
        box 'overheating.hot' (filter) uses the literal 'today', whose value is not one of its arguments
          hint: let a column of the stream carry the time
          at examples/overheating.py:14
        """,
    ),
]


@pytest.mark.parametrize(("sql", "kind", "text"), TEXTS)
def test_a_refusal_says_where_what_and_what_instead(sql: str, kind: type[ClewError], text: str) -> None:
    with pytest.raises(kind) as raised:
        check(sql)
    assert str(raised.value) == dedent(text).strip()


def test_an_expression_that_is_nested_too_deeply_is_told_so() -> None:
    with pytest.raises(SyntaxProblem) as raised:
        check("(" * 300 + "ts" + ")" * 300 + " > 1")
    assert str(raised.value).splitlines() == [
        "box 'overheating.hot' (filter) uses an expression that is nested too deeply",
        "  hint: compute a part of it in a .map(...) before",
        "  at examples/overheating.py:14",
    ]


ARGUMENTS = {"randstr": "5", "shuffle": "ts", "uniform": "1, 2"}


@pytest.mark.parametrize("name", sorted(NON_DETERMINISTIC))
def test_functions_of_the_clock_of_chance_and_of_the_machine_are_refused(name: str) -> None:
    with pytest.raises(NonDeterministic, match=f"uses {name}\\(\\), "):
        check(f"coalesce({name}({ARGUMENTS.get(name, '')}), 1)")


@pytest.mark.parametrize("call", ["system.builtin.rand()", "builtin . RAND(7)", "`system`.builtin.`Rand`()"])
def test_a_qualified_name_hides_no_function_of_chance(call: str) -> None:
    with pytest.raises(NonDeterministic, match=r"uses rand\(\), "):
        check(f"coalesce({call}, 1)")


@pytest.mark.parametrize("name", sorted(WITHOUT_PARENTHESES))
def test_a_column_may_have_the_name_of_a_function_called_without_parentheses(name: str) -> None:
    assert check(f"`{name.upper()}` is null", [*COLUMNS, name]) == (name,)
    with pytest.raises(NonDeterministic):
        check(f"{name} is null")


def test_a_column_that_would_be_read_as_a_function_wants_quotes() -> None:
    assert check("user is null", ["user"]) == ("user",)
    with pytest.raises(NonDeterministic) as raised:
        check("current_date is null", ["current_date"])
    assert raised.value.hint == "for the column write `current_date`"


def test_unix_timestamp_is_refused_only_without_arguments() -> None:
    assert check("unix_timestamp(ts) + 1") == ("ts",)
    with pytest.raises(NonDeterministic):
        check("unix_timestamp()")


@pytest.mark.parametrize(
    "sql", ["select 1", "ts sensor", "ts as t", "ts, sensor", "create table x", "t.*", "count(distinct *)", "ts + )"]
)
def test_what_is_not_one_expression_is_refused(sql: str) -> None:
    with pytest.raises(SyntaxProblem):
        check(sql, aggregates=True)


def test_columns_are_found_whatever_their_case_and_named_as_declared() -> None:
    assert check("CELSIUS > 3 and `Ts` = tS") == ("celsius", "ts")


def test_aggregates_are_allowed_where_they_may_stand() -> None:
    assert check("count(*) + sum(celsius)", aggregates=True) == ("celsius",)


def test_columns_come_in_order_of_first_use() -> None:
    tree = parse_expression("case when c > a then b else -a * c end")
    assert columns_of(tree) == ["c", "a", "b"]


def test_variables_of_a_lambda_are_no_columns() -> None:
    assert check("exists(celsius, x -> x > ts)") == ("celsius", "ts")


def test_qualified_columns_keep_their_side() -> None:
    tree = parse_expression("left.price > right.price + delta")
    assert qualified_columns_of(tree) == [("left", "price"), ("right", "price"), (None, "delta")]


def test_a_residual_is_checked_against_qualified_columns() -> None:
    sides = ["left.price", "right.price", "right.size"]
    assert check("LEFT.price > right.Price", sides) == ("left.price", "right.price")
    with pytest.raises(UnknownColumn) as raised:
        check("size > 1", sides)
    assert raised.value.hint == "write right.size"


@pytest.mark.parametrize("condition", ["x LIKE ANY ('a', 'b')", "x NOT ILIKE ALL ('a')", "x like some ('%')"])
def test_any_all_and_some_behind_like_are_no_aggregates(condition: str) -> None:
    assert check_expression(condition, ["x"], what="box 'n.f' (filter) filters by", at="f.py:1") == ("x",)
