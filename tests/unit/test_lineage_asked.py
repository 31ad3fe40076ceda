"""Questions about lineage that make no sense, or come too late, are refused by name and with a way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.errors import ClewError, NetworkError, SyntaxProblem, TypeProblem, UnknownColumn, UnknownStream, UnknownTuple
from clew.session import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, x INT", order="t", key="t")
    net.stream("u", "t LONG", order="t", key="t")
    twos = s.filter("x >= 0", name="f").window(rows=2, name="w").agg(t="max(t)", n="sum(x)").output("o")
    twos.window(rows=2, name="w2").agg(n="count(*)").output("p")
    with clew.open(tmp_path / "s", net, durable=False, lane="driver") as opened:
        opened.feed("s", [{"t": t, "x": t % 3} for t in range(12)])
        yield opened


NO_TUPLES: list[Any] = [
    1.0, 1.5, True, np.bool_(True), [None], float("nan"), b"o:1", {"o:1": 1}, object(), [["o:1"]], "s:1", "w:1", "o:0",
    "o:-1", -1, 0, 99, 10**30, ["o:1", "p:1"],
]  # fmt: skip


@pytest.mark.parametrize("asked", NO_TUPLES)
@pytest.mark.parametrize("ask", ["why", "impact"])
def test_what_names_no_tuple_is_refused(engine: Engine, asked: Any, ask: str) -> None:
    with pytest.raises(UnknownTuple) as caught:
        getattr(engine, ask)("o", asked)
    assert "hint" in str(caught.value) or "it has o:1 to o:6" in str(caught.value)


@pytest.mark.parametrize("asked", [1, "1", "o:1", " o:1 ", [1, 1], (1,), {"o:1"}, range(1, 2), np.int64(1),
                                   np.array([1]), "t = 1", iter([1])])  # fmt: skip
def test_a_tuple_has_many_names(engine: Engine, asked: Any) -> None:
    assert engine.why("o", asked).tids == {"o:1": {"s": ["s:1", "s:2"], "u": []}}


@pytest.mark.parametrize(("condition", "error"), [
    ("n >", SyntaxProblem), ("", SyntaxProblem), ("n > 2; drop table o", SyntaxProblem), ("nope > 1", UnknownColumn),
    ("_seq = 1", UnknownColumn), ("sum(n) > 1", NetworkError), ("rand() > 0.5", NetworkError), ("n", TypeProblem),
    ("'x'", TypeProblem), ("10 / (n - 3) > 1", TypeProblem),
])  # fmt: skip
def test_a_condition_that_is_none_is_refused(engine: Engine, condition: str, error: type[ClewError]) -> None:
    with pytest.raises(error, match="the question about stream 'o'"):
        engine.why("o", condition)


def test_a_condition_that_fails_says_on_which_tuple(engine: Engine) -> None:
    with pytest.raises(TypeProblem) as caught:
        engine.why("o", "10 / (n - 3) > 1")
    assert "fails on 2 tuples" in str(caught.value)
    assert "first on o:3: " in str(caught.value)


@pytest.mark.parametrize("name", ["nope", "O", "", None, 1, ["o"]])
def test_a_stream_that_is_none_is_refused(engine: Engine, name: Any) -> None:
    for ask in (engine.why, engine.impact):
        with pytest.raises(UnknownStream, match="stored streams: s, u, o, p"):
            ask(name, 1)
    with pytest.raises(UnknownStream, match=r"streams and boxes: s, u, o, p, f, w, w2"):
        engine.why("o", 1, of=["o", name])


def test_a_box_that_is_not_stored_says_how_it_would_be(engine: Engine) -> None:
    with pytest.raises(UnknownStream, match="keep"):
        engine.why("f", 1)


@pytest.mark.parametrize("of", [[], {"s": 1}, b"s", [None], True])
def test_terms_that_are_none_are_refused(engine: Engine, of: Any) -> None:
    with pytest.raises(ClewError, match=r"stream"):
        engine.why("o", 1, of=of)
    with pytest.raises(ClewError, match=r"stream"):
        engine.impact("s", 1, on=of)


def test_an_explanation_is_asked_only_for_what_it_tells(engine: Engine) -> None:
    explanation, impact = engine.why("p", 1), engine.impact("s", 1)
    for ask in (lambda: explanation.inputs(), lambda: explanation.inputs("w"), lambda: impact.tuples("nope"),
                lambda: impact.frame("w"), lambda: impact.frame()):  # fmt: skip
        with pytest.raises(UnknownStream, match=r"say of which|does not tell of"):
            ask()
    assert engine.impact("s", 1, on="w").tuples("w").stream == "o"
    with pytest.raises(UnknownStream, match="keep"):
        engine.impact("s", 1, on="f").tuples("f")


def test_nothing_asked_is_nothing_told(engine: Engine) -> None:
    for nothing in (engine.why("o", []), engine.why("o", "n > 99"), engine.why("u"), engine.why("u", "t > 1")):
        assert nothing.tids == {}
        assert nothing.verify()
        assert nothing.counterfactual().found == ()
        assert "no tuple" in str(nothing)
        assert nothing.to_json()["tuples"] == []
    assert engine.impact("s", []).verify()
    assert engine.impact("u", None).verify()
    assert engine.impact("s", 1, on="u").verify()
    with pytest.raises(UnknownTuple, match="stream 'u' has no tuples yet"):
        engine.why("u", 1)


def test_what_leads_to_nothing_asked_is_outside_and_never_the_box_itself(engine: Engine) -> None:
    assert engine.why("p", 1, of="u").outside == ("w",)
    assert engine.why("o", 1, of="p").outside == ("f",)
    assert engine.why("o", 1, of="p").tids == {"o:1": {"p": []}}
