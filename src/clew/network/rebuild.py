"""A network made again from what a store remembers of it: the inverse of `drawing.as_json`.

All but the code of users' functions comes back; in their places stand functions that say what is missing when they
are called. Spans, times and numbers that JSON has no type for were written as text, and are read again.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from clew.expressions.aggregates import UserFunction
from clew.model.axis import Span
from clew.model.schema import parse_schema
from clew.model.types import parse_type
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
    Union,
    ValueWindow,
    Window,
)
from clew.network.code import MissingFunction
from clew.network.network import Network

Facts = Mapping[str, Any]

_BOXES: dict[str, type[Box]] = {
    kind.__name__.lower(): kind
    for kind in (Source, Filter, Map, Union, Sort, Window, Join, Resample, Drop, Apply)
}  # fmt: skip
_WINDOWS: dict[str, type] = {kind.__name__.lower(): kind for kind in (CountWindow, ValueWindow, Landmark, Latch)}
_SPANS = ("key_span", "lateness", "retention", "max_ahead", "low", "high", "within", "span", "slide", "every")
_TIMEDELTA = re.compile(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{6}))?")
_VERSION = "version "


def rebuilt(known: Facts) -> Network:
    """The network that a store remembers."""
    return Network.of(known["name"], map(_box, known["boxes"]), known["outputs"], known["kept"])


def missing_functions(network: Network) -> list[MissingFunction]:
    """The functions of a rebuilt network that only stand for users' own."""
    found: list[object] = []
    for box in network.boxes:
        if isinstance(box, Apply):
            found.append(box.function)
        if isinstance(box, Window | Resample):
            found += [value.function for _, value in box.aggregations if isinstance(value, UserFunction)]
    return [function for function in found if isinstance(function, MissingFunction)]


def span_from(value: Any) -> Span:
    """A span as it stands in JSON: a number or a duration as such, any other as its text.

    >>> span_from("1 day, 0:00:01"), span_from("2.50"), span_from("5 minutes"), span_from(3)
    (datetime.timedelta(days=1, seconds=1), Decimal('2.50'), '5 minutes', 3)
    """
    if not isinstance(value, str):
        span: Span = value
        return span
    if found := _TIMEDELTA.fullmatch(value):
        days, hours, minutes, seconds, micros = (int(part or 0) for part in found.groups())
        return dt.timedelta(days, seconds, micros, 0, minutes, hours)
    number = _number(value)
    return value if number is None else number


def _box(facts: Facts) -> Box:
    kind = _BOXES[facts["kind"]]
    if kind is Apply:
        written = facts["function"]
        facts = {**facts, "function": _function(written), "version": _version(written)}
    names = {f.name for f in dataclasses.fields(kind)}
    return kind(**{name: _value(name, value) for name, value in facts.items() if name in names})


def _value(name: str, value: Any) -> Any:
    """A field of a box or of a window."""
    if value is None:
        return None
    match name:
        case "schema":
            return parse_schema(value)
        case "window":
            return _window(value)
        case "aggregations":
            return tuple((out, _aggregation(item)) for out, item in value)
        case _ if name in _SPANS:
            return span_from(value)
    return _tuples(value)


def _window(facts: Facts) -> Any:
    kind = _WINDOWS[facts["kind"]]
    start = {"start": _start(facts["start"])} if kind is Landmark else {}
    return kind(**{n: _value(n, v) for n, v in facts.items() if n not in ("kind", "start")}, **start)


def _start(value: Any) -> Any:
    """A landmark: the text of a time is as good as the time."""
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    number = _number(value)
    return value if number is None else number


def _aggregation(item: Any) -> str | UserFunction:
    if isinstance(item, str):
        return item
    name, _, columns = item["function"].partition("(")
    names = () if columns == "*)" else tuple(columns.removesuffix(")").split(", "))
    function = _function({**item, "function": name})
    return UserFunction(function, parse_type(item["returns"]), names, _version(item))


def _function(facts: Facts) -> MissingFunction:
    return MissingFunction(facts["function"], facts["code"])


def _version(facts: Facts) -> str | None:
    """The version that a user gave a function, which then stands in place of its code."""
    code = str(facts["code"])
    return code.removeprefix(_VERSION) if code.startswith(_VERSION) else None


def _number(text: str) -> Any:
    """A number that was neither whole nor a float; None of other text."""
    try:
        return Fraction(text) if "/" in text else Decimal(text)
    except (InvalidOperation, ValueError):
        return None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
