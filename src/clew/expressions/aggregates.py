"""Aggregate expressions: `sum(price * volume) / sum(volume)` as projections around plain calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class UserFunction:
    """A user's function of a window: `function(rows: pyarrow.Table) -> value`, with its result type."""

    function: Callable[[pa.Table], Any]
    type: pa.DataType
    columns: tuple[str, ...] = ()  # empty: all of them

    @property
    def text(self) -> str:
        return f"{getattr(self.function, '__qualname__', repr(self.function))}({', '.join(self.columns) or '*'})"


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate over columns: `out = function(args)`.

    `function` is one of FUNCTIONS. `count` without `args` counts rows; with several, the rows in which
    none is null.
    """

    out: str
    function: str
    args: tuple[str, ...] = ()
    distinct: bool = False
    ignore_nulls: bool = False
    user: UserFunction | None = None


FUNCTIONS = (
    "count", "sum", "avg", "min", "max", "first", "last", "median", "collect",
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "user",
)  # fmt: skip


@dataclass(frozen=True)
class AggregatePlan:
    """An aggregation as three steps: project the arguments, call, project the results."""

    before: tuple[tuple[str, str], ...]  # columns to add: name, expression over the input
    calls: tuple[AggregateCall, ...]
    after: tuple[tuple[str, str], ...]  # output columns: name, expression over groups and call results
