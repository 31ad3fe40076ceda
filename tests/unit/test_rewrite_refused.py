"""Query rewrite: what it refuses, and how it says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.test_rewrite import SCHEMA, check, some, sources

from clew.errors import NetworkError, NotRewritable, WindowError
from clew.network.network import Network
from clew.network.rewrite import rewritten
from clew.network.stream import Stream


def refused(net: Network) -> list[str]:
    with pytest.raises(NotRewritable) as raised:
        rewritten(net)
    return str(raised.value).splitlines()


def of_two(make: Callable[[Stream, Stream], Stream], **options: Any) -> list[str]:
    net = Network("net")
    make(*sources(net, "s", "t", **options)).output("o")
    first, hint, at = refused(net)
    assert hint == '  hint: open the network itself with lineage="exact", which holds for every box'
    assert at.startswith("  at ")
    assert "test_rewrite_refused.py:" in at
    return [first.removeprefix("box 'net.it' (").replace(") cannot be rewritten: ", ": "), at]


REFUSED: list[tuple[Callable[[Stream, Stream], Stream], str]] = [
    (
        lambda s, _: s.sort("x", slack=2, name="it"),
        "sort: it holds a number of rows, and its rewritten input repeats rows",
    ),
    (
        lambda s, _: s.drop(2, name="it"),
        "drop: it leaves rows out by their places, and its rewritten input repeats rows",
    ),
    (
        lambda s, t: s.resample(t, within=1, name="it").agg(n="count(*)"),
        "resample: its windows lie around rows of another stream, and overlap without an order of their own",
    ),
    (
        lambda s, _: s.apply(lambda rows: rows, SCHEMA, how="rows", name="it"),
        "apply: no condition of a join says which rows user code makes a row of",
    ),
    (
        lambda s, _: s.window(landmark=0, slide=5, name="it").agg(n="count(*)"),
        "window: all its windows begin at one value, so that each holds the rows of those before it",
    ),
    (
        lambda s, _: s.window(latch=5, name="it").agg(n="count(*)"),
        "window: its aggregates run over all rows so far, not over those of a window",
    ),
    (
        lambda s, t: s.join(t, within=1, how="left", name="it"),
        "join: it is an outer join",
    ),
    (
        lambda s, _: s.join(s.filter("x > 0"), within=1, name="it"),
        "join: both its inputs come from stream 's', whose columns would stand there twice",
    ),
    (
        lambda s, t: s.join(t, within=1, on=("ts", "x"), name="it"),
        "join: rows of its input 't' may come late by 'x', which it joins on",
    ),
    (
        lambda s, _: s.window(span=5, on="x", name="it").agg(n="count(*)"),
        "window: rows of its input 's' may come late by 'x', which it goes by",
    ),
    (
        lambda s, t: s.join(t, within=1, name="j").window(span=5, on="ts", name="it").agg(n="count(*)"),
        "window: rows of its input 'j' may come late by 'ts', which it goes by",
    ),
    (
        lambda s, t: s.union(t, name="u").window(span=5, anchor="tuple", name="it").agg(n="count(*)"),
        "window: its windows begin at a first tuple, and 'ts' does not ascend in 'u'",
    ),
    (
        lambda s, t: s.union(t, name="u").window(rows=5, name="it").agg(n="count(*)"),
        "window: no column of its input 'u' is known to ascend and to be unique over all rows: "
        "a join could not tell its windows' rows",
    ),
    (
        lambda s, _: s.map("g", "x", name="m").window(rows=5, by="g", name="it").agg(n="count(*)"),
        "window: no column of its input 'm' is known to ascend and to be unique within groups by g: "
        "a join could not tell its windows' rows",
    ),
    (
        lambda s, _: s.map("ts", s_g="x", name="it"),
        "map: column 'g' of stream 's' would be 's_g', and there is a column so named",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), REFUSED)
def test_what_cannot_be_rewritten_is_refused_with_its_reason(make: Any, expected: str) -> None:
    first, _ = of_two(make)
    assert first == expected


def test_a_refusal_says_where_the_box_was_written() -> None:
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    _, at = of_two(lambda s, _: s.sort("x", slack=2, name="it"))
    assert at.endswith(f"test_rewrite_refused.py:{line}")
    assert issubclass(NotRewritable, NetworkError)


@pytest.mark.parametrize("aggregate", ["avg(ts)", "max(ts + 1)", "max(x)"])
def test_a_count_window_over_a_window_needs_an_extreme_of_the_order(aggregate: str) -> None:
    first, _ = of_two(
        lambda s, _: s.window(rows=2, name="w").agg(ts=aggregate).window(rows=2, name="it").agg(n="count(*)")
    )
    assert first.startswith("window: no column of its input 'w' is known to ascend and to be unique over all rows")


def test_a_count_window_needs_groups_by_what_else_is_in_the_key() -> None:
    net = Network("net")
    (s,) = sources(net, "s", key=["ts", "g"])
    s.window(rows=2, by="g", name="fits").agg(n="count(*)").output("one")
    check(net, {"s": some(8, per=2)})
    s.window(rows=2, by="x", name="short").agg(n="count(*)").output("two")
    assert refused(net)[0].startswith(
        "box 'net.short' (window) cannot be rewritten: no column of its input 's' is known"
    )


def test_windows_that_overlap_and_close_apart_do_not_say_when_they_come() -> None:
    """Those of one group may end before those of another that came already, so that later windows call them late."""
    first, _ = of_two(
        lambda s, _: s.window(span=4, slide=1, on="ts", by="g", name="w").agg(ts="max(ts)")
        .window(span=4, on="ts", name="it").agg(n="count(*)")
    )  # fmt: skip
    assert first == "window: rows of its input 'w' may come late by 'ts', which it goes by"


def test_an_output_named_like_the_provenance_of_another_is_refused() -> None:
    net = Network("net")
    (s,) = sources(net, "s")
    s.filter("x > 0", name="f").output("o").keep("O_provenance")
    why = "its provenance would be stream 'o_provenance', and there is one so named"
    assert refused(net)[0] == f"box 'net.f' (filter) cannot be rewritten: {why}"


def test_two_sources_whose_columns_would_share_a_name_are_refused() -> None:
    net = Network("net")
    a = net.stream("a", "ts LONG, b_ts LONG", order="ts", key="ts")
    b = net.stream("a_b", "ts LONG, b_ts LONG", order="ts", key="ts")
    a.union(b, name="u").output("o")
    why = "column 'ts' of stream 'a_b' would be 'a_b_ts', and there is a column so named"
    assert refused(net)[0] == f"box 'net.u' (union) cannot be rewritten: {why}"


def test_a_span_that_does_not_fit_its_column_is_told_with_its_box() -> None:
    net = Network("net")
    (s,) = sources(net, "s")
    s.window(span="5 minutes", name="w").agg(ts="max(ts)").output("o")
    with pytest.raises(WindowError, match=r"^box 'net.w' \(window\): slide='5 minutes' is a duration, but"):
        rewritten(net)
