"""Explanations as text: one line a row whatever it holds, no longer than it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.explain.proof import Checked, Proof, Without
from clew.explain.proof import Counterfactual as Found
from clew.session import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    net = clew.Network("net")
    s = net.stream("s", "t LONG, note STRING", order="t", key="t")
    s.filter("t > 0", name="f").window(rows=8, name="w").agg(n="count(*)", last="last(note)").output("o")
    with clew.open(tmp_path / "s", net, durable=False, lane="driver") as opened:
        opened.feed("s", [{"t": t, "note": "first\nsecond\x1b[31m"} for t in range(17)])
        yield opened


def test_an_explanation_is_a_tree_with_its_middle_left_out(engine: Engine) -> None:
    note = r"note first\nsecond\x1b[31m"
    assert str(engine.why("o", 1)).splitlines() == [
        r"o:1  n 8, last first\nsecond\x1b[31m",
        "  epoch 1, completed by s:9",
        "└─ w  window  8 rows, slide 8: count(*) AS n, last(note) AS last  [1 tuple]",
        r"   │  o:1  n 8, last first\nsecond\x1b[31m",
        "   └─ f  filter  t > 0  [8 tuples]",
        "      └─ s  source  [8 tuples]",
        *(f"            s:{seq}  t {seq - 1}, {note}" for seq in range(2, 7)),
        "            … 2 more",
        f"            s:9  t 8, {note}",
    ]


def test_impact_tells_a_row_on_one_line(engine: Engine) -> None:
    assert str(engine.impact("s", [2, 17])).splitlines() == [
        r"s:2  t 1, note first\nsecond\x1b[31m",
        "  o: o:1",
        r"s:17  t 16, note first\nsecond\x1b[31m",
        "  o: o:2",
        "rows made of it, by box: f 2, w 2",
        "nothing to come can depend on it",
    ]


def test_a_long_proof_shows_what_fails_and_counts_the_rest() -> None:
    checked = [Checked(f"o:{n}", True, 1, 2 if n == 40 else 1, None if n == 1 else True) for n in range(1, 51)]
    told = str(Proof(tuple(checked), 3, 0)).splitlines()
    assert told[0] == "replayed 3 source tuples from the beginning"
    assert told[1].endswith("not made again from its lineage alone: a box on the way cannot be")
    assert told[12].startswith("FAILS  o:40: reproduced, 1 equal of 2 needed")
    assert told[13:] == ["… and 38 more, all of which hold"]


def test_a_counterfactual_counts_in_words() -> None:
    told = str(Found((Without("o:1", 1, "gone"), Without("o:2", 2, "changed", {"a": "x\ny"}))))
    assert (
        told == "o:1 without the tuple it is made of: gone\no:2 without the 2 tuples it is made of: changed to a x\\ny"
    )
