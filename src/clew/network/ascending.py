"""Order columns followed through a network: of which box's columns it is known how their values come.

A window whose rows lie between the least and the greatest value of such a column, and which no other row of its
group lies between, can be told by these two values: what rewriting needs (`clew.network.rewrite`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from clew.expressions.parse import parse_expression
from clew.model.axis import span_of
from clew.network.boxes import (
    Aggregation,
    Apply,
    Box,
    CountWindow,
    Drop,
    Filter,
    Join,
    Map,
    Resample,
    Source,
    Union,
    ValueWindow,
    Window,
    joined_columns,
)


@dataclass(frozen=True)
class Ascent:
    """How the values of a column come: an order column of a source, or the least or greatest of one in windows.

    `in_time`: never behind the progress of the column, so that no window or join calls a row late. `rising`: they
    never fall. `strict_within`: the columns within whose groups they rise strictly; None: within none.
    """

    in_time: bool
    rising: bool
    strict_within: frozenset[str] | None

    def is_strict_by(self, by: Iterable[str]) -> bool:
        """Whether the values rise strictly within groups by these columns."""
        return self.strict_within is not None and self.strict_within <= set(by)


@dataclass(frozen=True)
class Known:
    """The columns that a box emits; the types of those that are columns of a source, unchanged; what ascends."""

    columns: tuple[str, ...]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    ascents: Mapping[str, Ascent] = field(default_factory=dict)

    def told_apart_by(self, by: Sequence[str]) -> str | None:
        """A column that rises strictly within groups by these columns, if there is one."""
        return next((c for c, ascent in self.ascents.items() if ascent.is_strict_by(by)), None)


def known_of(box: Box, inputs: Sequence[Known]) -> Known:
    """What is known of the columns that a box emits, from what is known of its inputs'."""
    match box:
        case Source():
            rest = frozenset(box.key) - {box.order} if box.order in box.key else None
            types = {f.name: f.type for f in box.schema}
            return Known(tuple(types), types, {box.order: Ascent(True, True, rest)})
        case Filter():
            return inputs[0]
        case Map():
            return _projected(box, inputs[0])
        case Union():
            return _united(inputs)
        case Window():
            return _windowed(box, inputs[0])
        case Join():
            return _joined(box, *inputs)
        case Apply():
            return Known(tuple(box.schema.names))
        case Resample():
            return Known((*inputs[1].columns, *(out for out, _ in box.aggregations)))
        case Drop():
            return inputs[0]
        case _:  # a sort: out of the order of places, and of any column
            return replace(inputs[0], ascents={})


def _projected(box: Map, known: Known) -> Known:
    kept: dict[str, str] = {}  # by the name that a column gets, the one that it had
    for out, text in box.columns:
        if (column := _column(parse_expression(text), known.columns)) is not None:
            kept[out] = column
    names = {column: out for out, column in kept.items()}
    ascents = {}
    for out, column in kept.items():
        if (ascent := known.ascents.get(column)) is not None:
            within = ascent.strict_within
            lost = within is None or not within <= names.keys()
            ascents[out] = replace(ascent, strict_within=None if lost else frozenset(names[c] for c in within or ()))
    types = {out: known.types[column] for out, column in kept.items() if column in known.types}
    return Known(tuple(out for out, _ in box.columns), types, ascents)


def _united(inputs: Sequence[Known]) -> Known:
    """Progress is that of the slowest input, so that what came in time still does; nothing rises any more."""
    first = inputs[0]
    types = {c: t for c, t in first.types.items() if all(other.types.get(c) == t for other in inputs)}
    in_time = [c for c in types if all(c in other.ascents and other.ascents[c].in_time for other in inputs)]
    return Known(first.columns, types, {c: Ascent(True, False, None) for c in in_time})


def _joined(box: Join, left: Known, right: Known) -> Known:
    """A pair comes when its later row does: neither order column of a join rises or keeps up with its progress."""
    names = joined_columns(left.columns, right.columns, box.keys, box.suffix)
    types = {**left.types, **{names[c]: t for c, t in right.types.items() if c in names}}
    return Known((*left.columns, *names.values()), types)


def _windowed(box: Window, known: Known) -> Known:
    columns = (*box.by, *(out for out, _ in box.aggregations))
    types = {c: known.types[c] for c in box.by if c in known.types}
    ascents = {}
    for out, which, column in _extremes(box.aggregations, known.columns):
        if column in known.types:
            types[out] = known.types[column]
        if column in known.ascents and (ascent := _of_windows(box, column, which, known)) is not None:
            ascents[out] = ascent
    return Known(columns, types, ascents)


def _of_windows(box: Window, column: str, which: str, known: Known) -> Ascent | None:
    """How the least (`min`) or greatest (`max`) values of a column come from windows."""
    ascent, by, single = known.ascents[column], frozenset(box.by), not box.by
    window = box.window
    if isinstance(window, CountWindow):
        if not ascent.is_strict_by(by):
            return None
        if which == "max":  # that of the row with which the window comes
            return Ascent(ascent.rising, ascent.rising, ascent.strict_within)
        rises = ascent.rising and single
        return Ascent(rises, rises, None if window.partial else by)
    if not isinstance(window, ValueWindow) or window.on != column or not is_by_value(window, ascent, box.by):
        return None
    kind = known.types[column]
    apart = span_of(window.slide, kind, "slide") >= span_of(window.span, kind, "span")
    if window.anchor == "clock":  # groups close together
        return Ascent(single or apart, single, by if apart else None)
    return Ascent(single, single, by if apart or which == "min" else None)


def is_by_value(window: ValueWindow, ascent: Ascent, by: Sequence[str]) -> bool:
    """Whether rows of one group belong to the same windows if they have the same value, and within `span` of another.

    They do unless some are late. A window that begins at a first tuple also needs them to rise: else it holds what
    comes later and lies before its head, however far.
    """
    return ascent.in_time and (window.anchor == "clock" or ascent.rising or ascent.is_strict_by(by))


def _extremes(aggregations: Sequence[Aggregation], columns: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """The aggregates that are the least or greatest value of a column: name, `min` or `max`, column."""
    for out, text in aggregations:
        tree = parse_expression(text) if isinstance(text, str) else None
        if isinstance(tree, exp.Min | exp.Max) and (column := _column(tree.this, columns)) is not None:
            yield out, "min" if isinstance(tree, exp.Min) else "max", column


def _column(tree: exp.Expr, columns: Sequence[str]) -> str | None:
    """The column that an expression is, if it is no more than that."""
    if not isinstance(tree, exp.Column) or tree.table:
        return None
    return next((c for c in columns if c.lower() == tree.name.lower()), None)
