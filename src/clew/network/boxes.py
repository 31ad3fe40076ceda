"""Boxes: frozen descriptions of what a network is made of. Plain values, they cross processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from clew.expressions.aggregates import UserFunction
from clew.model.axis import Span

LINEAGE = "lineage"  # a retention: what explanations need


@dataclass(frozen=True)
class CountWindow:
    """`rows` rows of a group, a new window every `slide` rows; `partial`: also while it fills, as SQL's ROWS."""

    rows: int
    slide: int
    partial: bool = False


@dataclass(frozen=True)
class ValueWindow:
    """Rows within `span` of each other on column `on`; a new window every `slide`."""

    span: Span
    slide: Span
    on: str
    anchor: Literal["clock", "tuple"] = "clock"


@dataclass(frozen=True)
class Landmark:
    """All rows since `start`, emitted every `every`: on column `on`, or by row count if `on` is None."""

    start: Any
    every: Span
    on: str | None = None


@dataclass(frozen=True)
class Latch:
    """Tumbling every `every`, its aggregates over all rows of the group so far; by row count if `on` is None."""

    every: Span
    on: str | None = None


WindowKind = CountWindow | ValueWindow | Landmark | Latch
Aggregation = tuple[str, "str | UserFunction"]  # output column, expression


@dataclass(frozen=True)
class Box:
    """What all boxes have: a name, the names of the boxes that feed it, and where the user wrote it."""

    name: str
    inputs: tuple[str, ...]
    at: str = field(default="", compare=False, kw_only=True)

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Source(Box):
    schema: pa.Schema
    order: str
    key: tuple[str, ...]
    key_span: Span | None = None
    lateness: Span = 0
    retention: Span | None = None  # or LINEAGE
    max_ahead: Span | None = None


@dataclass(frozen=True)
class Filter(Box):
    condition: str


@dataclass(frozen=True)
class Map(Box):
    columns: tuple[tuple[str, str], ...]  # output column, expression


@dataclass(frozen=True)
class Union(Box):
    pass


@dataclass(frozen=True)
class Sort(Box):
    on: str
    slack: int


@dataclass(frozen=True)
class Window(Box):
    window: WindowKind
    by: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]


@dataclass(frozen=True)
class Join(Box):
    """Pairs with `left.on + low <= right.on <= left.on + high` and equal keys, for which `where` holds."""

    on: tuple[str, str]  # left order column, right order column
    low: Span
    high: Span
    keys: tuple[tuple[str, str], ...]
    where: str | None
    how: Literal["inner", "left"]
    suffix: str = "_right"


def joined_columns(
    left: Sequence[str], right: Sequence[str], keys: Sequence[tuple[str, str]], suffix: str
) -> dict[str, str]:
    """The right columns that a join emits behind the left ones, and their names there: suffixed where they clash.

    >>> joined_columns(["ts", "k"], ["ts", "k", "x"], [("k", "k")], "_right")
    {'ts': 'ts_right', 'x': 'x'}
    """
    matched, taken = {theirs for _, theirs in keys}, {name.lower() for name in left}
    return {name: f"{name}{suffix}" if name.lower() in taken else name for name in right if name not in matched}


@dataclass(frozen=True)
class Resample(Box):
    """For each row of the second input, aggregates over the rows of the first within `within` of it."""

    on: tuple[str, str]
    within: Span
    by: tuple[tuple[str, str], ...]
    aggregations: tuple[Aggregation, ...]


@dataclass(frozen=True)
class Drop(Box):
    """Drop every `every`-th row, or each row with probability `fraction`."""

    every: int | None
    fraction: float | None
    seed: int


@dataclass(frozen=True)
class Apply(Box):
    """User code. `rows`: one-to-one; `stateful`: Arrow state, explicit lineage; `opaque`: depends on all seen."""

    function: Callable[..., Any]
    schema: pa.Schema
    how: Literal["rows", "stateful", "opaque"]
    version: str | None = None
