"""The peer of the lineage benchmark: what it prints is read or refused, and wrong lineage does not pass its check."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clew.bench import peer_smokedduck, smokedduck_script
from clew.bench.peer_smokedduck import Peer, PeerFailed, PeerResult, parse_results, peer_available, run_peer
from clew.bench.tpch_like import Sizes, Tables

# --- what it prints ---


def printed(**changes: Any) -> str:
    found = {
        "sql": "SELECT", "plain_seconds": [0.5, 0.25], "lineage_seconds": [0.75, 1], "reading_seconds": [2.0, 3.0],
        "rows": 4, "pairs": 9, "checked": True, **changes,
    }  # fmt: skip
    return json.dumps({"version": "0.1", "rounds": 2, "queries": {"group": found}})


def test_results_are_read_with_every_sample() -> None:
    assert parse_results(printed()) == {"group": PeerResult([0.5, 0.25], [0.75, 1.0], 4, True, [2.0, 3.0], 9)}


@pytest.mark.parametrize("checked", [False, None, "yes"])
def test_only_a_plain_yes_counts_as_checked(checked: object) -> None:
    assert not parse_results(printed(checked=checked))["group"].checked


@pytest.mark.parametrize(
    "text",
    ["", "Enable Lineage Capture", "[]", "{}", printed(rows=None), printed(plain_seconds=[0.5]), printed(pairs="many")],
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(PeerFailed, match="smokedduck's results cannot be read"):
        parse_results(text)


def test_a_peer_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    without = Peer(Path(sys.executable), "0.1")
    with pytest.raises(PeerFailed, match=r"(?s)ended with exit 1.*No module named 'smokedduck'"):
        run_peer(without, tmp_path, 1, print)


# --- where it runs ---


def test_without_a_python_that_fits_there_is_no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(peer_smokedduck, "interpreter", lambda: None)
    assert peer_available(said.append, tmp_path) is None
    assert len(said) == 1
    assert said[0].startswith("no smokedduck: its wheels are for Python 3.11")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("ERROR: no wheel for this machine", "ERROR: no wheel for this machine"),
        ("WARNING: connection broken by x\nERROR: none", "the package index cannot be reached (ERROR: none)"),
        ("", "exit 1"),
    ],
)
def test_an_install_that_fails_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, reason: str
) -> None:
    said: list[str] = []
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\nmkdir -p \"$4\"\necho '{words}' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(peer_smokedduck, "interpreter", lambda: str(broken))
    assert peer_available(said.append, tmp_path / "cache") is None
    assert said[-1] == f"no smokedduck: {reason}"
    assert (tmp_path / "cache").is_dir()
    assert not list(tmp_path.glob("cache/*"))


def test_everything_that_is_installed_is_pinned_by_hash() -> None:
    lines = [line for line in peer_smokedduck.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    pinned = [line for line in lines if not line.startswith(" ")]
    assert any(line.startswith("smokedduck==") for line in pinned)
    assert all(re.fullmatch(r"[a-z-]+==\S+ \\", line) for line in pinned)
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines if line not in pinned)


def test_what_runs_there_imports_nothing_of_clew() -> None:
    tree = ast.parse(peer_smokedduck.SCRIPT.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "numpy"}


# --- its check ---

TABLES = Tables(Sizes(400, 100))
SOURCE = {
    "lineitem": smokedduck_script.columns_of(TABLES.lineitem),
    "orders": smokedduck_script.columns_of(TABLES.orders),
}


def grouped() -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer of `group` and its lineage, by NumPy."""
    lines = SOURCE["lineitem"]
    flags = np.char.add(lines["returnflag"].astype(str), lines["linestatus"].astype(str))
    names, out = np.unique(flags, return_inverse=True)
    count = np.bincount(out)
    answer = {
        "returnflag": np.array([n[0] for n in names], dtype=object),
        "linestatus": np.array([n[1] for n in names], dtype=object),
        "quantity": np.bincount(out, lines["quantity"]),
        "extendedprice": np.bincount(out, lines["extendedprice"]),
        "discount": np.bincount(out, lines["discount"]) / count,
        "lines": count,
    }
    return answer, {"lineitem": np.arange(400), "out_index": out}


