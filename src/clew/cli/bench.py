"""`bench`: one benchmark run, or all of them named."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from clew.cli.output import MISSING, Out, plain
from clew.errors import nearest

if TYPE_CHECKING:
    from clew.bench.core import Bench

STDOUT = "-"


class BenchCommand(TyperCommand):
    """A verb whose `--json` takes a file, or nothing: then it is stdout."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_file(args))


def with_file(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the file that a bare `--json` stands for.

    >>> with_file(["--list", "--json"]), with_file(["windows", "--json", "--quick"])
    (['--list', '--json', '-'], ['windows', '--json', '-', '--quick'])
    >>> with_file(["windows", "--json", "w.json"])
    ['windows', '--json', 'w.json']
    """
    found: list[str] = []
    for word, after in zip_longest(words, words[1:]):
        found.append(word)
        if word == "--json" and (after is None or (after.startswith("-") and after != STDOUT)):
            found.append(STDOUT)
    return found


def bench(
    out: Out,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which benchmark; --list names them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, fewer rounds: within a minute.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Name the benchmarks, their cases and aims.")] = False,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="[FILE]", help="Write all that was measured there; without FILE, print it."),
    ] = None,
) -> None:
    """Run a benchmark: measure clew on this machine, against what it is to reach."""
    from clew.bench.catalog import BENCHES

    if listed:
        if name is not None or quick or as_json not in (None, STDOUT):
            raise typer.BadParameter("it takes nothing but --json beside it", param_hint="--list")
        _list(out, BENCHES)
        return
    found = {known.name: known for known in BENCHES}
    if name is None:
        raise typer.BadParameter(f"say which benchmark: {', '.join(found)}", param_hint="NAME")
    if name not in found:
        near = nearest(name, found)
        raise typer.BadParameter(
            f"there is no benchmark '{name}'; benchmarks: {', '.join(found)}" + (f"; {near}" if near else ""),
            param_hint="NAME",
        )
    _measure(out, found[name], quick, as_json)


def _list(out: Out, benches: Sequence[Bench]) -> None:
    if out.json:
        out.document([b.to_json() for b in benches])
        return
    rows = [(b.name, c.name, c.aim_text() or MISSING, c.unit, c.what) for b in benches for c in b.cases]
    out.table(("benchmark", "case", "aim", "unit", "what"), rows)


def _measure(out: Out, bench: Bench, quick: bool, to: str | None) -> None:
    from clew.bench.core import measure

    file = None if to in (None, STDOUT) else Path(str(to))
    if file is not None and not file.parent.is_dir():  # not after minutes of measuring
        raise typer.BadParameter(f"there is no folder '{file.parent}'", param_hint="--json")
    with _talk(out, bench.name) as progress:
        result = measure(bench, quick, progress)
    if file is not None:
        file.write_text(_text(result), encoding="utf-8")
        out.say(f"written to {file}")
    if to == STDOUT:
        out.document(result)
        return
    out.table(("case", "value", "low - high", "unit", "aim", "met"), [_row(f) for f in result["figures"]])
    if quick:
        out.say("a quick look: few rounds, and sizes at which fixed costs count", style="dim")


def _text(result: Mapping[str, Any]) -> str:
    """The JSON of a run, a list of numbers to a line."""
    text = json.dumps(plain(result), indent=1, allow_nan=False) + "\n"
    return re.sub(r"\[\s+([-+.\deE,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _row(figure: Mapping[str, Any]) -> tuple[object, ...]:
    aim, met = figure["aim"], figure["met"]
    return (
        figure["case"],
        number(figure["value"]),
        f"{number(figure['low'])} - {number(figure['high'])}",
        figure["unit"],
        MISSING if aim is None else f"{'>=' if figure['better'] == 'higher' else '<='} {aim:g}",
        MISSING if aim is None else "-" if met is None else "yes" if met else "no",
    )


def number(value: float) -> str:
    """
    >>> number(0), number(216), number(1.16034), number(12345.6), number(0.0312)
    ('0', '216', '1.16', '12,346', '0.031')
    """
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


@contextmanager
def _talk(out: Out, label: str) -> Iterator[Callable[[str], None]]:
    """What a benchmark is at: one line that changes if stderr is a terminal, else a line each."""
    if not sys.stderr.isatty():
        yield lambda text: out.say(f"{label}: {text}")
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda text: bar.update(task, description=f"{label}: {text}")
