"""The reference, `docs/reference.md`: signatures and docstrings of what a user calls, as they stand in the code.

python -m tools.reference     # write it
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clew.testing
from clew import errors
from clew.engine.runtime import Epoch
from clew.engine.streaming import Run
from clew.network.stream import Resampled, Windowed

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
WIDTH = 100

HEAD = """\
# Reference

Made from the docstrings by `make docs`. The [guides](guides/networks.md) have examples.
"""
CLASSES: dict[str, tuple[type, str]] = {
    "Networks": (clew.Network, "net"),
    "Streams": (clew.Stream, "stream"),
    "Windows and resamplings": (Windowed, "windowed"),
    "": (Resampled, "resampled"),
    "Engines": (clew.Engine, "engine"),
}
MADE = {clew.Stream, Windowed, Resampled, clew.Engine}
"""Classes that a user is given and never makes."""


def reference() -> str:
    """The whole document."""
    parts = [HEAD]
    for title, (kind, name) in CLASSES.items():
        parts += [f"## {title}\n"] if title else []
        parts += _functions_before(title)
        parts += _class(kind, name)
    parts += ["## Results\n", *_values(Epoch), *_values(Run), "## Errors\n", _errors()]
    parts += ["## Testing\n", "From `clew.testing`; see [testing](guides/testing.md).\n"]
    found = [getattr(clew.testing, name) for name in clew.testing.__all__]
    parts += [part for item in found if inspect.isfunction(item) for part in _entry(item.__name__, item)]
    return "\n".join(parts)


def _functions_before(title: str) -> list[str]:
    if title == "Engines":
        return list(_entry("clew.open", clew.open))
    if title == "Windows and resamplings":
        return list(_entry("clew.function", clew.function))
    return []


def _class(kind: type, name: str) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    if kind not in MADE:
        yield _code(_signature(f"clew.{kind.__name__}", kind.__init__))
    yield _prose(kind)
    for member, value in vars(kind).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"#### `{name}.{member}`\n"
            yield _prose(value)
        elif inspect.isfunction(value):
            yield from _entry(f"{name}.{member}", value, "####")


def _entry(name: str, call: Callable[..., Any], level: str = "###") -> Iterator[str]:
    yield f"{level} `{name}`\n"
    yield _code(_signature(name, call))
    yield _prose(call)


def _values(kind: type) -> Iterator[str]:
    """A dataclass that a user reads."""
    yield f"### {kind.__name__}\n"
    yield _prose(kind)
    yield "\n".join(f"- `{f.name}`: `{f.type}`" for f in dataclasses.fields(kind)) + "\n"


def _errors() -> str:
    lines = [
        "All are in `clew.errors`; `clew.ClewError` is the base of all.\n",
        "| error | is a | when |",
        "|---|---|---|",
    ]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.ClewError):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            lines.append(f"| `{name}` | {bases} | {inspect.getdoc(kind)} |")
    return "\n".join(lines) + f"\n\n`clew.FarAheadWarning`: {inspect.getdoc(clew.FarAheadWarning)}\n"


def _signature(name: str, call: Callable[..., Any]) -> str:
    found = inspect.signature(call)
    shown: list[str] = []
    keywords = False
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            shown.append("*")
        keywords = parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    result = f" -> {_text(found.return_annotation)}" if found.return_annotation not in (found.empty, "None") else ""
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = f": {_text(parameter.annotation)}" if parameter.annotation is not parameter.empty else ""
    default = ""
    if parameter.default is not parameter.empty:
        default = f" = {parameter.default!r}" if kind else f"={parameter.default!r}"
    return f"{stars}{parameter.name}{kind}{default}"


def _text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _code(text: str) -> str:
    return f"```py\n{text}\n```\n"


def _prose(value: object) -> str:
    """A docstring, its doctests and indented lines as code."""
    parts: list[str] = []
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].startswith(">>> #"):
            continue
        if lines and (lines[0].startswith(">>>") or all(line.startswith("    ") for line in lines)):
            shift = 0 if lines[0].startswith(">>>") else 4
            parts.append("```py\n" + "\n".join(line[shift:] for line in lines) + "\n```")
        elif lines:
            parts.append(paragraph)
    return "\n\n".join(parts) + "\n" if parts else ""


if __name__ == "__main__":
    DOCUMENT.write_text(reference())
    print(f"{DOCUMENT} written", file=sys.stderr)
