"""A network as text, as Mermaid, as JSON and as a small static SVG."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clew.expressions.aggregates import UserFunction
from clew.model.schema import schema_text
from clew.model.types import type_name
from clew.network.boxes import (
    Apply,
    Box,
    CountWindow,
    Drop,
    Filter,
    Join,
    Landmark,
    Latch,
    Map,
    Resample,
    Sort,
    Source,
    Window,
    WindowKind,
)
from clew.network.code import code_mark, function_name
from clew.network.columns import quoted

if TYPE_CHECKING:
    from clew.network.network import Network


def what_it_does(box: Box) -> str:
    """A box's parameters, in a few words."""
    match box:
        case Source():
            return f"{schema_text(box.schema)}; order {box.order}; key {', '.join(box.key)}"
        case Filter():
            return box.condition
        case Map():
            return ", ".join(
                sql if sql in (name, quoted(name)) else f"{sql} AS {quoted(name)}" for name, sql in box.columns
            )
        case Sort():
            return f"on {box.on}, slack {box.slack}"
        case Window():
            by = f" by {', '.join(box.by)}" if box.by else ""
            return f"{_window(box.window)}{by}: {_aggregations(box.aggregations)}"
        case Join():
            keys = "".join(f", {left} = {right}" for left, right in box.keys)
            where = f", where {box.where}" if box.where else ""
            return f"{box.how}, {box.on[1]} - {box.on[0]} in [{box.low}, {box.high}]{keys}{where}"
        case Resample():
            return f"within {box.within} of {box.on[1]}: {_aggregations(box.aggregations)}"
        case Drop():
            return f"every {box.every}" if box.every else f"fraction {box.fraction}, seed {box.seed}"
        case Apply():
            return f"{function_name(box.function)}, {box.how}"
    return ""


def _window(window: WindowKind) -> str:
    match window:
        case CountWindow():
            return f"{window.rows} rows, slide {window.slide}" + (", partial" if window.partial else "")
        case Landmark():
            return f"since {window.start}, every {window.every} " + (f"of {window.on}" if window.on else "rows")
        case Latch():
            return f"latch every {window.every} " + (f"of {window.on}" if window.on else "rows")
    return f"span {window.span} of {window.on}, slide {window.slide}, from the {window.anchor}"


def _aggregations(items: tuple[tuple[str, str | UserFunction], ...]) -> str:
    return ", ".join(f"{v.text if isinstance(v, UserFunction) else v} AS {quoted(out)}" for out, v in items)


def _stored_as(network: Network) -> dict[str, list[str]]:
    marks: dict[str, list[str]] = {}
    for word, streams in (("output", network.outputs), ("kept", network.kept)):
        for stream, box in streams.items():
            marks.setdefault(box, []).append(f"{word} '{stream}'")
    return marks


def as_text(network: Network) -> str:
    boxes, marks = network.boxes, _stored_as(network)
    name_width = max((len(b.name) for b in boxes), default=0)
    kind_width = max((len(b.kind) for b in boxes), default=0)
    lines = [f"Network '{network.name}'"]
    for box in boxes:
        feeds = f" <- {', '.join(box.inputs)}" if box.inputs else ""
        stored = f"  => {', '.join(marks[box.name])}" if box.name in marks else ""
        lines.append(f"  {box.name:<{name_width}}  {box.kind:<{kind_width}}  {what_it_does(box)}{feeds}{stored}")
    return "\n".join(lines)


def as_mermaid(network: Network) -> str:
    numbers = {box.name: f"b{i}" for i, box in enumerate(network.boxes)}
    lines = ["flowchart LR"]
    for box in network.boxes:
        detail = ": ".join(filter(None, (box.kind, what_it_does(box))))
        text = f"<b>{escape(box.name)}</b><br/>{escape(detail)}".replace('"', "&quot;")
        left, right = ("([", "])") if isinstance(box, Source) else ("[", "]")
        lines.append(f'  {numbers[box.name]}{left}"{text}"{right}')
        lines += [f"  {numbers[parent]} --> {numbers[box.name]}" for parent in box.inputs]
    for i, (name, box_name) in enumerate({**network.outputs, **network.kept}.items()):
        lines += [f'  o{i}[("{escape(name)}")]', f"  {numbers[box_name]} --> o{i}"]
    return "\n".join(lines)


def as_json(network: Network) -> dict[str, Any]:
    """All that the network is, in JSON's types: what the store remembers and compares."""
    return {
        "name": network.name,
        "boxes": [box_json(box) for box in network.boxes],
        "outputs": network.outputs,
        "kept": network.kept,
    }


def box_json(box: Box) -> dict[str, Any]:
    fields = {f.name: getattr(box, f.name) for f in dataclasses.fields(box) if f.name not in ("name", "inputs", "at")}
    if isinstance(box, Apply):
        fields["function"] = _function(fields["function"], fields.pop("version"))
    return {
        "name": box.name,
        "kind": box.kind,
        "inputs": list(box.inputs),
        "at": box.at,
        **{name: plain(value) for name, value in fields.items()},
    }


def plain(value: Any) -> Any:
    """A value of a box in JSON's types."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case pa.Schema():
            return schema_text(value)
        case UserFunction():
            return {
                **_function(value.function, value.version),
                "function": value.text,
                "returns": type_name(value.type),
            }
        case tuple() | list():
            return [plain(v) for v in value]
        case dict():
            return {name: plain(v) for name, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__.lower()} | {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    return str(value)


def _function(call: Any, version: str | None) -> dict[str, Any]:
    """A user's function by its name and its version; by its code if it has no version."""
    return {"function": function_name(call), "code": code_mark(call) if version is None else f"version {version}"}


# --- SVG: columns by depth, one card a box, a line an arrow; where a line passes a column it has a row of its own ---

