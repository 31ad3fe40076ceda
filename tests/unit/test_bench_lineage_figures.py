"""The experiments of the provenance paper at tiny sizes: what they leave, and what the page makes of it."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools import lineage_section
from tools.benchmarks_page import page
from tools.lineage_section import SHOWN

from clew.bench import lineage_completion, lineage_experiments, lineage_figures, lineage_rewrite
from clew.bench.core import Samples, measure
from clew.bench.lineage_completion import completion
from clew.bench.lineage_experiments import FIGURES, FULL, QUICK, Experiment, Scale, latencies, picked
from clew.bench.lineage_figures import BENCH, PAPER, PICKED, compared, experiments
from clew.bench.lineage_modes import JOINS, OPENERS
from clew.bench.lineage_networks import basic, nested

TINY = Scale(
    rounds=2, tuples=600, joined_tuples=600, provenance=(10, 100), rewritten=(10,), depths=(1, 4),
    rewritten_depths=(2,), rewrite_tuples=600, rewrite_most=60, windows=(50,), slides=(1, 10), kept=(5, 100),
    loads=(10,), epochs=2, fronts=(2,), frequencies=(1, 100), nested_tuples=4_000,
)  # fmt: skip

REWRITTEN = (0.5, 70)


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[float, int] | None], None]:
    """Has query rewrite come to this, in no process of its own."""

    def to(result: tuple[float, int] | None) -> None:
        monkeypatch.setattr(lineage_experiments, "rewrite_seconds", lambda *_: result)

    to(REWRITTEN)
    return to


def experiment(scale: Scale = TINY) -> Experiment:
    return Experiment(scale, Samples(notes={"not_run": []}), lambda _: None)


VARIED = {13: 2, 14: 2, 15: 1, 16: 2, 17: 2, 18: 1, 19: 1, 20: 2}


@pytest.mark.usefixtures("rewritten")
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_has_rows_for_each_mode_and_round(figure: int) -> None:
    to = experiment()
    FIGURES[figure](to)
    rows = [r for r in to.samples.raw if r["mode"] != "rewrite"]
    assert {r["figure"] for r in rows} == {figure}
    modes = ["off", "exact", "interval"] if figure == 20 else list(OPENERS)
    found = [(r["x"], r["round"], r["mode"]) for r in rows]
    xs = list(dict.fromkeys(r["x"] for r in rows))
    assert (len(xs), sorted(found)) == (VARIED[figure], sorted((x, n, m) for x in xs for n in (0, 1) for m in modes))


@pytest.mark.usefixtures("rewritten")
def test_a_ratio_is_to_the_run_of_its_round_without_lineage() -> None:
    to = experiment(replace(TINY, provenance=(10,)))
    FIGURES[13](to)
    off = {r["round"]: r["seconds"] for r in to.samples.raw if r["mode"] == "off"}
    for row in to.samples.raw:
        if row["mode"] == "rewrite":
            assert (row["seconds"], row["joined"]) == REWRITTEN
            continue
        assert row["over_off"] == row["seconds"] / off[row["round"]]
        if row["mode"] in JOINS:
            assert row["retrieved_over_off"] == (row["seconds"] + row["retrieval_s"]) / off[row["round"]]


def test_a_p_join_has_a_row_for_each_output_and_input_in_every_mode() -> None:
    runs = completion(basic(10), list(OPENERS), 600, retrieved=True)
    outputs = runs["off"].outputs
    assert outputs > 100
    assert {mode: run.outputs for mode, run in runs.items()} == dict.fromkeys(OPENERS, outputs)
    assert {mode: run.joined for mode, run in runs.items() if mode in JOINS} == dict.fromkeys(JOINS, 10 * outputs)
    assert runs["off"].joined is None
    assert lineage_rewrite.run(1, 10, 600)[1] == 10 * outputs


def test_lineage_takes_room_in_the_store_that_grows_with_the_outputs_only() -> None:
    runs = completion(basic(10), ["off", "exact", "adaptive"], 60_000)
    off, exact, adaptive = (runs[mode].facts(runs["off"]) for mode in ("off", "exact", "adaptive"))
    assert (off["bytes_per_output"], off["held_for_lineage"]) == (0, 0)
    assert 0 < exact["bytes_per_output"] < 8
    assert exact["held_for_lineage"] == 0 < adaptive["held_for_lineage"] <= 10 * 16
    assert exact["held_bytes"] == off["held_bytes"] > 0


@pytest.mark.parametrize("load", [3, 10])
def test_latency_is_that_of_every_mode_and_of_asking_where_lineage_is(load: int) -> None:
    found = latencies(load, 2)
    assert list(found) == list(OPENERS)
    assert {mode for mode, (_, why) in found.items() if why is not None} == {*JOINS}
    assert all(feed > 0 for feed, _ in found.values())


def test_more_is_retrieved_the_more_is_asked_for() -> None:
    to = experiment(replace(TINY, rounds=1, frequencies=(1, 30, 100), nested_tuples=20_000))
    FIGURES[20](to)
    for mode in ("exact", "interval"):
        few, some, all_ = (r["joined"] for r in to.samples.raw if r["mode"] == mode)
        assert few < some < all_
    assert [r["joined"] for r in to.samples.raw if r["mode"] == "exact"] == [
        r["joined"] for r in to.samples.raw if r["mode"] == "interval"
    ]
    assert picked(100) is None


def test_rewrite_that_takes_too_long_is_given_up_and_named(rewritten: Callable[[None], None]) -> None:
    assert lineage_rewrite.rewrite_seconds(1, 10, 600, most=0.01) is None
    rewritten(None)
    to = experiment(replace(TINY, rounds=1))
    FIGURES[14](to)
    assert [r["mode"] for r in to.samples.raw if r["mode"] == "rewrite"] == []
    given_up, crashed = to.samples.notes["not_run"]
    assert given_up == "figure 14, rewrite of 2 aggregations over 10: given up after 60 s"
    assert "3, 4" in crashed


@pytest.mark.usefixtures("rewritten")
def test_one_rewrite_serves_both_figures_that_show_it() -> None:
    to = experiment(replace(TINY, rounds=1))
    FIGURES[13](to)
    FIGURES[14](to)
    found = [(r["figure"], r["x"]) for r in to.samples.raw if r["mode"] == "rewrite"]
    assert found == [(13, 10), (14, 1), (14, 2)]


def test_the_papers_numbers_stand_beside_those_here() -> None:
    raw = [{"figure": 13, "x": 100, "mode": "exact", "over_off": v} for v in (1.0, 1.5, 9.0)]
    assert compared(raw, 13) == ["figure 13, 100, exact, over_off: 1.5, in the paper 2.13 (113 %)"]
    assert compared(raw, 14) == []


def test_what_is_picked_and_compared_is_measured_in_a_full_run() -> None:
    scale = FULL
    xs = {
        13: scale.provenance, 14: scale.depths, 15: scale.windows, 16: scale.slides, 17: scale.kept, 18: scale.loads,
        19: scale.fronts, 20: scale.frequencies,
    }  # fmt: skip
    assert all(x in xs[figure] for figure, x, *_ in PICKED.values())
    assert all(paper.x in xs[paper.figure] for paper in PAPER)
    assert scale.rounds >= 5
    assert {*QUICK.windows} <= {*FULL.windows}


def test_the_nested_network_of_one_aggregation_is_basic() -> None:
    kinds = [[box.kind for box in net.boxes] for net in (basic(10), nested(1))]
    assert kinds[0] == kinds[1]


# --- the page ---


def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A tiny run as it is kept."""
    monkeypatch.setattr(lineage_figures, "QUICK", replace(TINY, rounds=1))
    result = json.loads(json.dumps(measure(BENCH, True, lambda _: None)))
    (tmp_path / "lineage-figures.json").write_text(json.dumps(result))
    return result


