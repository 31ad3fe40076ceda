"""An explanation as a tree along the network, as HTML for notebooks, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from clew.engine.lineage import stored_as
from clew.explain.explanation import Explanation
from clew.model.places import Places
from clew.network.drawing import plain, what_it_does

SHOWN_ANSWERS, SHOWN_ROWS = 5, 6
_SAME_ROWS = ("filter", "sort", "union", "drop")  # boxes that emit the rows they take


@dataclass
class Told:
    """One box of the tree: what it is, the tuples it made that count here, and the boxes that fed it."""

    box: str
    kind: str
    what: str
    rows: int
    lines: list[str] = field(default_factory=list)
    folded: int = 0
    fed_by: list[Told] = field(default_factory=list)
    outside: bool = False


def as_text(explanation: Explanation, shown: int, rows: int) -> str:
    """The tree of each output tuple, the first so many; of each box so many rows."""
    answers = explanation.answers
    if not len(answers):
        return f"no tuple of '{explanation.output}' was asked for"
    parts = [_one(explanation, i, rows) for i in range(min(len(answers), shown))]
    if len(answers) > shown:
        parts.append(f"… and {len(answers) - shown:,} more tuples of '{explanation.output}'")
    if explanation.replayed:
        replayed = ", ".join(f"{n:,} for '{box}'" for box, n in explanation.replayed.items())
        parts.append(f"rows replayed for this: {replayed}")
    return "\n\n".join(parts)


def _one(explanation: Explanation, i: int, rows: int) -> str:
    answers = explanation.answers
    row = answers.table.slice(i, 1).to_pylist()[0]
    trigger = explanation.trigger(int(answers.places.stamp[i]))
    head = f"{answers.tid(i)}  {values_text(row)}\n  epoch {int(answers.epoch[i])}, completed by {trigger}"
    return "\n".join([head, *_drawn(told(explanation, i, rows), "", True)])


def told(explanation: Explanation, i: int, rows: int = SHOWN_ROWS) -> Told:
    """The tree of one output tuple, from the box that emitted it; of each box so many rows."""
    step = explanation.plan.stored[explanation.output]
    return _told(explanation, i, explanation.plan.steps[step].box, rows, set())


def _told(explanation: Explanation, i: int, box: str, rows: int, seen: set[str]) -> Told:
    plan, layers = explanation.plan, explanation.traced.layers
    step, described = plan.ends[box], plan.network.box(box)
    places = layers[step].of(i) if step in layers else Places.none()
    node = Told(box, described.kind, what_it_does(described), len(places))
    asked = step in explanation.targets.values()
    if box in seen:
        node.lines.append("(as above)")
        return node
    seen.add(box)
    if asked or described.kind not in _SAME_ROWS:
        _list_rows(explanation, node, step, places, rows)
    if asked:
        return node
    for parent in _boxes_before(explanation, box):
        end = plan.ends[parent]
        if end in layers:
            node.fed_by.append(_told(explanation, i, parent, rows, seen))
        else:
            other = plan.network.box(parent)
            node.fed_by.append(Told(parent, other.kind, "not asked about: contributes nothing", 0, outside=True))
    return node


def _boxes_before(explanation: Explanation, box: str) -> list[str]:
    return list(dict.fromkeys(explanation.plan.network.box(box).inputs))


def _list_rows(explanation: Explanation, node: Told, step: str, places: Places, rows: int) -> None:
    """The first rows of a box and the last one, between them how many are left out."""
    count = len(places)
    if not count:
        return
    shown = np.arange(count) if count <= rows else np.append(np.arange(rows - 1), count - 1)
    some = places.take(shown)
    values = explanation.values(step, some)
    stream = stored_as(explanation.plan, step)
    names = [f"{stream}:{n}" for n in explanation.tracer.seqs(stream, some).tolist()] if stream else [""] * len(shown)
    if values is None:
        node.lines.append("(their values are not stored, and cannot be made again)")
        return
    node.lines = [f"{name}  {values_text(row)}".strip() for name, row in zip(names, values, strict=True)]
    node.folded = count - len(shown)


def values_text(row: Mapping[str, Any]) -> str:
    """A row on one line, whatever its values hold."""
    return ", ".join(f"{name} {_short(value)}" for name, value in row.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "null" if value is None else "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value)[:41])
    return text if len(text) <= 40 else text[:39] + "…"


def _drawn(node: Told, indent: str, last: bool) -> list[str]:
    count = "" if node.outside else f"  [{node.rows:,} {'tuple' if node.rows == 1 else 'tuples'}]"
    what = f"  {node.what}" if node.what and node.kind != "source" else ""
    lines = [f"{indent}{'└─ ' if last else '├─ '}{node.box}  {node.kind}{what}{count}"]
    indent += "   " if last else "│  "
    bar = "│  " if node.fed_by else "   "
    rows = list(node.lines)
    if node.folded:
        rows.insert(len(rows) - 1, f"… {node.folded:,} more")
    lines += [f"{indent}{bar}{row}" for row in rows]
    for n, child in enumerate(node.fed_by):
        lines += _drawn(child, indent, n == len(node.fed_by) - 1)
    return lines


# --- JSON ---


def as_json(explanation: Explanation) -> dict[str, Any]:
    answers = explanation.answers
    return {
        "output": explanation.output,
        "of": list(explanation.targets),
        "outside": list(explanation.outside),
        "replayed": explanation.replayed,
        "tuples": [_json_of(explanation, i) for i in range(len(answers))],
    }


def _json_of(explanation: Explanation, i: int) -> dict[str, Any]:
    answers = explanation.answers
    place = answers.places
    inputs = {}
    for name, step in explanation.targets.items():
        layer = explanation.layer(name)
        rows = explanation.values(step, layer.of(i))
        tids = explanation.tids[answers.tid(i)][name]
        if rows is None:
            inputs[name] = [{"tid": tid} for tid in tids]
        else:
            inputs[name] = [{"tid": tid, **plain(row)} for tid, row in zip(tids, rows, strict=True)]
    return {
        "tid": answers.tid(i),
        "row": plain(answers.table.slice(i, 1).to_pylist()[0]),
        "epoch": int(answers.epoch[i]),
        "trigger": explanation.trigger(int(place.stamp[i])),
        "inputs": inputs,
        "boxes": _flat(told(explanation, i)),
    }


def _flat(node: Told) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    stack: Sequence[Told] = [node]
    while stack:
        first, *rest = stack
        if not first.outside and first.box not in found:
            found[first.box] = {
                "box": first.box,
                "kind": first.kind,
                "what": first.what,
                "tuples": first.rows,
                "fed_by": [child.box for child in first.fed_by if not child.outside],
            }
        stack = [*rest, *first.fed_by]
    return list(found.values())


# --- HTML ---

_STYLE = (
    "font:13px/1.45 system-ui,sans-serif;color:inherit;border:1px solid #8884;border-radius:6px;"
    "padding:.6em .9em;margin:.4em 0;overflow-x:auto"
)


def as_html(explanation: Explanation) -> str:
    """Folded by box with `<details>`; no script."""
    answers = explanation.answers
    parts = []
    for i in range(min(len(answers), SHOWN_ANSWERS)):
        row = answers.table.slice(i, 1).to_pylist()[0]
        trigger = explanation.trigger(int(answers.places.stamp[i]))
        parts.append(
            f'<div style="{_STYLE}"><b>{escape(answers.tid(i))}</b> {escape(values_text(row))}'
            f'<div style="opacity:.7">epoch {int(answers.epoch[i])}, completed by {escape(trigger)}</div>'
            f"{_html_of(told(explanation, i))}</div>"
        )
    if len(answers) > SHOWN_ANSWERS:
        more = f"… and {len(answers) - SHOWN_ANSWERS:,} more tuples of '{explanation.output}'"
        parts.append(f"<div>{escape(more)}</div>")
    return "".join(parts) or f"<div>no tuple of '{escape(explanation.output)}' was asked for</div>"


def _html_of(node: Told) -> str:
    count = "" if node.outside else f" — {node.rows:,} {'tuple' if node.rows == 1 else 'tuples'}"
    what = f" <code>{escape(node.what)}</code>" if node.what and node.kind != "source" else ""
    rows = list(node.lines)
    if node.folded:
        rows.insert(len(rows) - 1, f"… {node.folded:,} more")
    listed = "".join(f"<li>{escape(row)}</li>" for row in rows)
    inner = (f'<ul style="margin:.2em 0 .2em 1.2em">{listed}</ul>' if listed else "") + "".join(
        map(_html_of, node.fed_by)
    )
    return (
        f'<details open style="margin-left:1em"><summary><b>{escape(node.box)}</b> {escape(node.kind)}{what}{count}'
        f"</summary>{inner}</details>"
    )


__all__ = ["Told", "as_html", "as_json", "as_text", "told", "values_text"]
