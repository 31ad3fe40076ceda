"""Benchmarks: what they are, how samples become figures, and what the command line makes of them; nothing is timed."""

from __future__ import annotations

import doctest
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clew.bench.catalog import BENCHES
from clew.bench.core import Bench, Progress, Samples, figures, measure
from clew.bench.figures import Case, figure, interval, slope
from clew.cli.app import app
from clew.cli.bench import _row, with_file

AIMS = {
    ("throughput", "q1"): (">= 1", "ratio"),
    ("throughput", "q2"): (">= 2", "ratio"),
    ("throughput", "passthrough"): (">= 1", "ratio"),
    ("throughput", "q1_plain"): (">= 0.9", "ratio"),
    ("throughput", "passthrough_plain"): (">= 0.5", "ratio"),
    ("windows", "cost_20000_over_50"): ("<= 1.25", "ratio"),
    ("windows", "memory_20000_over_50"): ("<= 2", "ratio"),
    ("small-epochs", "late_over_early"): ("<= 1.2", "ratio"),
    ("small-epochs", "files"): ("", "files"),
    ("small-epochs", "latency_seconds"): ("<= 0.5", "s"),
    ("recovery", "lost"): ("<= 0", "rows"),
    ("recovery", "twice"): ("<= 0", "rows"),
    ("recovery", "seconds"): ("", "s"),
}

HALVES = (
    Case("more", "what is more", "ratio", "higher", 2.0),
    Case("less", "what is less", "s", "lower", 1.0),
    Case("none", "what nothing may be of", "rows", "lower", 0, worst=True),
    Case("told", "what is told only", "files", "lower"),
)