_W, _H, _GAP_X, _GAP_Y, _PAD = 214, 46, 44, 18, 14
_FILL = {"source": "#e3f0e6", "output": "#fdf0d5"}
_Edge = tuple[str, int]  # the box that an arrow leads to, and which of its inputs it is
_Spot = tuple[int, int]  # column, row


def as_svg(network: Network) -> str:
    boxes = network.boxes
    place, routes = _layout(boxes)
    spots = [*place.values(), *(spot for route in routes.values() for spot in route)]
    width = 2 * _PAD + (max((c for c, _ in spots), default=0) + 1) * (_W + _GAP_X) - _GAP_X
    height = 2 * _PAD + (max((r for _, r in spots), default=0) + 1) * (_H + _GAP_Y) - _GAP_Y
    marks = _stored_as(network)
    arrows = [arrow for box in boxes for arrow in _arrows(box, place, routes)]
    cards = [_card(b, place[b.name], marks.get(b.name, [])) for b in boxes]
    style = "text{font:12px system-ui,sans-serif;fill:#1d2733}.k{font-size:10px;fill:#5b6876}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="network {escape(network.name, quote=True)}"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{"".join(arrows)}{"".join(cards)}</svg>'
    )


def _layout(boxes: Sequence[Box]) -> tuple[dict[str, _Spot], dict[_Edge, list[_Spot]]]:
    """Where each box stands, and where each arrow passes the columns between its ends."""
    depth = _depths(boxes)
    place: dict[str, _Spot] = {}
    routes: dict[_Edge, list[_Spot]] = {(b.name, port): [] for b in boxes for port in range(len(b.inputs))}
    for column in range(max(depth.values(), default=-1) + 1):
        wishes: list[tuple[float, int, Box | _Edge]] = []
        for number, box in enumerate(boxes):
            if depth[box.name] == column:
                rows = [(routes[box.name, port] or [place[p]])[-1][1] for port, p in enumerate(box.inputs)]
                wishes.append((sum(rows) / len(rows) if rows else 0, number, box))
            for port, parent in enumerate(box.inputs):
                if depth[parent] < column < depth[box.name]:
                    edge = box.name, port
                    wishes.append(((routes[edge] or [place[parent]])[-1][1], number, edge))
        free = 0
        for wish, _, item in sorted(wishes, key=lambda w: w[:2]):
            row = max(free, int(wish))
            free = row + 1
            if isinstance(item, tuple):
                routes[item].append((column, row))
            else:
                place[item.name] = (column, row)
    return place, routes


def _depths(boxes: Sequence[Box]) -> dict[str, int]:
    """Each box one column behind its last input; a source one before its first user."""
    depth: dict[str, int] = {}
    for box in boxes:
        depth[box.name] = max((depth[p] + 1 for p in box.inputs), default=0)
    for box in boxes:
        users = [depth[b.name] for b in boxes if box.name in b.inputs]
        if not box.inputs and users:
            depth[box.name] = min(users) - 1
    return depth


def _corner(spot: _Spot) -> tuple[int, int]:
    return _PAD + spot[0] * (_W + _GAP_X), _PAD + spot[1] * (_H + _GAP_Y)


def _arrows(box: Box, place: Mapping[str, _Spot], routes: Mapping[_Edge, Sequence[_Spot]]) -> list[str]:
    """The arrows to a box. They end in the middle of its card, but side by side if one box feeds it twice."""
    ways = [[place[parent], *routes[box.name, port], place[box.name]] for port, parent in enumerate(box.inputs)]
    ways.sort(key=lambda way: way[-2][1])
    twice = len(set(box.inputs)) < len(ways)
    step = min(14, (_H - 14) // (len(ways) - 1)) if twice else 0
    return [_arrow(way, step * i - step * (len(ways) - 1) // 2) for i, way in enumerate(ways)]


def _arrow(spots: Sequence[_Spot], aside: int) -> str:
    """An arrow from card to card, by the spots between them; it ends `aside` below the last card's middle."""
    corners = [_corner(spot) for spot in spots]
    x, y = corners[0][0] + _W, corners[0][1] + _H // 2
    path = f"M{x} {y}"
    for corner_x, corner_y in corners[1:]:
        last = corner_x == corners[-1][0]
        middle, y1 = (x + corner_x) // 2, corner_y + _H // 2 + aside * last
        path += f"C{middle} {y} {middle} {y1} {corner_x - 6 * last} {y1}"
        if not last:
            path += f"H{corner_x + _W}"
        x, y = corner_x + _W, y1
    end = corners[-1][0]
    return (
        f'<path d="{path}" fill="none" stroke="#8a97a6" stroke-width="1.5"/>'
        f'<path d="M{end} {y}l-7 -4v8z" fill="#8a97a6"/>'
    )


def _card(box: Box, spot: _Spot, marks: Sequence[str]) -> str:
    x, y = _corner(spot)
    fill = _FILL["source"] if isinstance(box, Source) else _FILL["output"] if marks else "#eef2f7"
    streams = [mark.split(" ", 1)[1].strip("'") for mark in marks]
    text = f"{box.name} ⇒ {', '.join(streams)}" if streams else box.name
    if streams == [box.name]:
        text = f"⇒ {box.name}"
    detail = ": ".join(filter(None, (box.kind, what_it_does(box))))
    return (
        f"<g><title>{escape(box.name)}: {escape(detail)}</title>"
        f'<rect x="{x}" y="{y}" width="{_W}" height="{_H}" rx="7" fill="{fill}" stroke="#b9c3cf"/>'
        f'<text x="{x + 9}" y="{y + 19}">{escape(_short(text, 27))}</text>'
        f'<text class="k" x="{x + 9}" y="{y + 35}">{escape(_short(detail, 33))}</text></g>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
