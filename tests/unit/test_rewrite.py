"""Query rewrite: standard operators compute the pairs of output row and source tuple that the reference traces."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.model.axis import axis_end, span_of
from clew.model.types import parse_type
from clew.network.boxes import CountWindow, Filter, Join, Map, Source
from clew.network.network import Network
from clew.network.rewrite import OUTPUT, provenance, reach_back, rewritten
from clew.network.stream import Stream
from clew.testing import Admitted, interpret
from clew.testing.reference import Made, Told

SCHEMA = "ts LONG, g STRING, x LONG"
Rows = Mapping[str, Sequence[Mapping[str, Any]]]
Pairs = Counter[tuple[tuple[Any, ...], str, tuple[Any, ...]]]
few = settings(max_examples=25, deadline=None)


# --- networks ---


def sources(net: Network, *names: str, key: Any = "ts", schema: str = SCHEMA) -> list[Stream]:
    return [net.stream(name, schema, order="ts", key=key) for name in names]


def basic() -> Network:
    """The query of the paper's Figure 12."""
    net = Network("basic")
    (s,) = sources(net, "s")
    kept = s.filter("x > 0", name="kept")
    sums = kept.window(rows=3, slide=1, name="sums").agg(until="max(ts)", total="sum(x)", n="count(*)")
    sums.filter("total > 4", name="high").output("high")
    return net


def nested() -> Network:
    net = Network("nested")
    (s,) = sources(net, "s")
    inner = s.window(rows=3, slide=2, name="inner").agg(ts="max(ts)", x="sum(x)")
    inner.window(rows=2, slide=1, name="outer").agg(ts="min(ts)", x="sum(x)", n="count(*)").output("o")
    return net


def nested_groups() -> Network:
    """Count windows of a group, over value windows of the same group that stand apart, over tuples unique by group."""
    net = Network("nested_groups")
    (s,) = sources(net, "s", key=["ts", "g"])
    inner = s.window(span=3, on="ts", by="g", name="inner").agg(least="min(ts)", x="sum(x)")
    inner.window(rows=2, slide=1, by="g", partial=True, name="outer").agg(x="sum(x)").output("o")
    return net


def grouped(**window: Any) -> Network:
    net = Network("grouped")
    (s,) = sources(net, "s", key=["ts", "g", "x"])
    s.map("g", "ts", y="x + 1").window(by="g", on="ts", name="sums", **window).agg(y="sum(y)", n="count(*)").output("o")
    return net


def by_computed() -> Network:
    net = Network("by_computed")
    (s,) = sources(net, "s")
    s.map("ts", "x", odd="x % 2").window(rows=2, slide=1, by="odd", name="pairs").agg(x="sum(x)").output("o")
    return net


def united() -> Network:
    """One side has a source of its own, both share another."""
    net = Network("united")
    a, b = sources(net, "a", "b")
    both = a.filter("x > 0").union(b, a.map("ts", "g", x="-x"), name="both").output("both")
    both.window(span=4, slide=2, on="ts", name="sums").agg(x="sum(x)").output("o")
    return net


def joined() -> Network:
    net = Network("joined")
    a, b = sources(net, "a", "b")
    fours = b.window(span=4, on="ts", name="fours").agg(ts="max(ts)", x="sum(x)")
    a.join(fours, within=(-5, 3), where="x <= x_right", name="near").output("o")
    return net


NETWORKS = [
    basic, nested, nested_groups, by_computed, united, joined,
    lambda: grouped(span=4), lambda: grouped(span=4, slide=1), lambda: grouped(span=2, slide=1, anchor="tuple"),
]  # fmt: skip


# --- what is made of what ---


def admitted(network: Network, rows: Rows, lag: Mapping[str, int]) -> Admitted:
    """The rows as they would be admitted: one at a stamp, each source by time, some behind the others."""
    by_time = sorted(
        ((row["ts"] + lag[name] if lag else row["ts"], name, row) for name, all in rows.items() for row in all),
        key=lambda arrival: arrival[:2],
    )
    stamped: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    for stamp, (_, name, row) in enumerate(by_time, 1):
        columns = network.sources[name].schema.names
        stamped[name].append({**{c: row[c] for c in columns}, "_stamp": stamp, "_seq": len(stamped[name]) + 1})
    end = len(by_time) + 1
    moves = [(name, end, axis_end(source.schema.field(source.order).type)) for name, source in network.sources.items()]
    return Admitted(stamped, moves, end)


