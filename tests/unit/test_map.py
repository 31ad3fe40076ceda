"""What `map` takes `name=` for, and how columns are written into the expressions that it makes of `"*"`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import clew
from clew.network.boxes import Map
from clew.network.columns import quoted
from clew.network.stream import Stream


def people(schema: str = "ts LONG, name STRING, a LONG, b LONG") -> Stream:
    return clew.Network("n").stream("people", schema, order="ts", key="ts")


@pytest.mark.parametrize("expression", ["upper(name)", "a - b", "'x'", "42", "name", "NAME", " a ", "`a`", "a = b"])
@pytest.mark.parametrize("named", [{}, {"t": "ts + 1"}])
def test_an_expression_called_name_is_a_column(expression: str, named: Mapping[str, str]) -> None:
    for made in (people().map("ts", **named, name=expression), people().map(ts="ts", **named, name=expression)):
        assert made.columns == ("ts", *named, "name")
        (box,) = (b for b in made._network.boxes if isinstance(b, Map))
        assert dict(box.columns)["name"] == expression
        assert box.name == "made" or box.name == "map"


def test_a_word_that_is_no_column_names_the_box() -> None:
    for made in (people().map("ts", name="times"), people().map(name="times", t="ts")):
        assert made.name == "times"
        assert "name" not in made.columns


def test_columns_may_be_called_as_arguments_are_in_python() -> None:
    s = people()
    assert s.map("ts", self="a").columns == ("ts", "self")
    assert s.window(rows=2).agg(self="sum(a)", name="count(*)").columns == ("self", "name")
    assert s.resample(s, within=1).agg(self="sum(a)").columns[-1] == "self"


WORDS = (
    "from",
    "case",
    "values",
    "current_date",
    "current_path",
    "user",
    "Select",
    "date",
    "interval",
    "null",
    "größe",
    "two words",
    "1st",
)


def test_a_star_quotes_what_would_not_be_read_as_a_column() -> None:
    made = people(", ".join(f"`{word}` LONG" for word in ("ts", *WORDS, "value"))).map("*")
    (box,) = (b for b in made._network.boxes if isinstance(b, Map))
    assert box.columns == (("ts", "ts"), *((word, f"`{word}`") for word in WORDS), ("value", "value"))
    assert made.order == "ts"
    assert [quoted(word) for word in ("ts", "from", "a`b")] == ["ts", "`from`", "`a``b`"]
