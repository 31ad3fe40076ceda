"""Aggregations split into arguments, calls and results, and the text of every refusal."""

from __future__ import annotations

from textwrap import dedent

import pyarrow as pa
import pytest

from clew.errors import ClewError, NetworkError
from clew.expressions.aggregates import (
    AggregateCall,
    AggregatePlan,
    UserFunction,
    in_users_words,
    split_aggregates,
    users_columns,
)
from clew.expressions.functions import AGGREGATES, OTHER_AGGREGATES


def split(*items: str | UserFunction, by: tuple[str, ...] = ("sensor",)) -> AggregatePlan:
    named = [(f"o{n}", item) for n, item in enumerate(items)]
    return split_aggregates(
        named, by, what="box 'o.w' (window) aggregates", at="f.py:1", columns=["price", "volume", "x"]
    )


def test_arguments_calls_and_results_are_shared_among_outputs() -> None:
    plan = split("sum(price*volume)/sum(Volume)", "sum(price * VOLUME) + 1", "count(*)", "count(1)")
    assert plan.before == (("_x0", "price*volume"),)
    assert plan.calls == (
        AggregateCall("_a0", "sum", ("_x0",)),
        AggregateCall("_a1", "sum", ("volume",)),
        AggregateCall("_a2", "count"),
    )
    assert plan.after == (("o0", "_a0/_a1"), ("o1", "_a0 + 1"), ("o2", "_a2"), ("o3", "_a2"))


def test_calls_and_messages_are_told_in_the_users_words() -> None:
    calls = split("sum(price * volume) / sum(distinct_ones)", "SUM( price * volume )", "last(x) ignore nulls").calls
    assert [(c.text, c.shown, c.output) for c in calls] == [
        ("sum(price * volume)", ("price * volume",), "o1"),
        ("sum(distinct_ones)", ("distinct_ones",), ""),
        ("last(x) ignore nulls", ("x",), "o2"),
    ]
    assert users_columns(["sensor", "_a0", "_a1"], calls) == ["sensor", "o1", "sum(distinct_ones)"]
    assert in_users_words("X in '_a0 / _a1', x_a0 and _a9", calls) == (
        "X in 'sum(price * volume) / sum(distinct_ones)', x_a0 and _a9"
    )


def test_texts_in_arguments_differ_by_case_and_names_do_not() -> None:
    assert len(split("max(concat(x, 'A'))", "max(concat(x, 'a'))").before) == 2
    assert len(split("max(concat(x, 'A'))", "max(CONCAT(X, 'A'))").before) == 1


CALLS = [
    ("count(x)", AggregateCall("_a0", "count", ("x",))),
    ("count(x, price)", AggregateCall("_a0", "count", ("x", "price"))),
    ("COUNT(DISTINCT X)", AggregateCall("_a0", "count", ("x",), distinct=True)),
    ("count(distinct x, price)", AggregateCall("_a0", "count", ("x", "price"), distinct=True)),
    ("count(null)", AggregateCall("_a0", "count", ("_x0",))),
    ("first(x)", AggregateCall("_a0", "first", ("x",))),
    ("first(x, true)", AggregateCall("_a0", "first", ("x",), ignore_nulls=True)),
    ("first(x, false)", AggregateCall("_a0", "first", ("x",))),
    ("first_value(x) ignore nulls", AggregateCall("_a0", "first", ("x",), ignore_nulls=True)),
    ("last(x ignore nulls)", AggregateCall("_a0", "last", ("x",), ignore_nulls=True)),
    ("last_value(x) respect nulls", AggregateCall("_a0", "last", ("x",))),
    ("sum(all x)", AggregateCall("_a0", "sum", ("x",))),
    ("sum(`we ird`)", AggregateCall("_a0", "sum", ("we ird",))),
]


@pytest.mark.parametrize(("sql", "call"), CALLS)
def test_a_call_is_read_with_its_modifiers(sql: str, call: AggregateCall) -> None:
    plan = split(sql)
    assert (plan.calls, plan.after) == ((call,), (("o0", "_a0"),))


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_name_of_spark_means_one_function(name: str) -> None:
    assert split(f"{name}(x)").calls == (AggregateCall("_a0", AGGREGATES[name], ("x",)),)


