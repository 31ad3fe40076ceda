"""The page of benchmarks: it is what its generator makes of the JSON, whichever of the benchmarks there are."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tools import svg_plot
from tools.benchmarks_page import DOCS, ORDER, page, write
from tools.svg_plot import bars, lines

from clew.bench.catalog import BENCHES
from clew.bench.core import Samples, environment, figures

SVG = "{http://www.w3.org/2000/svg}"


def result(name: str, raw: list[dict[str, Any]], notes: dict[str, Any]) -> dict[str, Any]:
    """A run of a benchmark in which every case came to 1."""
    bench = next(b for b in BENCHES if b.name == name)
    samples = Samples()
    for case in bench.cases:
        samples.cases[case.name] = [1.0] * 5
    return {
        "bench": name, **bench.to_json(), "quick": False, "started_at": "2026-01-02T03:04:05+00:00", "seconds": 60.0,
        "environment": environment(), "figures": [f.to_json() for f in figures(bench.cases, samples.cases)],
        "samples": samples.cases, "raw": raw, "notes": notes,
    }  # fmt: skip


def throughput(grown: float = 2.0) -> dict[str, Any]:
    seconds = {"clew": {"1000": 1.0, "4000": 1.0 + grown}, "spark": {"1000": 1.0, "4000": 7.0}}
    return result("throughput", [{"query": "q1", "round": 0, "seconds": seconds}], {"sizes": [1000, 4000], "rounds": 1})


def put(folder: Path, *results: dict[str, Any]) -> Path:
    (folder / "benchmarks").mkdir()
    for one in results:
        (folder / "benchmarks" / f"{one['bench']}.json").write_text(json.dumps(one))
    return folder


def test_the_page_is_what_the_generator_makes_of_the_json() -> None:
    made = page(DOCS / "benchmarks")
    stale = [name for name, text in made.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    assert not stale, "run `make figures`"
    assert {f"benchmarks/{p.name}" for p in (DOCS / "benchmarks").glob("*.svg")} == {*made} - {"benchmarks.md"}


@pytest.mark.parametrize("name", ORDER)
def test_the_json_there_is_a_full_run_of_the_benchmark_as_it_is(name: str) -> None:
    kept = json.loads((DOCS / "benchmarks" / f"{name}.json").read_text())
    bench = next(b for b in BENCHES if b.name == name)
    assert not kept["quick"]
    assert [f["case"] for f in kept["figures"]] == [c.name for c in bench.cases]
    assert {f["case"]: f["aim"] for f in kept["figures"]} == {c.name: c.aim for c in bench.cases}
    for case in bench.cases:
        assert len(kept["samples"][case.name]) >= 5, case.name


def test_the_page_shows_what_there_is(tmp_path: Path) -> None:
    made = page(put(tmp_path, throughput()) / "benchmarks")
    assert {*made} == {"benchmarks.md", "benchmarks/throughput.svg"}
    text = made["benchmarks.md"]
    assert "| [throughput](#throughput) | `q2` | 1 | 1 to 1 | ratio | ≥ 2 | no |" in text
    assert "Not met: `q2`." in text
    assert "## windows" not in text
    (tmp_path / "none").mkdir()
    assert {*page(tmp_path / "none")} == {"benchmarks.md"}


def test_bars_show_what_grew_between_two_sizes(tmp_path: Path) -> None:
    svg = page(put(tmp_path, throughput()) / "benchmarks")["benchmarks/throughput.svg"]
    texts = [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"1,500", "500"} <= {*texts}  # 3,000 tuples in 2 s, and in 6 s


def test_a_cost_lost_in_the_noise_has_no_bar(tmp_path: Path) -> None:
    svg = page(put(tmp_path, throughput(grown=-0.1)) / "benchmarks")["benchmarks/throughput.svg"]
    root = ElementTree.fromstring(svg)
    assert len([r for r in root.iter(f"{SVG}rect") if float(r.get("height", 0)) > 100]) == 2  # the ground and Spark's


def test_sections_stand_in_one_order_and_name_every_plot(tmp_path: Path) -> None:
    windows = [{"aggregate": "avg", "size": n, "us_per_tuple": 0.1} for n in (50, 100)]
    windows += [{"memory_of": n, "above_empty_bytes": 10**6} for n in ("empty worker", 50, 100)]
    raw = [{"case": "feed", "killed": "at record-created", "last_epoch": 50, "lost": 0, "twice": 0, "ready_s": 0.5}]
    folder = put(tmp_path, result("recovery", raw, {}), throughput(), result("windows", windows, {"tuples": 5}))
    made = page(folder / "benchmarks")
    text = made["benchmarks.md"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["throughput", "windows", "recovery"]
    assert {*re.findall(r"\]\((benchmarks/\S+\.svg)\)", text)} == {*made} - {"benchmarks.md"}
    assert "| feed at record-created | 50 | 0 | 0 | 0.50 s |" in text


def test_writing_changes_what_is_out_of_date_only(tmp_path: Path) -> None:
    put(tmp_path, throughput())
    (tmp_path / "benchmarks" / "gone.svg").write_text("<svg/>")
    assert {*write(tmp_path)} == {"benchmarks.md", "benchmarks/throughput.svg", "benchmarks/gone.svg"}
    assert write(tmp_path) == []
    assert sorted(p.name for p in (tmp_path / "benchmarks").iterdir()) == ["throughput.json", "throughput.svg"]


def test_every_benchmark_has_a_section() -> None:
    assert list(ORDER) == [b.name for b in BENCHES]


def test_plots_are_whole_and_say_what_they_show() -> None:
    series = {"a <b>": [(1.0, 2.0), (10.0, 4.0), (100.0, 3.0)], "c": [(1.0, 0.0), (100.0, 1.0)]}
    root = ElementTree.fromstring(lines("T & U", "x", "y", series, log=True))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"T & U", "x", "y", "a <b>", "c", "1", "10", "100"} <= {*texts}
    first, second = (p.get("points", "").split() for p in root.iter(f"{SVG}polyline"))
    across = [float(p.split(",")[0]) for p in first]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)
    assert [p.split(",")[0] for p in second] == [first[0].split(",")[0], first[2].split(",")[0]]
    up = [float(p.split(",")[1]) for p in first]
    assert up[1] < up[2] < up[0]


def test_values_on_a_logarithmic_axis_stand_by_their_powers_of_ten() -> None:
    root = ElementTree.fromstring(lines("t", "x", "y", {"a": [(1.0, 0.02), (2.0, 0.2), (3.0, 2.0)]}, log_y=True))
    assert {"0.01", "0.1", "1", "10"} <= {element.text for element in root.iter(f"{SVG}text")}
    (line,) = root.iter(f"{SVG}polyline")
    up = [float(p.split(",")[1]) for p in line.get("points", "").split()]
    assert up[0] - up[1] == pytest.approx(up[1] - up[2], abs=0.2)
    one = ElementTree.fromstring(lines("t", "x", "y", {"a": [(1.0, 10.0)]}, log_y=True))
    assert one.tag == f"{SVG}svg"


def test_a_plot_of_nothing_but_noughts_can_be_drawn() -> None:
    for svg in (lines("t", "x", "y", {"a": [(1.0, 0.0)]}), bars("t", "y", {"g": {"a": 0.0}}, slanted=True)):
        assert ElementTree.fromstring(svg).tag == f"{SVG}svg"


def test_examples_in_docstrings_hold() -> None:
    found = doctest.testmod(svg_plot)
    assert (found.failed, found.attempted > 0) == (0, True)