def clew(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A benchmark `halves` in place of the others; the list says whether each of its runs was a quick one."""
    ran: list[bool] = []

    def run(quick: bool, progress: Progress) -> Samples:
        ran.append(quick)
        samples = Samples(notes={"rounds": 5})
        for number in range(5):
            progress(f"round {number + 1}")
            samples.add("more", 2.0 + number)
            samples.add("less", 0.25 * (number + 1))
            samples.add("none", float(number == 3))
            samples.add("told", 12_345)
            samples.measured(round=number, seconds=float("nan"))
        return samples

    monkeypatch.setattr("clew.bench.catalog.BENCHES", (Bench("halves", "Halves of things", HALVES, run),))
    return ran


# --- figures ---


@pytest.mark.parametrize(
    ("case", "samples", "value", "met"),
    [
        (HALVES[0], [2.0, 3.0, 4.0, 5.0, 6.0], 4.0, True),
        (HALVES[0], [1.9, 3.0, 4.0, 5.0, 6.0], 4.0, False),
        (HALVES[1], [0.2, 0.4, 0.6, 0.8, 1.0], 0.6, True),
        (HALVES[1], [0.2, 0.4, 0.6, 0.8, 1.1], 0.6, False),
        (HALVES[2], [0.0] * 20, 0.0, True),
        (HALVES[3], [3.0, 1.0, 2.0], 2.0, None),
        (HALVES[0], [6.0], 6.0, None),
        (HALVES[0], [1.0] * 4, 1.0, None),
        (HALVES[2], [0.0] * 4, 0.0, None),
        (HALVES[2], [0.0, 1.0], 1.0, False),
    ],
)
def test_an_aim_is_met_only_if_the_unfavourable_end_meets_it(
    case: Case, samples: list[float], value: float, met: bool | None
) -> None:
    found = figure(case, samples)
    assert (found.value, found.met, found.aim) == (value, met, case.aim)


def test_a_single_sample_meets_no_aim() -> None:
    one = [f.to_json() for f in figures(HALVES, {case.name: [5.0] for case in HALVES[:2]})]
    assert [(f["low"], f["high"], f["met"]) for f in one] == [(5.0, 5.0, None)] * 2
    assert [_row(f)[-1] for f in one] == ["-", "-"]


def test_one_bad_round_of_many_is_not_left_out_where_nothing_may_go_wrong() -> None:
    samples = [0.0] * 29 + [1.0]
    assert interval(samples) == (0, 0)
    found = figure(HALVES[2], samples)
    assert (found.value, found.low, found.high, found.met) == (1, 0, 1, False)


def test_the_interval_holds_the_median_in_nine_of_ten_runs() -> None:
    assert interval([5, 1, 3, 2, 4]) == (1, 5)  # four samples could not: 1 - 2 * 2**-4 is 0.875
    assert interval(list(range(20))) == (5, 14)
    assert interval([7]) == (7, 7)


def test_a_slope_leaves_the_fixed_cost_out() -> None:
    assert slope(3.0, 5.0, 1_000_000, 2_000_000) == pytest.approx(2e-6)
    assert slope(5.0, 3.0, 1, 2) > 0


def test_a_case_without_samples_gives_no_figure() -> None:
    assert [f.case for f in figures(HALVES, {"told": [1.0]})] == ["told"]


def test_a_result_holds_all_that_was_measured(fake: list[bool]) -> None:
    from clew.bench import catalog

    result = measure(catalog.BENCHES[0], True, lambda _: None)
    assert fake == [True]
    assert result["quick"]
    assert result["environment"]["cores"] >= 1
    assert {"pyspark", "pyarrow", "clew"} <= {*result["environment"]["packages"]}
    assert [c["name"] for c in result["cases"]] == ["more", "less", "none", "told"]
    assert {*result["figures"][0]} == {"case", "value", "low", "high", "unit", "better", "aim", "met"}
    assert [f["met"] for f in result["figures"]] == [True, False, False, None]
    assert result["samples"]["more"] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert len(result["raw"]) == 5


# --- the command line ---


def test_the_list_names_every_case_with_its_aim() -> None:
    found = {(b.name, c.name): (c.aim_text(), c.unit) for b in BENCHES for c in b.cases}
    assert AIMS.items() <= found.items()
    result = clew("bench", "--list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["benchmark", "case", "aim", "unit", "what"]
    for (bench, case), (aim, _) in AIMS.items():
        (line,) = [text for text in lines if text.split()[:2] == [bench, case]]
        assert aim in line


def test_the_list_as_json_is_the_same_list() -> None:
    listed = json.loads(clew("bench", "--list", "--json").stdout)
    assert [b["name"] for b in listed] == [b.name for b in BENCHES]
    cases = {(b["name"], c["name"]): (c["aim"], c["unit"], c["better"]) for b in listed for c in b["cases"]}
    assert cases["windows", "cost_20000_over_50"] == (1.25, "ratio", "lower")
    assert cases["throughput", "q2"] == (2.0, "ratio", "higher")


def test_a_benchmark_shows_its_figures_and_says_what_it_is_at(fake: list[bool]) -> None:
    result = clew("bench", "halves")
    assert (result.exit_code, fake) == (0, [False])
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["case", "value", "low", "-", "high", "unit", "aim", "met"],
        ["more", "4", "2", "-", "6", "ratio", ">=", "2", "yes"],
        ["less", "0.750", "0.250", "-", "1.25", "s", "<=", "1", "no"],
        ["none", "1", "0", "-", "1", "rows", "<=", "0", "no"],
        ["told", "12,345", "12,345", "-", "12,345", "files"],
    ]
    assert result.stderr.splitlines() == [f"halves: round {n}" for n in range(1, 6)]


@pytest.mark.parametrize("order", [("halves", "--json", "{}"), ("--json", "{}", "halves"), ("--json={}", "halves")])
def test_json_goes_to_a_file_beside_the_table(fake: list[bool], tmp_path: Path, order: tuple[str, ...]) -> None:
    file = tmp_path / "halves.json"
    result = clew("bench", *(word.format(file) for word in order), "--quick")
    assert (result.exit_code, fake) == (0, [True])
    assert result.stdout.startswith("case")
    assert '"less": [0.25, 0.5, 0.75, 1.0, 1.25]' in file.read_text()
    written = json.loads(file.read_text(), parse_constant=_refused)
    assert (written["bench"], written["quick"], len(written["figures"])) == ("halves", True, 4)
    assert written["raw"][0]["seconds"] == "NaN"
    assert f"written to {file}" in result.stderr.replace("\n", "")


def _refused(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")


@pytest.mark.parametrize(
    "order",
    [("halves", "--json"), ("halves", "--json", "-"), ("halves", "--json", "--quick"), ("--json", "-", "halves")],
)
def test_json_without_a_file_is_all_that_goes_to_stdout(fake: list[bool], order: tuple[str, ...]) -> None:
    result = clew("bench", *order)
    assert (result.exit_code, len(fake)) == (0, 1)
    assert json.loads(result.stdout)["bench"] == "halves"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say which benchmark: halves"),
        (("halfs",), "there is no benchmark 'halfs'; benchmarks: halves; did you mean 'halves'?"),
        (("--list", "halves"), "it takes nothing but --json beside it"),
        (("--list", "--json", "file.json"), "it takes nothing but --json beside it"),
        (("halves", "--json", "nowhere/file.json"), "there is no folder 'nowhere'"),
        (("--json", "halves"), "say which benchmark: halves"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(fake: list[bool], words: tuple[str, ...], said: str) -> None:
    result = clew("bench", *words)
    assert (result.exit_code, result.stdout, fake) == (2, "", [])
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_a_bare_json_stands_for_stdout() -> None:
    assert with_file([]) == []
    assert with_file(["a", "--json", "-v"]) == ["a", "--json", "-", "-v"]
    assert with_file(["a", "--json", "-"]) == ["a", "--json", "-"]


@pytest.mark.parametrize("module", ["clew.bench.figures", "clew.cli.bench"])
def test_examples_in_docstrings_hold(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert (found.failed, found.attempted > 0) == (0, True)
