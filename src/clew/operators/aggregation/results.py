"""What an aggregate gives back: its type, its values, and where it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from clew.errors import TypeProblem, UnknownColumn, nearest
from clew.expressions.aggregates import FUNCTIONS, AggregateCall, call_text
from clew.model.rows import Bools
from clew.model.types import type_name

SPREADS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
_NUMERIC = ("sum", "avg", "median", *SPREADS)
_ORDERED = ("min", "max")


@dataclass(frozen=True, eq=False)
class Aggregated:
    """One value a range. Where `failed` is set the value is null, and `why(i)` says what happened."""

    values: pa.Array
    failed: Bools | None = None  # None: nowhere
    reason: str = ""
    reasons: Mapping[int, str] = field(default_factory=dict)  # where they differ by row

    def why(self, row: int) -> str:
        """Why the aggregate of a row failed."""
        return self.reasons.get(row, self.reason)


def result_type(call: AggregateCall, schema: pa.Schema) -> pa.DataType:
    """The type of a call's value over columns of these types, as Spark gives it; TypeProblem if none fits.

    >>> result_type(AggregateCall("s", "sum", ("x",)), pa.schema([("x", pa.int32())]))
    DataType(int64)
    """
    for name in call.args:
        if name not in schema.names:
            raise UnknownColumn(
                f"{call_text(call)} aggregates column '{name}', which its input does not have",
                details=[f"columns: {', '.join(schema.names)}"],
                hint=nearest(name, schema.names),
            )
    if call.function not in FUNCTIONS:
        raise TypeProblem(f"no aggregate function '{call.function}'", hint=nearest(call.function, FUNCTIONS))
    if call.function == "user":
        if call.user is None:
            raise TypeProblem(f"aggregate '{call.out}' has no user function")
        return call.user.type
    if call.function == "count":
        return _count_type(call, schema)
    if len(call.args) != 1:
        raise TypeProblem(f"{call_text(call)}: {call.function} takes one argument, not {len(call.args)}")
    if call.distinct and call.function not in _ORDERED:
        raise TypeProblem(
            f"{call_text(call)}: of the aggregates, only count, min and max take DISTINCT",
        )
    return type_over(call, schema.field(call.args[0]).type)


def type_over(call: AggregateCall, argument: pa.DataType) -> pa.DataType:
    """The type of a call with one argument, by that argument's type."""
    function, shown = call.function, (call.shown or call.args)[0]
    if function in _NUMERIC and not is_numeric(argument):
        raise TypeProblem(f"{call_text(call)}: {function} needs numbers, but '{shown}' is {_name(argument)}")
    if function in _ORDERED and not is_flat(argument):
        raise TypeProblem(
            f"{call_text(call)}: {function} needs values with an order, but '{shown}' is {_name(argument)}"
        )
    if function == "collect":
        return pa.list_(pa.field("element", argument))
    if function == "median" or function in SPREADS:
        return pa.float64()
    if function in ("sum", "avg"):
        return _sum_type(argument) if function == "sum" else _avg_type(argument)
    return argument


def is_numeric(data_type: pa.DataType) -> bool:
    """Whether values of the type can be added up."""
    return bool(
        pa.types.is_signed_integer(data_type)
        or pa.types.is_float32(data_type)
        or pa.types.is_float64(data_type)
        or pa.types.is_decimal128(data_type)
    )


def is_flat(data_type: pa.DataType) -> bool:
    """Whether values of the type have no parts: what min, max and DISTINCT can compare."""
    return not pa.types.is_nested(data_type)


def sum_decimal(argument: pa.DataType) -> pa.DataType:
    """The type in which Spark adds up decimals, also on the way to their average."""
    return pa.decimal128(min(38, argument.precision + 10), argument.scale)


def _sum_type(argument: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(argument):
        return sum_decimal(argument)
    return pa.int64() if pa.types.is_integer(argument) else pa.float64()


def _avg_type(argument: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(argument):
        return pa.decimal128(min(38, argument.precision + 4), min(38, argument.scale + 4))
    return pa.float64()


def _count_type(call: AggregateCall, schema: pa.Schema) -> pa.DataType:
    if call.distinct:
        if not call.args:
            raise TypeProblem("count(DISTINCT *) needs columns", hint="name the columns: count(DISTINCT a, b)")
        for name, shown in zip(call.args, call.shown or call.args, strict=True):
            if not is_flat(schema.field(name).type):
                kind = _name(schema.field(name).type)
                raise TypeProblem(f"{call_text(call)}: DISTINCT compares plain values, but '{shown}' is {kind}")
    return pa.int64()


def _name(data_type: pa.DataType) -> str:
    return type_name(data_type).upper()