def test_calls_stand_inside_other_functions_and_beside_groups() -> None:
    plan = split("round(std(x), 2) + SENSOR", "case when count(*) > 1 then max(x) end")
    assert plan.after == (("o0", "round(_a0, 2) + SENSOR"), ("o1", "case when _a1 > 1 then _a2 end"))


def test_a_function_of_the_user_is_a_call_over_its_columns() -> None:
    mine = UserFunction(len, pa.int64(), ("X",))
    assert split(mine).calls == (AggregateCall("_a0", "user", ("x",), user=mine),)


KNOWN = "aggregates: " + ", ".join(AGGREGATES)
TEXTS = [
    (
        "avg(sum(x))",
        """
        box 'o.w' (window) aggregates sum() inside avg()
          expression: avg(sum(x))
          hint: use two windows, one after another
          at f.py:1
        """,
    ),
    (
        "x + sum(price)",
        """
        box 'o.w' (window) aggregates column 'x' outside an aggregate, and is not grouped by it
          expression: x + sum(price)
          grouped by: sensor
          hint: write first(x) or last(x), or group by it
          at f.py:1
        """,
    ),
    (
        "averge(x)",
        f"""
        box 'o.w' (window) aggregates averge(), which is no aggregate
          expression: averge(x)
          {KNOWN}
          hint: did you mean 'avg'?
          at f.py:1
        """,
    ),
    (
        "x + 1",
        f"""
        box 'o.w' (window) aggregates 'x + 1', in which there is no aggregate
          {KNOWN}
          at f.py:1
        """,
    ),
    (
        "skewness(x)",
        f"""
        box 'o.w' (window) aggregates skewness(), an aggregate that clew does not compute
          expression: skewness(x)
          {KNOWN}
          at f.py:1
        """,
    ),
    (
        "sum(distinct x)",
        """
        box 'o.w' (window) aggregates sum(distinct ...)
          expression: sum(distinct x)
          distinct: count(distinct ...) only
          at f.py:1
        """,
    ),
    (
        "sum(x) filter (where x > 1)",
        """
        box 'o.w' (window) aggregates sum() filter (...)
          expression: sum(x) filter (where x > 1)
          hint: write the condition into the argument: sum(case when ... then x end)
          at f.py:1
        """,
    ),
    (
        "max(x, price)",
        """
        box 'o.w' (window) aggregates max() with 2 arguments
          expression: max(x, price)
          max takes one
          at f.py:1
        """,
    ),
    (
        "first(x, price)",
        """
        box 'o.w' (window) aggregates first(..., price)
          expression: first(x, price)
          the second argument is true (ignore nulls) or false
          at f.py:1
        """,
    ),
    (
        "sum(x) ignore nulls",
        """
        box 'o.w' (window) aggregates sum() ignore nulls
          expression: sum(x) ignore nulls
          ignore nulls: first and last only
          at f.py:1
        """,
    ),
]


@pytest.mark.parametrize(("sql", "text"), TEXTS)
def test_a_refusal_says_what_and_what_instead(sql: str, text: str) -> None:
    with pytest.raises(NetworkError) as raised:
        split(sql)
    assert str(raised.value) == dedent(text).strip()


@pytest.mark.parametrize("name", sorted(OTHER_AGGREGATES))
def test_aggregates_that_clew_does_not_compute_are_refused_by_name(name: str) -> None:
    with pytest.raises(ClewError, match=name):
        split(f"{name}(x)")


@pytest.mark.parametrize(
    ("one", "other"),
    [("count(case when g = 'a' then 1 end)", "count(case when g = a then 1 end)"), ("sum(x * '1')", "sum(x * 1)"),
     ("max(g || r'a')", "max(g || 'a')"), ("max(concat(X'61'))", "max(concat('61'))")],
)  # fmt: skip
def test_a_text_is_no_column_and_no_number_of_its_spelling(one: str, other: str) -> None:
    plan = split_aggregates([("one", one), ("other", other)], [], what="box 'n.w' (window) aggregates", at="f.py:1")
    assert len({text for _, text in plan.before}) == 2
    assert plan.after[0][1] != plan.after[1][1]
