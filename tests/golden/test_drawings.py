"""A network as text, Mermaid, JSON and SVG."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pyarrow as pa

import clew
from clew.model.schema import parse_schema
from clew.network.boxes import Join


def widest(rows: pa.Table) -> float:
    return float(rows.num_rows)


def network() -> clew.Network:
    net = clew.Network("over <heating>")
    readings = net.stream("readings", "ts LONG, sensor INT, celsius DOUBLE", order="ts", key=["ts", "sensor"])
    limits = net.stream("limits", "ts LONG, sensor INT, top DOUBLE", order="ts", key=["ts", "sensor"])
    smooth = (readings.filter("celsius < 350")
                      .window(rows=3, slide=1, by="sensor")
                      .agg(ts="min(ts)", celsius="avg(celsius)"))  # fmt: skip
    hot = smooth.join(limits, within=(-10, 0), by="sensor", how="left").keep("hot")
    hot.sort("ts", slack=10).drop(2, name="half").output("alarms")
    hot.map("ts", gap="celsius - top", name="gaps").output("gaps")
    wide = hot.window(span=5, slide=2, on="ts", anchor="tuple").agg(w=clew.function(widest, "DOUBLE"))
    wide.output("wide").output("w2")
    return net


TEXT = """\
Network 'over <heating>'
  readings       source  ts BIGINT, sensor INT, celsius DOUBLE; order ts; key ts, sensor
  limits         source  ts BIGINT, sensor INT, top DOUBLE; order ts; key ts, sensor
  smooth.filter  filter  celsius < 350 <- readings
  smooth         window  3 rows, slide 1 by sensor: min(ts) AS ts, avg(celsius) AS celsius <- smooth.filter
  hot            join    left, ts - ts in [-10, 0], sensor = sensor <- smooth, limits  => kept 'hot'
  sort           sort    on ts, slack 10 <- hot
  half           drop    every 2 <- sort  => output 'alarms'
  gaps           map     ts, celsius - top AS gap <- hot  => output 'gaps'
  wide           window  span 5 of ts, slide 2, from the tuple: widest(*) AS w <- hot  => output 'wide', output 'w2'"""

MERMAID = """\
flowchart LR
  b0(["<b>readings</b><br/>source: ts BIGINT, sensor INT, celsius DOUBLE; order ts; key ts, sensor"])
  b1(["<b>limits</b><br/>source: ts BIGINT, sensor INT, top DOUBLE; order ts; key ts, sensor"])
  b2["<b>smooth.filter</b><br/>filter: celsius &lt; 350"]
  b0 --> b2
  b3["<b>smooth</b><br/>window: 3 rows, slide 1 by sensor: min(ts) AS ts, avg(celsius) AS celsius"]
  b2 --> b3
  b4["<b>hot</b><br/>join: left, ts - ts in [-10, 0], sensor = sensor"]
  b3 --> b4
  b1 --> b4"""


def test_repr_is_a_line_a_box() -> None:
    assert repr(network()) == TEXT


def test_an_empty_network_draws() -> None:
    net = clew.Network("empty")
    assert repr(net) == "Network 'empty'"
    assert net.graph() == "flowchart LR"
    ET.fromstring(net._repr_html_())


def test_mermaid_has_a_node_a_box_and_an_arrow_an_input() -> None:
    drawn = network().graph()
    assert isinstance(drawn, str)
    assert drawn.startswith(MERMAID)
    assert drawn.count("-->") == 8 + 5  # inputs, stored streams
    assert drawn.count('[("') == 5


def test_json_holds_everything_and_is_json() -> None:
    drawn = network().graph("json")
    assert isinstance(drawn, dict)
    assert json.loads(json.dumps(drawn)) == drawn
    boxes = {b["name"]: b for b in drawn["boxes"]}
    assert list(boxes) == [b.name for b in network().boxes]
    assert boxes["readings"]["schema"] == "ts BIGINT, sensor INT, celsius DOUBLE"
    assert boxes["smooth"]["window"] == {"kind": "countwindow", "rows": 3, "slide": 1, "partial": False}
    assert (boxes["hot"]["low"], boxes["hot"]["high"], boxes["hot"]["keys"]) == (-10, 0, [["sensor", "sensor"]])
    assert boxes["hot"]["inputs"] == ["smooth", "limits"]
    assert boxes["smooth"]["at"].startswith("tests/golden/test_drawings.py:")
    assert (drawn["outputs"], drawn["kept"]) == (
        {"alarms": "half", "gaps": "gaps", "wide": "wide", "w2": "wide"},
        {"hot": "hot"},
    )


def test_names_of_columns_that_need_quotes_have_them() -> None:
    net = clew.Network("quoted")
    r = net.stream("r", "ts LONG, `list price` DECIMAL(10, 2), `a,b` INT, `from` INT", order="ts", key="ts")
    everything = r.map("*", "ts + 1 AS `next ts`")
    assert everything.columns == ("ts", "list price", "a,b", "from", "next ts")
    assert repr(net).endswith("map     ts, `list price`, `a,b`, `from`, ts + 1 AS `next ts` <- r")
    (text,) = (b["schema"] for b in net.graph("json")["boxes"] if b["kind"] == "source")  # type: ignore[index]
    assert text == "ts BIGINT, `list price` DECIMAL(10,2), `a,b` INT, from INT"
    assert parse_schema(text) == net.sources["r"].schema


def test_a_join_to_both_sides_goes_as_far_back_as_ahead() -> None:
    net = clew.Network("near")
    r = net.stream("r", "at TIMESTAMP", order="at", key="at")
    for name, within in (("a", "5 s"), ("b", "1 minute 30 seconds"), ("c", "interval 2 hours"), ("d", "-1 s +2 s")):
        r.join(r, within=within, name=name)
    assert [(b.low, b.high) for b in net.boxes if isinstance(b, Join)] == [
        ("-5 s", "5 s"),
        ("-1 minute -30 seconds", "1 minute 30 seconds"),
        ("interval -2 hours", "interval 2 hours"),
        ("1 s -2 s", "-1 s +2 s"),
    ]


def test_svg_is_well_formed_static_and_holds_every_box_once() -> None:
    html = network()._repr_html_()
    assert html == network().graph("svg")
    tree = ET.fromstring(html)
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text or "" for t in tree.iter(f"{space}title")]
    assert [t.split(":")[0] for t in titles] == [b.name for b in network().boxes]
    assert not list(tree.iter(f"{space}script"))
    assert "on" not in {name[:2] for node in tree.iter() for name in node.attrib}
    width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
    corners = []
    for card in tree.iter(f"{space}g"):
        rect = card.find(f"{space}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + w <= width
        assert y >= 0
        assert y + h <= height
        corners.append((x, y))
    assert len(set(corners)) == len(corners) == len(network().boxes)
    assert len(html) < 20_000
