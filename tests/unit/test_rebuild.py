"""A network comes back from what a store remembers of it, but for the code of users' functions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.networks import networks

import clew
from clew.engine.plan import KernelStep, Plan, build_plan, fingerprints
from clew.engine.typing import StoredTyper
from clew.errors import CodeMissing, TypeProblem
from clew.model.types import parse_type
from clew.network.boxes import Box, Landmark, Source, Window
from clew.network.code import MissingFunction, code_mark
from clew.network.drawing import as_json
from clew.network.network import Network
from clew.network.rebuild import missing_functions, rebuilt, span_from


def remembered(network: Network) -> dict[str, Any]:
    """As it comes out of a store."""
    facts: dict[str, Any] = json.loads(json.dumps(as_json(network)))
    return facts


def no_spark(*_: Any) -> Any:
    raise TypeProblem("needs Spark")


def facts_of(plan: Plan) -> list[Any]:
    """All that decides what a plan does and where its lineage stands, without the users' functions."""
    found: list[Any] = [plan.ends, plan.stored, plan.prints]
    for step in plan.steps.values():
        kernel = [type(step.kernel), step.kernel.asks(), step.kernel.empty()] if isinstance(step, KernelStep) else None
        found.append([step.name, step.box, step.inputs, step.schema, kernel, getattr(step, "expressions", None)])
    return found


@settings(max_examples=100, deadline=None)
@given(made=networks())
def test_a_rebuilt_network_has_the_plan_and_the_marks_of_the_one_it_was(made: tuple[Network, str]) -> None:
    network, _ = made
    again = rebuilt(remembered(network))
    assert as_json(again) == as_json(network)
    assert fingerprints(again) == fingerprints(network)
    assert facts_of(build_plan(again, no_spark)) == facts_of(build_plan(network, no_spark))


SPANS = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.sampled_from(["5 minutes", "1 hour 30 s", "-1 day -2 h", "0 seconds", "interval 2 weeks", "1.5 min"]),
)


@given(span=SPANS)
def test_a_span_that_json_has_no_type_for_is_read_again_as_it_was(span: Any) -> None:
    stands = span if isinstance(span, int | float | str) else str(span)
    assert span_from(json.loads(json.dumps(stands))) == span


def odd() -> Network:
    """What the random networks do not have: names, spans and versions of all kinds."""
    net = clew.Network("odd")
    s = net.stream(
        "s", "`at time` TIMESTAMP, `list price` DECIMAL(10, 2), tags ARRAY<STRING>", order="at time",
        key=["at time", "list price"], lateness=dt.timedelta(seconds=90), max_ahead="1 day", retention="2 weeks",
    )  # fmt: skip
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    s.window(landmark=start, slide="1 hour", on="at time").agg(n="count(*)").output("since")
    s.window(span=Decimal("2.50"), slide=Fraction(5, 4), on="list price").agg(n="count(*)").output("priced")
    widest = clew.function(lambda rows: rows.num_rows, "INT", ["list price", "at time"], version=3)
    s.window(rows=2).agg(w=widest, n="count(*)").output("wide")
    s.apply(lambda rows: rows, "`at time` TIMESTAMP", how="opaque", version="v 1").keep("applied")
    t = net.stream("t", "at TIMESTAMP, x DOUBLE", order="at", key="at", key_span=None)
    s.join(t, on=("at time", "at"), within=("-1 minute", dt.timedelta(minutes=1)), where="x > 1").output("pairs")
    return net


def test_names_spans_times_and_versions_come_back() -> None:
    network = odd()
    again = rebuilt(remembered(network))
    assert as_json(again) == as_json(network)
    assert facts_of(build_plan(again, no_spark)) == facts_of(build_plan(network, no_spark))
    source = again.box("s")
    assert isinstance(source, Source)
    assert (source.lateness, source.key) == (dt.timedelta(seconds=90), ("at time", "list price"))
    starts = [b.window.start for b in again.boxes if isinstance(b, Window) and isinstance(b.window, Landmark)]
    assert starts == ["2024-01-01 00:00:00+00:00"]
    assert [f.__qualname__ for f in missing_functions(again)] == ["odd.<locals>.<lambda>"] * 2


def test_a_landmark_may_be_any_number() -> None:
    for start in (3, 2.5, Decimal("1.50"), Decimal("3")):
        net = clew.Network("n")
        s = net.stream("s", "d DECIMAL(10, 2), x INT", order="d", key="d")
        s.window(landmark=start, slide=1).agg(n="count(*)").output("o")
        again = rebuilt(remembered(net))
        assert facts_of(build_plan(again, no_spark))[3:] == facts_of(build_plan(net, no_spark))[3:]


def test_a_function_that_is_not_at_hand_says_so_and_how_to_help_it() -> None:
    missing = MissingFunction("breadth", "0123")
    assert code_mark(missing) == "0123"
    with pytest.raises(CodeMissing) as raised:
        missing(pa.table({}))
    assert missing.called
    assert str(raised.value) == (
        "function 'breadth' would have to run, and a store does not hold a function's code\n"
        "  hint: say where it is: --network-file FILE on the command line, in Python the network itself"
    )


def test_types_that_spark_found_are_not_asked_for_again() -> None:
    asked: list[Sequence[tuple[str, str]]] = []

    def spark(columns: Sequence[tuple[str, str]], schema: pa.Schema, box: Box) -> list[pa.DataType]:
        del schema, box
        asked.append(columns)
        return [parse_type("STRING" if "soundex" in sql else "BIGINT") for _, sql in columns]

    net = clew.Network("n")
    s = net.stream("s", "t LONG, x STRING", order="t", key="t")
    s.map("t", sound="soundex(x)", name="m").output("o")
    plan = build_plan(net, spark)
    assert plan.typed == {"m": {"t": "bigint", "soundex(x)": "string"}}
    stored = StoredTyper(plan.typed, no_spark)
    assert facts_of(build_plan(rebuilt(remembered(net)), stored)) == facts_of(plan)
    assert len(asked) == 1
    s.map(sound="soundex(upper(x))", name="new").output("p")
    with pytest.raises(TypeProblem, match="needs Spark"):
        build_plan(net, stored)