def joined() -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer of `join` and its lineage, by NumPy."""
    lines, orders = SOURCE["lineitem"], SOURCE["orders"]
    rows = np.flatnonzero(orders["orderdate"][lines["orderkey"]] < 9204)
    order = lines["orderkey"][rows]
    answer = {
        **{name: lines[name][rows] for name in ("orderkey", "extendedprice", "discount")},
        **{name: orders[name][order] for name in ("orderdate", "orderpriority")},
    }
    return answer, {"lineitem": rows, "orders": order, "out_index": np.arange(len(rows))}


MADE = {"group": grouped, "join": joined}


@pytest.mark.parametrize("name", list(smokedduck_script.QUERIES))
def test_right_lineage_passes_in_any_order(name: str) -> None:
    answer, lineage = MADE[name]()
    mixed = np.random.default_rng(3).permutation(len(lineage["out_index"]))
    shuffled = {column: values[mixed] for column, values in lineage.items()}
    assert smokedduck_script.CHECKS[name](answer, shuffled, SOURCE)


@pytest.mark.parametrize("name", list(smokedduck_script.QUERIES))
def test_lineage_with_a_pair_missing_or_twice_does_not_pass(name: str) -> None:
    answer, lineage = MADE[name]()
    fewer = {column: values[1:] for column, values in lineage.items()}
    more = {column: np.concatenate([values, values[:1]]) for column, values in lineage.items()}
    assert not smokedduck_script.CHECKS[name](answer, fewer, SOURCE)
    assert not smokedduck_script.CHECKS[name](answer, more, SOURCE)


@pytest.mark.parametrize(("name", "column"), [("group", "lineitem"), ("join", "lineitem"), ("join", "orders")])
def test_lineage_that_names_other_rows_does_not_pass(name: str, column: str) -> None:
    answer, lineage = MADE[name]()
    wrong = lineage[column][np.r_[-1, 1 : len(lineage[column]) - 1, 0]]
    assert not smokedduck_script.CHECKS[name](answer, {**lineage, column: wrong}, SOURCE)


def test_an_answer_that_capture_changes_is_seen() -> None:
    answer, _ = grouped()
    assert smokedduck_script.same(answer, {**answer, "discount": answer["discount"] * (1 + 1e-12)})
    assert not smokedduck_script.same(answer, {**answer, "discount": answer["discount"] * 1.01})
    assert not smokedduck_script.same(answer, {**answer, "lines": answer["lines"] + 1})
    assert not smokedduck_script.same(answer, {name: values[1:] for name, values in answer.items()})


# --- its rounds ---


class Acted:
    """In the place of the engine: answers `group` at once, and keeps lineage when asked to, unless `forgetful`."""

    def __init__(self, forgetful: bool = False) -> None:
        self.forgetful = forgetful
        self.turns: list[bool] = []
        self.kept: list[int] = []
        self.answered, self.named = grouped()

    def answer(self, _: str, captured: bool) -> tuple[float, pa.Table]:
        self.turns.append(captured)
        self.kept = [400, 400] if captured and not self.forgetful else []
        return float(len(self.turns)), pa.table(self.answered)

    def lineage(self, _: str) -> tuple[float, pa.Table, dict[str, Any]]:
        return 0.5, pa.table(self.answered), self.named

    def forget(self) -> list[int]:
        kept, self.kept = self.kept, []
        return kept

    def columns(self, table: str) -> dict[str, Any]:
        return SOURCE[table]


def test_runs_take_turns_and_the_first_round_is_left_out() -> None:
    peer: Any = Acted()
    found = smokedduck_script.measure(peer, "group", 3)
    assert peer.turns[:8] == [False, True, True, False, False, True, True, False]
    assert (found["plain_seconds"], found["lineage_seconds"]) == ([4.0, 5.0, 8.0], [3.0, 6.0, 7.0])
    assert (found["reading_seconds"], found["pairs"], found["checked"]) == ([0.5] * 3, 400, True)


def test_a_timed_run_that_kept_no_lineage_is_seen() -> None:
    peer: Any = Acted(forgetful=True)
    assert not smokedduck_script.measure(peer, "group", 1)["checked"]
