"""Drawings of networks: nothing lies on anything else, and every arrow leads from box to box."""

from __future__ import annotations

import re

import clew
from clew.network.drawing import _layout


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


def test_no_two_boxes_or_arrows_share_a_spot() -> None:
    place, routes = _layout(shop().boxes)
    spots = [*place.values(), *(spot for route in routes.values() for spot in route)]
    assert len(spots) == len(set(spots))


def test_arrows_go_column_by_column_from_box_to_box() -> None:
    net = shop()
    place, routes = _layout(net.boxes)
    assert set(routes) == {(parent, box.name) for box in net.boxes for parent in box.inputs}
    assert any(routes.values())
    for (start, end), route in routes.items():
        columns = [place[start][0], *(column for column, _ in route), place[end][0]]
        assert columns == list(range(columns[0], columns[-1] + 1))


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


def test_the_last_box_of_a_statement_takes_the_variables_name() -> None:
    kinds = {box.name: box.kind for box in shop().boxes}
    assert kinds["both"] == "drop"
    assert [name for name in kinds if name.startswith("both.")] == ["both.map", "both.map_2", "both.union"]
