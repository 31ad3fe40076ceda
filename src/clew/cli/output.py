"""How a verb speaks: data on stdout, talk on stderr; failures in one form and with one exit code."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import shlex
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from clew.errors import ClewError

FAILED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141

Json = dict[str, Any]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log, and tracebacks of failures.")]


class _StdoutFailed(Exception):
    """What stdout goes to takes no more."""


@contextmanager
def _stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _StdoutFailed(error.strerror) from error


@_stdout()
def _flush_stdout() -> None:
    sys.stdout.flush()


@dataclass(frozen=True)
class Out:
    """Where one run of a verb writes, and in which form."""

    json: bool = False
    verbose: bool = False

    def say(self, text: str, style: str = "") -> None:
        """A line of talk, on stderr."""
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(Text(text, style=style))

    @staticmethod
    def width() -> int:
        """How wide talk may be."""
        return Console(stderr=True).width

    @_stdout()
    def document(self, value: object) -> None:
        """The one JSON document of a verb, on stdout."""
        print(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))

    @_stdout()
    def text(self, text: str) -> None:
        """Text as it is, on stdout."""
        print(text)

    @_stdout()
    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows under their columns, on stdout; numbers to the right. A terminal folds what is too wide."""
        console = Console(highlight=False, soft_wrap=True)
        rights = [any(_is_number(row[i]) for row in rows) for i in range(len(columns))]
        texts = [["" if value is MISSING else cell(value) for value in row] for row in rows]
        widths = [max(map(cell_len, (name, *(row[i] for row in texts)))) for i, name in enumerate(columns)]
        if sys.stdout.isatty() and sum(widths) + 2 * (len(widths) - 1) > console.width:
            _print_folded(columns, texts, rights)
            return
        lines = [_line(row, widths, rights) for row in (columns, *texts)]
        if sys.stdout.isatty():
            console.print(Text(lines.pop(0), style="bold"))
        sys.stdout.writelines(line + "\n" for line in lines)

    @contextmanager
    def progress(self, label: str, total: float) -> Iterator[Callable[[float, str], None]]:
        """A bar on stderr if that is a terminal; what it gives takes how far things are, and a word on them."""
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                   TimeElapsedColumn())  # fmt: skip
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(label, total=total or 1)
            yield lambda done, word: bar.update(task, completed=done, description=f"{label}  {word}".rstrip())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(texts: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    parts = []
    for text, width, right in zip(texts, widths, rights, strict=True):
        gap = " " * (width - cell_len(text))
        parts.append(gap + text if right else text + gap)
    return "  ".join(parts).rstrip(" ")


def _print_folded(columns: Sequence[str], texts: Sequence[Sequence[str]], rights: Sequence[bool]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, right in zip(columns, rights, strict=True):
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


MISSING = object()
"""A cell with nothing in it, where null would say something else."""


def cell(value: object) -> str:
    """A value as a table shows it."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if text.isprintable() else repr(text)[1:-1]  # one row, one line, and no way to steer a terminal


def plain(value: Any) -> Any:
    """A value in JSON's types; NaN, infinities and decimals as text, times in ISO form."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return value.hex()
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "row"), count(1200, "row"), count(2, "box")
    ('1 row', '1,200 rows', '2 boxes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('x') else 's'}"


def size(count: float) -> str:
    """
    >>> size(512), size(2_340_000)
    ('512 B', '2.3 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            break
        count, unit = count / 1000, {"B": "kB", "kB": "MB", "MB": "GB", "GB": "TB"}[unit]
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def program() -> str:
    """How this program can be called again from here."""
    if shutil.which("clew"):
        return "clew"
    own = os.path.relpath(sys.argv[0])
    if Path(own).is_file() and os.access(own, os.X_OK):
        return shlex.quote(own)
    return f"{shlex.quote(sys.executable)} -m clew.cli"


def verb(call: Callable[..., None]) -> Callable[..., None]:
    """A function `call(out, ...)` as a verb: with `--json` and `-v`, and with every failure told in the house form.

    A function with a parameter `as_json` declares that option itself, and is given what it holds.
    """
    given = inspect.signature(call, eval_str=True)
    _, *own = given.parameters.values()
    both = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("as_json", JsonOption), ("verbose", VerboseOption))
        if name not in given.parameters
    ]

    @functools.wraps(call)
    def run(*, as_json: bool | str | None, verbose: bool, **arguments: Any) -> None:
        out = Out(bool(as_json), verbose)
        if "as_json" in given.parameters:
            arguments["as_json"] = as_json
        with failures_told(out), _warnings_told(out):
            call(out, **arguments)
            _flush_stdout()

    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *both]
    run.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


@contextmanager
def failures_told(out: Out) -> Iterator[None]:
    """Failures on stderr, without a traceback unless one is asked for; the exit code is what is left of them."""
    try:
        yield
    except KeyboardInterrupt:
        out.say("stopped; all that was committed is kept")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _close_stdout()
        raise typer.Exit(BROKEN_PIPE) from None
    except _StdoutFailed as error:
        _close_stdout()
        out.say(f"stdout cannot be written: {error}", style="red")
        raise typer.Exit(FAILED) from None
    except ClewError as error:
        if out.verbose:
            traceback.print_exc()
        out.say(f"{type(error).__name__}: {error}", style="red")
        raise typer.Exit(FAILED) from None
    except Exception as error:
        if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code"):  # typer's own: wrong use
            raise
        if out.verbose:
            traceback.print_exc()
        lines = str(error).strip().splitlines() or ["no message"]
        out.say(f"{type(error).__name__}: {lines[0]}\n  hint: -v shows the traceback", style="red")
        raise typer.Exit(FAILED) from None


def _close_stdout() -> None:
    """Let what could not be written go; else Python complains once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_told(out: Out) -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        out.say(f"warning: {message}", style="yellow")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