@pytest.mark.usefixtures("rewritten")
def test_the_page_draws_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = whole(tmp_path, monkeypatch)
    made = page(tmp_path)
    assert {*made} - {"benchmarks.md"} == {f"benchmarks/lineage-fig{n}.svg" for n in FIGURES}
    text = made["benchmarks.md"]
    assert re.findall(r"^### Figure (\d+)", text, re.MULTILINE) == [str(n) for n in SHOWN]
    assert "Not run: figure 14, rewrite of 3, 4 aggregations: there the paper's crashed." in text
    (row,) = (line for line in text.splitlines() if line.startswith("| 14 | 2 | rewrite |"))
    ratio = next(r["over_off"] for r in result["raw"] if (r["figure"], r["x"], r["mode"]) == (14, 2, "rewrite"))
    assert row.split(" | ")[5:] == ["160.26", f"{lineage_section.shown(ratio)} |"]
    assert "| 15 | 5,000 | single | generation, ratio | around 550 %; not stable beyond | 6.50 | not run |" in text


def test_all_experiments_follow_each_other(rewritten: Callable[[tuple[float, int]], None]) -> None:
    rewritten(REWRITTEN)
    told: list[str] = []
    samples = experiments(replace(TINY, rounds=1), told.append)
    assert list(dict.fromkeys(r["figure"] for r in samples.raw)) == list(FIGURES)
    assert {"fig13_exact_ws100", "fig14_exact_4", "fig17_exact_100"} <= {*samples.cases} <= {*PICKED}
    assert any(line.startswith("figure 14, 4, exact, over_off: ") for line in told)


def test_examples_in_docstrings_hold() -> None:
    for module in (lineage_section, lineage_completion):
        found = doctest.testmod(module)
        assert (found.failed, found.attempted > 0) == (0, True)
