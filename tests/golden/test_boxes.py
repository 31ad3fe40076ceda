"""Each box of the algebra on a few rows that can be checked by hand: `boxes.txt`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session import Engine
from clew.testing import FINISH, check_reference, check_restart, check_split_invariance, table, text
from clew.testing.laws import act
from clew.testing.tables import batches


@dataclass(frozen=True)
class Case:
    title: str
    code: str
    inputs: dict[str, str]
    finish: bool
    expected: str

    def network(self) -> clew.Network:
        net = clew.Network("golden")
        streams = {}
        for name, given in self.inputs.items():
            schema = ", ".join(cell.strip() for cell in given.splitlines()[0].split("|"))
            columns = [cell.split()[0] for cell in schema.split(", ")]
            streams[name] = net.stream(name, schema, order="ts", key=columns[:1] if name == "s" else columns)
        eval(self.code, {**streams}).output("o")
        return net

    def actions(self) -> list[Any]:
        fed = {name: batches(given) for name, given in self.inputs.items()}
        most = max(map(len, fed.values()))
        found: list[Any] = [{name: parts[i] for name, parts in fed.items() if i < len(parts)} for i in range(most)]
        return found + [FINISH] * self.finish


def cases() -> list[Case]:
    found = []
    for block in (Path(__file__).parent / "boxes.txt").read_text().split("\n## ")[1:]:
        (title, code, *given), expected = (part.splitlines() for part in block.split("\n=>\n"))
        inputs: dict[str, list[str]] = {}
        for line in given:
            name, colon, rest = line.partition(": ")
            if colon and len(name) == 1:
                inputs[name] = [rest]
            elif line != "finish":
                inputs[list(inputs)[-1]].append(line)
        texts = {name: "\n".join(lines) for name, lines in inputs.items()}
        found.append(Case(title, code, texts, "finish" in given, "\n".join(expected).strip()))
    return found


CASES = cases()
every_case = pytest.mark.parametrize("case", CASES, ids=[c.title.split(":")[0] for c in CASES])


def output(engine: Engine) -> str:
    """The visible columns of the output as a text table."""
    store = engine._store
    if "o" not in store.state.streams:
        return ""
    found = store.read_table("o")
    return text(found.select([n for n in found.column_names if not n.startswith("_")]))


@every_case
def test_a_box_gives(tmp_path: Path, case: Case) -> None:
    with clew.open(tmp_path / "s", case.network(), lane="driver", durable=False) as engine:
        for action in case.actions():
            act(engine, action)
        assert output(engine) == text(table(case.expected))


@every_case
def test_and_holds_the_laws(tmp_path: Path, case: Case) -> None:
    check_reference(case.network(), case.actions(), tmp_path / "reference")
    check_split_invariance(case.network(), case.actions(), tmp_path / "split")
    check_restart(case.network(), case.actions(), tmp_path / "restart")


def test_every_kind_of_box_has_a_case() -> None:
    kinds = {box.kind for case in CASES for box in case.network().boxes}
    assert kinds == {"source", "filter", "map", "window", "sort", "union", "join", "resample", "drop"}
