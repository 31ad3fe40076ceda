"""Drawings of networks: nothing lies on anything else, and every arrow leads from box to box."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import clew
from clew.network.drawing import _layout


def doubled() -> clew.Network:
    """The same stream twice into one box: past other boxes, and right beside it."""
    net = clew.Network("doubled")
    s = net.stream("s", "t LONG", order="t", key="t")
    far = s.filter("t > 1").filter("t > 2")
    far.union(s, s, name="three")
    s.join(s, within=1, name="itself")
    return net


def shop() -> clew.Network:
    net = clew.Network("shop")
    orders = net.stream("orders", "ts LONG, id LONG, who STRING", order="ts", key=["ts", "id"])
    payments = net.stream("payments", "ts LONG, order_id LONG", order="ts", key=["ts", "order_id"])
    clicks = net.stream("clicks", "ts LONG, who STRING", order="ts", key=["ts", "who"])
    good = orders.filter("id > 0")
    good.join(payments, within=5, by={"id": "order_id"}, name="paid").output("paid")
    minutes = good.window(span=60, on="ts").agg(ts="max(ts)", n="count(*)")
    minutes.filter("n > 1", name="busy").output("busy")
    clicks.resample(minutes, within=5, name="active").agg(clicks="count(*)").keep("active")
    both = good.map("ts", "who").union(clicks.map("ts", "who")).drop(every=10)
    both.output("sample")
    return net


@pytest.mark.parametrize("network", [shop, doubled])
def test_no_two_boxes_or_arrows_share_a_spot(network: Callable[[], clew.Network]) -> None:
    place, routes = _layout(network().boxes)
    spots = [*place.values(), *(spot for route in routes.values() for spot in route)]
    assert len(spots) == len(set(spots))


@pytest.mark.parametrize("network", [shop, doubled])
def test_arrows_go_column_by_column_from_box_to_box(network: Callable[[], clew.Network]) -> None:
    net = network()
    place, routes = _layout(net.boxes)
    inputs = {(box.name, port): parent for box in net.boxes for port, parent in enumerate(box.inputs)}
    assert set(routes) == set(inputs)
    assert any(routes.values())
    for (end, port), route in routes.items():
        columns = [place[inputs[end, port]][0], *(column for column, _ in route), place[end][0]]
        assert columns == list(range(columns[0], columns[-1] + 1))


@pytest.mark.parametrize("network", [shop, doubled])
def test_a_box_is_fed_by_boxes_before_it(network: Callable[[], clew.Network]) -> None:
    boxes = network().boxes
    for number, box in enumerate(boxes):
        assert {*box.inputs} <= {b.name for b in boxes[:number]}


def test_a_source_stands_right_before_its_first_user() -> None:
    place, _ = _layout(shop().boxes)
    assert place["payments"][0] == place["paid"][0] - 1
    assert place["orders"][0] == place["good"][0] - 1 == 0


def test_an_svg_has_a_card_for_every_box_and_names_what_is_stored() -> None:
    svg = shop().graph("svg")
    assert isinstance(svg, str)
    assert len(re.findall(r"<g><title>", svg)) == len(shop().boxes)
    assert re.findall(r">([^<>]*⇒[^<>]*)<", svg) == ["⇒ paid", "⇒ busy", "⇒ active", "both ⇒ sample"]
    assert clew.Network("nothing").graph("svg").startswith("<svg ")  # type: ignore[union-attr]


def test_every_input_has_an_arrow_of_its_own() -> None:
    for net in (shop(), doubled()):
        arrows = re.findall(r'<path d="M(\d+) (\d+)C([^"]*)" fill="none"', str(net.graph("svg")))
        assert len(arrows) == len(set(arrows)) == sum(len(box.inputs) for box in net.boxes)
    heads = re.findall(r'<path d="M(\d+ \d+)l-7 -4v8z"', str(doubled().graph("svg")))
    assert len(heads) == len(set(heads)) == 7


def test_an_arrow_ends_in_the_middle_of_a_card_that_no_box_feeds_twice() -> None:
    svg = str(shop().graph("svg"))
    cards = {(int(x), int(y) + 23) for x, y in re.findall(r'<rect x="(\d+)" y="(\d+)"', svg)}
    heads = {(int(x), int(y)) for x, y in re.findall(r'<path d="M(\d+) (\d+)l-7 -4v8z"', svg)}
    assert heads <= cards


def test_the_last_box_of_a_statement_takes_the_variables_name() -> None:
    kinds = {box.name: box.kind for box in shop().boxes}
    assert kinds["both"] == "drop"
    assert [name for name in kinds if name.startswith("both.")] == ["both.map", "both.map_2", "both.union"]


ON_ONE_LINE = """
import clew
net = clew.Network("n")
s = net.stream("s", "t LONG", order="t", key="t")
a = s.filter("t > 1"); b = a.filter("t > 2").filter("t > 3"); b.filter("t > 4")
(c := s.filter("t > 5")).filter("t > 6"); größe = s.map("'é' AS t"); d = s.filter("t > 7") if s else (
    s
)
two = s.filter("t > 8").union((eight := s.filter("t > 9")))
"""
ON_LINES = """
import clew
net = clew.Network("n")
s = net.stream("s", "t LONG", order="t", key="t")
a = s.filter("t > 1")
b = (s.filter("t > 2")
      .union(a))
b.filter("t > 3")
"""


@pytest.mark.parametrize(
    ("code", "options", "names"),
    [
        (ON_ONE_LINE, [], "s a b.filter b filter c filter_2 größe d two.filter eight two"),
        (ON_LINES, [], "s a b.filter b filter"),
        (ON_LINES, ["-X", "no_debug_ranges"], "s a b.filter b filter"),  # bytecode that knows lines only
    ],
    ids=["on one line", "on lines", "without columns"],
)
def test_each_statement_names_its_own_boxes(tmp_path: Path, code: str, options: list[str], names: str) -> None:
    (tmp_path / "n.py").write_text(code + "print(*[box.name for box in net.boxes])\n", "utf-8")
    ran = subprocess.run([sys.executable, *options, "n.py"], cwd=tmp_path, capture_output=True, check=True)
    assert ran.stdout.decode().split() == names.split()
