"""`check` and `graph`: a network looked at without Spark and without a store."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.output import FAILED, MISSING, Json, Out, count
from clew.errors import ClewError

if TYPE_CHECKING:
    from clew.network.network import Network

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A Python file that defines a network.")
]
NetworkOption = Annotated[str | None, typer.Option("--network", help="Which network of the file.")]


class Form(StrEnum):
    """Forms of a drawing."""

    MERMAID = "mermaid"
    JSON = "json"
    SVG = "svg"


def check(out: Out, file: FileArgument, network: NetworkOption = None) -> None:
    """Build a network and type what can be typed without Spark; show it, or what is wrong with it."""
    try:
        found, left = _checked(file, network)
    except ClewError as error:
        if not out.json:
            raise
        out.document({"ok": False, "error": _error(error)})
        raise typer.Exit(FAILED) from None
    if out.json:
        out.document({"ok": True, "network": found.graph("json"), "typed_at_open": left})
        return
    _show(out, found)
    several = len(left) != 1
    rest = (
        f"{count(len(left), 'box')} {'are' if several else 'is'} typed by Spark at open: {', '.join(left)}"
        if left
        else "all expressions are typed"
    )
    out.say(f"network '{found.name}' is well built: {count(len(found.boxes), 'box')}, {rest}", style="green")


def graph(
    out: Out,
    file: FileArgument,
    network: NetworkOption = None,
    form: Annotated[Form, typer.Option("--form", help="What to draw it as.")] = Form.MERMAID,
    to: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there, not to stdout.")] = None,
) -> None:
    """Draw a network as Mermaid, JSON or SVG."""
    from clew.cli.networks import load_network

    drawn = load_network(file, network).graph("json" if out.json else form.value)
    text = drawn if isinstance(drawn, str) else json.dumps(drawn, indent=2, ensure_ascii=False)
    if to is None:
        out.text(text)
        return
    try:
        to.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        out.say(f"'{to}' cannot be written: {error.strerror}", style="red")
        raise typer.Exit(FAILED) from None
    out.say(f"written to {to}")


def _checked(file: Path, name: str | None) -> tuple[Network, list[str]]:
    from clew.cli.networks import load_network

    network = load_network(file, name)
    return network, types_left_to_spark(network)


def types_left_to_spark(network: Network) -> list[str]:
    """Type all boxes whose types need no Spark; the names of the others, and of those behind them.

    An error is the one that opening the network would raise.
    """
    from clew.engine.plan import build_plan
    from clew.network.boxes import Box
    from clew.network.network import Network

    class NeedsSpark(Exception):
        pass

    class Known(Network):
        """The network without what is left to Spark."""

        @property
        def boxes(self) -> tuple[Box, ...]:
            return tuple(box for box in network.boxes if box.name not in left)

        @property
        def stored(self) -> dict[str, str]:
            return {stream: box for stream, box in network.stored.items() if box not in left}

    left: list[str] = []

    def refuse(columns: Any, schema: Any, box: Box) -> list[Any]:
        del columns, schema
        left.append(box.name)
        raise NeedsSpark

    while True:
        try:
            build_plan(Known(network.name), refuse)
            return left
        except NeedsSpark:
            for box in network.boxes:  # those that feed it come before a box
                if box.name not in left and any(name in left for name in box.inputs):
                    left.append(box.name)


def _show(out: Out, network: Network) -> None:
    from clew.network.drawing import what_it_does

    stored: dict[str, str] = {}
    for word, streams in (("output", network.outputs), ("kept as", network.kept)):
        for stream, box in streams.items():
            stored[box] = ", ".join(filter(None, (stored.get(box), f"{word} {stream}")))
    rows = [
        (box.name, box.kind, what_it_does(box), ", ".join(box.inputs) or MISSING, stored.get(box.name, MISSING))
        for box in network.boxes
    ]
    out.table(("box", "kind", "what it does", "fed by", "stored"), rows)


def _error(error: ClewError) -> Json:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "details": list(error.details),
        "hint": error.hint,
        "at": error.at,
    }