def traced(network: Network, told: Mapping[str, Told], output: str) -> Pairs:
    """Each row of an output with each source tuple that it is made of, from box to box."""
    boxes = {b.name: b for b in network.boxes}
    at = {name: {(m.stamp, m.pos): m for m in of.rows} for name, of in told.items()}

    def origins(name: str, made: Made) -> Iterator[tuple[str, tuple[Any, ...]]]:
        box = boxes[name]
        if isinstance(box, Source):
            yield name, tuple(made.values.values())
        elif isinstance(box, Filter | Map):
            yield from origins(box.inputs[0], at[box.inputs[0]][made.stamp, made.pos])
        else:
            for number, *place in made.made_of:
                yield from origins(box.inputs[number], at[box.inputs[number]][place[0], place[1]])

    box = network.outputs[output]
    return Counter((tuple(m.values.values()), *origin) for m in told[box].rows for origin in origins(box, m))


def annotated(network: Network, rows: Sequence[Sequence[Any]], columns: Sequence[str], of: int) -> Pairs:
    """The pairs that an annotated stream holds: `of` columns of the output, then those of the sources."""
    found: Pairs = Counter()
    for values in rows:
        cells = dict(zip(columns, values, strict=True))
        for name, source in network.sources.items():
            tuple_ = tuple(cells.get(out) for out in provenance(source).values())
            if any(v is not None for v in tuple_):
                found[tuple(values[:of]), name, tuple_] += 1
    return found


def values(told: Told) -> list[tuple[Any, ...]]:
    return [tuple(m.values.values()) for m in told.rows]


def check(network: Network, rows: Rows, lag: Mapping[str, int] = MappingProxyType({})) -> Pairs:
    """All outputs are there and as they were, and the annotated ones hold what the reference traces.

    Each pair as often as there are ways from the row to the tuple; behind a join, where a row holds two, at all.
    """
    other, arrived = rewritten(network), admitted(network, rows, lag)
    before, after = interpret(network, arrived), interpret(other, arrived)
    for box in network.boxes:
        assert other.box(box.name) == box
        assert values(after[box.name]) == values(before[box.name])
    assert set(other.outputs) == {*network.outputs, *(name + OUTPUT for name in network.outputs)}
    pairs: Pairs = Counter()
    for name, box_name in network.outputs.items():
        expected = traced(network, before, name)
        made = after[other.outputs[name + OUTPUT]]
        columns = before[box_name].schema.names
        assert made.schema.names[: len(columns)] == columns
        found = annotated(network, values(made), made.schema.names, len(columns))
        assert set(found) == set(expected)
        assert found == expected or any(isinstance(box, Join) for box in network.boxes)
        pairs += expected
    return pairs


def some(count: int, *, per: int = 1) -> list[dict[str, Any]]:
    return [
        {"ts": ts, "g": (None, "a", "b")[(ts + i) % 3], "x": (7 * ts + i) % 5 - 1}
        for ts, i in itertools.product(range(count), range(per))
    ]


def rows_for(network: Network, each: Callable[[str], list[dict[str, Any]]]) -> Rows:
    return {name: each(name) for name in network.sources}


@pytest.mark.parametrize("make", NETWORKS)
def test_the_pairs_are_those_of_the_reference(make: Callable[[], Network]) -> None:
    network = make()
    per = 2 if network.sources.get("s") and "g" in network.sources["s"].key else 1
    assert len(check(network, rows_for(network, lambda _: some(20, per=per)))) > 15


def test_a_window_is_paired_with_its_rows_by_hand() -> None:
    rows = [{"ts": ts, "g": "a", "x": x} for ts, x in [(1, 3), (2, -1), (5, 1), (6, 2), (9, 0), (11, 1)]]
    high = (6, 6, 3)  # until, total, n
    assert check(basic(), {"s": rows}) == Counter((high, "s", (ts, "a", x)) for ts, x in [(1, 3), (5, 1), (6, 2)])


def test_a_tuple_of_two_windows_is_told_with_each_by_hand() -> None:
    rows = [{"ts": ts, "g": None, "x": ts} for ts in range(1, 6)]
    outer = (3, 6 + 12, 2)  # made of the windows 1-3 and 3-5
    expected = Counter((outer, "s", (ts, None, ts)) for ts in [1, 2, 3, 3, 4, 5])
    assert check(nested(), {"s": rows}) == expected


@st.composite
def tuples(draw: st.DrawFn, key: Sequence[str]) -> list[dict[str, Any]]:
    rows = st.fixed_dictionaries(
        {"ts": st.integers(-6, 12), "g": st.sampled_from([None, "", "a", "b"]), "x": st.integers(-2, 3)}
    )
    return draw(st.lists(rows, max_size=16, unique_by=lambda row: tuple(row[k] for k in key)))


