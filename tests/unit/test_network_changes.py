"""A store outlives its networks: boxes new, renamed, left out or put back, and what stands beside the streams."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_cli import clew as run_clew
from tests.unit.test_cli import document

import clew
from clew.archive import Store
from clew.archive.compaction import MAX_SMALL
from clew.engine.asides import late_name, late_table, late_tables
from clew.errors import NetworkChanged
from clew.session import Engine
from clew.testing.laws import FINISH, Action, Advance, act, contents, run, same

Row = dict[str, Any]


def opened(root: Path, net: clew.Network) -> Engine:
    return clew.open(root, net, durable=False, lane="driver")


def late_rows(engine: Engine, box: str) -> list[Row]:
    """The late tuples of a box, of all its inputs."""
    state, found = engine._store.state, list[Row]()
    for port in (0, 1):
        table = late_table(state, engine._plan.prints, box, port)
        found += engine._store.read_table(table, kind="tables").to_pylist() if table else []
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]


def windows(box: str = "w", columns: str = "a", output: str = "out") -> clew.Network:
    """A box whose late tuples have the columns asked for; a row whose `at` is null is late there."""
    net = clew.Network("changing")
    s = net.stream("s", "t LONG, at LONG, a DOUBLE, b STRING", order="t", key="t")
    s.map("at", *columns.split(), name="cut").window(span=10, on="at", name=box).agg(n="count(*)").output(output)
    return net


def nulls(first: int, count: int) -> list[Row]:
    return [{"t": t, "at": None, "a": t / 2, "b": f"b{t}"} for t in range(first, first + count)]


def test_boxes_of_one_name_and_other_columns_keep_their_late_tuples_apart(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with opened(root, windows()) as engine:
        for epoch in range(MAX_SMALL):
            engine.feed("s", nulls(epoch, 1))
    other = windows(columns="b", output="other")
    with opened(root, other) as engine:
        for epoch in range(MAX_SMALL, 2 * MAX_SMALL + 3):
            engine.feed("s", nulls(epoch, 1))
        assert [row["b"] for row in late_rows(engine, "w")][-3:] == ["b64", "b65", "b66"]
        assert set(late_rows(engine, "w")[0]) == {"at", "b"}
    shown = document("late", "w", "--store", root, "--limit", 999)["rows"]
    assert [row["a"] for row in shown if "a" in row] == [t / 2 for t in range(MAX_SMALL)]
    with opened(root, windows()) as engine:
        engine.feed("s", nulls(90, 1))
        assert [row["a"] for row in late_rows(engine, "w")][-1] == 45.0


def test_a_box_that_is_given_another_name_keeps_its_late_tuples(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with opened(root, windows("w")) as engine:
        engine.feed("s", nulls(0, 2))
    with opened(root, windows("v")) as engine:
        assert [row["a"] for row in late_rows(engine, "v")] == [0.0, 0.5]
        engine.feed("s", nulls(2, 1))
        assert [row["a"] for row in late_rows(engine, "v")] == [0.0, 0.5, 1.0]
    assert document("late", "v", "--store", root)["all_rows"] == 3
    assert "3 rows late at v" in run_clew("streams", "--store", root).stderr


def test_late_tuples_of_a_box_that_was_left_out_are_shown_under_its_name(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with opened(root, windows("w")) as engine:
        engine.feed("s", nulls(0, 2))
    net = clew.Network("changing")
    net.stream("s", "t LONG, at LONG, a DOUBLE, b STRING", order="t", key="t").output("all")
    with opened(root, net) as engine:
        engine.feed("s", nulls(2, 1))
    assert document("late", "w", "--store", root)["all_rows"] == 2
    assert run_clew("late", "x", "--store", root).stderr == (
        f"UnknownStream: store '{root}' has no stream or box 'x'\n  streams and boxes: s, w\n"
    )


def test_late_tables_that_know_no_mark_are_a_boxs_by_name_and_columns(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with opened(root, windows()) as engine:
        engine.feed("s", nulls(0, 2))
        engine._store.state.tables["late.w"].meta.clear()  # as an earlier clew wrote it
        state, prints = engine._store.state, engine._plan.prints
        assert late_table(state, prints, "w") == "late.w"
        assert (late_tables(state, {}, "w"), late_name(state, prints, "late.w")) == (["late.w"], "w")
        engine.feed("s", nulls(2, 1))
        assert state.tables["late.w"].meta["mark"] == prints["w"]
        state.tables["late.w"].meta.clear()
        changed = windows(columns="b", output="other")
        engine._store.close()
        with opened(root, changed) as other:
            other._store.state.tables["late.w"].meta.clear()
            other.feed("s", nulls(3, 1))
            assert sorted(n for n in other._store.state.tables if n.startswith("late.w")) == [
                "late.w", f"late.w-{other._plan.prints['w'][:8]}",
            ]  # fmt: skip


def test_buckets_that_cannot_be_merged_cost_no_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import pyarrow as pa

    with Store.create(tmp_path / "s", durable=False) as store:
        for epoch in range(MAX_SMALL + 3):
            record = store.begin()
            column = pa.array([1.5]) if epoch % 2 else pa.array(["one"])
            record.folder("tables", "odd").add.append(store.write_bucket("tables", "odd", pa.table({"x": column})))
            store.compact(record)
            store.commit(record)
        assert store.last_epoch == MAX_SMALL + 3
        assert len(store.files("odd", kind="tables")) == MAX_SMALL + 3
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith("the buckets of table 'odd' cannot be merged: ")


def test_a_source_that_was_left_out_comes_back_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    def source(kind: str, name: str = "s") -> clew.Network:
        net = clew.Network("sources")
        net.stream(name, f"t LONG, x {kind}", order="t", key="t").output("all" + name)
        return net

    for net in (source("DOUBLE"), source("LONG", "other")):
        with opened(tmp_path / "s", net) as engine:
            engine.feed(*engine.network.sources, [{"t": 1, "x": 1}])
    net = clew.Network("sources")
    net.stream("s", "t LONG, x STRING", order="t", key="t")
    with pytest.raises(NetworkChanged) as caught:
        opened(tmp_path / "s", net)
    assert caught.value.message == f"stream 's' of store '{tmp_path / 's'}' was made by another network"
    with opened(tmp_path / "s", source("DOUBLE")) as engine:
        assert engine.feed("s", [{"t": 2, "x": 1}]).outputs == {"alls": 1}


# --- catching up ---


def grown(*, new: bool) -> clew.Network:
    """A network, and the same with boxes of every kind behind what is there."""
    net = clew.Network("grown")
    s = net.stream("s", "t LONG, id INT, g STRING, x DOUBLE", order="t", key=["t", "id"], lateness=3)
    limits = net.stream("limits", "t LONG, g STRING, top DOUBLE", order="t", key=["t", "g"])
    means = s.window(rows=2, slide=1, by="g", name="means").agg(t="max(t)", x="avg(x)").output("means")
    if new:
        s.map("t", "g", ratio="100 / cast(id AS DOUBLE)", name="ratio").output("ratios")
        s.filter("100 / id > 3", name="alone")
        s.window(rows=2, slide=1, by="g", name="twin").agg(t="max(t)", x="avg(x)").output("twins")
        means.sort("t", slack=2, name="sorted").window(span=6, by="g", name="tens").agg(n="count(*)").output("tens")
        s.join(limits, within=(-4, 0), by="g", how="left", name="limited").output("over")
        s.map("g", u="t - cast(x AS LONG)", name="back").window(span=5, on="u", name="u").agg(n="count(*)").output("us")
        s.map("g", u="t - cast(x AS LONG)", name="b").window(span=5, on="u", name="u2").agg(n="count(*)").output("us2")
    return net


def actions() -> list[Action]:
    """Rows in and out of order, some of which make boxes fail or come late, and moves of progress between them."""
    chance, found = random.Random(5), list[Action]()
    for epoch in range(12):
        rows = [
            {"t": 5 * epoch + chance.randint(-4, 6), "id": chance.randint(0, 9), "g": chance.choice("ab"),
             "x": chance.choice([None, chance.uniform(0, 20)])}
            for _ in range(9)
        ]  # fmt: skip
        tops = [{"t": 5 * epoch, "g": g, "top": 1.5} for g in "ab"]
        found.append({"s": rows, "limits": tops} if epoch % 2 else {"s": rows})
        if epoch in (3, 8):
            found.append(Advance("limits", 5 * epoch + 3))
    return [*found, FINISH]


@pytest.mark.parametrize("chunk", [3, 40, 1_000_000])
@pytest.mark.parametrize("changes", [[6], [1, 5, 11], [15], [4, 5, 9, 12]])
def test_a_network_that_grew_holds_what_a_fresh_one_fed_the_same_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[int], chunk: int
) -> None:
    expected = run(grown(new=True), actions(), tmp_path / "fresh")
    assert {"late.u", "rejected", "origins"} <= {*expected}
    monkeypatch.setattr("clew.engine.replay.CHUNK", chunk)
    new = len(changes) % 2 == 0  # the boxes are there, or not, and that changes before some actions
    engine = opened(tmp_path / "s", grown(new=new))
    for number, action in enumerate([*actions(), None]):
        if number in changes:
            new = not new
            engine.close()
            engine = opened(tmp_path / "s", grown(new=new))
        if action is not None:
            act(engine, action)
    same(expected, contents(engine._store), f"changed before {changes}")
    engine.close()


def test_a_catching_up_reads_and_writes_the_archive_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "s", grown(new=False)) as engine:
        for action in actions():
            act(engine, action)
    monkeypatch.setattr("clew.engine.replay.CHUNK", 20)
    read, most = Store.read_table, list[int]()

    def counted(store: Store, name: str, *args: Any, **named: Any) -> Any:
        table = read(store, name, *args, **named)
        most.append(len(table) if name == "s" and "_stamp" in table.column_names else 0)
        return table

    monkeypatch.setattr(Store, "read_table", counted)
    with opened(tmp_path / "s", grown(new=True)) as engine:
        assert 0 < max(most) <= 20
        assert len(engine._store.files("ratios")) > 3