@few
@given(st.sampled_from(NETWORKS), st.data())
def test_the_pairs_are_those_of_the_reference_whatever_the_data(
    make: Callable[[], Network], data: st.DataObject
) -> None:
    network = make()
    rows = {name: data.draw(tuples(source.key)) for name, source in network.sources.items()}
    check(network, rows, {name: data.draw(st.integers(0, 9)) for name in rows})


@pytest.mark.parametrize(
    ("kind", "value", "span"),
    [
        ("DOUBLE", lambda i: i / 10, 0.3),
        ("TIMESTAMP", lambda i: dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i), "3 seconds"),
        ("DATE", lambda i: dt.date(2024, 1, 1) + dt.timedelta(days=i), "3 days"),
        ("TINYINT", lambda i: i, 3),
    ],
)
def test_every_kind_of_order_reaches_back_as_far_as_its_windows(kind: str, value: Any, span: Any) -> None:
    rows = [{"ts": value(i), "x": i} for i in range(9)]
    for window in ({"rows": 3, "slide": 1}, {"span": span, "on": "ts"}, {"span": span, "anchor": "tuple"}):
        net = Network("kinds")
        (s,) = sources(net, "s", schema=f"ts {kind}, x LONG")
        s.window(**window, name="w").agg(x="sum(x)").output("o")
        assert len(check(net, {"s": rows})) >= 9


@pytest.mark.parametrize("kind", ["BYTE", "LONG", "FLOAT", "DOUBLE", "DECIMAL(18, 6)", "DATE", "TIMESTAMP"])
def test_a_count_window_reaches_back_as_far_as_a_span_can(kind: str) -> None:
    axis = parse_type(kind)
    found = span_of(reach_back(CountWindow(2, 1), axis), axis, "within")
    assert -axis_end(axis) < found < -(10**18)


# --- what is added ---


def test_added_boxes_are_named_after_those_that_they_stand_for() -> None:
    net = Network("named")
    (s,) = sources(net, "s")
    s.filter("x > 0", name="sums.rewrite_join").window(rows=2, name="sums").agg(x="sum(x)").output("o")
    assert [b.name for b in rewritten(net).boxes] == [
        "s", "sums.rewrite_join", "sums",
        "s.rewrite", "sums.rewrite_join.rewrite", "sums.rewrite_window", "sums.rewrite_input", "sums.rewrite_join_2",
        "sums.rewrite",
    ]  # fmt: skip


def test_added_columns_make_way_for_those_of_the_same_name() -> None:
    net = Network("named")
    (s,) = sources(net, "s")
    s.window(rows=2, slide=1, by=(), name="w").agg(rewrite_min="min(x)", rewrite_at="sum(x)", name="max(x)").output("o")
    check(net, {"s": some(6)})


def test_what_feeds_no_output_is_kept_and_need_not_be_rewritten() -> None:
    net = Network("aside")
    (s,) = sources(net, "s")
    s.sort("x", slack=2, name="sorted").keep("by_x")
    s.resample(s, within=1, name="near").agg(n="count(*)")
    s.apply(lambda rows: rows, SCHEMA, name="own").drop(2, name="dropped")
    s.output("o")
    other = rewritten(net)
    assert (other.kept, list(other.outputs)) == ({"by_x": "sorted"}, ["o", "o_provenance"])
    assert [b.name for b in other.boxes] == [*(b.name for b in net.boxes), "s.rewrite"]


def test_an_engine_runs_both(tmp_path: Path) -> None:
    net, batches = basic(), [some(40)[:15], some(40)[15:]]
    with clew.open(tmp_path / "store", rewritten(net), durable=False, lane="driver") as engine:
        for batch in batches:
            engine.feed("s", batch)
        engine.finish()
        high, pairs = (engine._store.read_table(name) for name in ("high", "high_provenance"))
    told = interpret(net, admitted(net, {"s": some(40)}, {}))
    columns = told["high"].schema.names
    assert [tuple(row.values()) for row in high.select(columns).to_pylist()] == values(told["high"])
    shown = [*columns, *provenance(net.sources["s"]).values()]
    rows = [tuple(row.values()) for row in pairs.select(shown).to_pylist()]
    found = annotated(net, rows, shown, len(columns))
    assert found == traced(net, told, "high")
    assert found.total() == 3 * len(high) > 30
