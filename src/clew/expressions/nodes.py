"""Typed nodes of an expression: constants, folding, and Spark's coercions between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from clew.expressions import arithmetic
from clew.expressions.arithmetic import is_float, is_int
from clew.expressions.literals import date_literal, timestamp_literal
from clew.expressions.vectors import DTYPES, Batch, Vector, dtype_of
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ

BOOL, INT, BIGINT, FLOAT, DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()
STRING, VOID = pa.string(), pa.null()


class UnsupportedError(Exception):
    """The expression is outside the subset."""


@dataclass(frozen=True, eq=False)
class Node:
    """A typed part of an expression: `run` evaluates it, `value` is its vector if it is constant."""

    type: pa.DataType
    run: Callable[[Batch], Vector]
    value: Vector | None = None
    decimal: Decimal | None = None  # a literal such as 1.5, whose type its neighbour decides
    rounded: bool = False  # a whole number cast to FLOAT; Spark skips that when it is cast on to DOUBLE
    chain: tuple[type[exp.Expr], int, bool] | None = None  # whole numbers: operator, operands, whether one is constant

    @property
    def is_null(self) -> bool:
        """Whether it is the constant null."""
        return self.value is not None and self.value.valid is not None

    def is_constant(self, truth: bool) -> bool:
        return self.value is not None and self.value.valid is None and bool(self.value.data) is truth


def constant(kind: pa.DataType, data: Any, *, null: bool = False) -> Node:
    vector = Vector(data, np.False_ if null else None)
    return Node(kind, lambda _: vector, vector)


def null_of(kind: pa.DataType) -> Node:
    if kind == STRING:
        return constant(kind, pa.scalar(None, STRING), null=True)
    dtype = dtype_of(kind)
    if dtype is None and kind != VOID:
        raise UnsupportedError
    return constant(kind, np.zeros((), dtype or np.bool_)[()], null=True)


INTS = (pa.int8(), pa.int16(), INT, BIGINT)


def mapped(kind: pa.DataType, function: Callable[..., Vector], *nodes: Node) -> Node:
    """A node that applies a function to the values of others; folded if all are constant."""
    if all(n.value is not None for n in nodes):
        if any(n.type == STRING for n in nodes):
            raise UnsupportedError
        vector = function(*(n.value for n in nodes))
        if vector.codes is not None and vector.codes.any():
            raise UnsupportedError  # Spark may fail while it plans
        null = vector.valid is not None and not vector.valid
        return null_of(kind) if null else constant(kind, np.asarray(vector.data)[()])
    runs = [n.run for n in nodes]
    if len(runs) == 1:
        only = runs[0]
        return Node(kind, lambda batch: function(only(batch)))
    if len(runs) == 2:
        first, second = runs
        return Node(kind, lambda batch: function(first(batch), second(batch)))
    return Node(kind, lambda batch: function(*(run(batch) for run in runs)))


def common_type(nodes: Sequence[Node]) -> pa.DataType:
    """The type Spark's ANSI rules bring the operands to."""
    kinds = {n.type for n in nodes if n.type != VOID and n.decimal is None}
    decimals = any(n.decimal is not None for n in nodes)
    if not decimals and len(kinds) <= 1:
        return next(iter(kinds), VOID)
    if not kinds or not all(is_int(k) or is_float(k) for k in kinds) or (decimals and not any(map(is_float, kinds))):
        raise UnsupportedError
    if any(map(is_float, kinds)):
        return DOUBLE  # a FLOAT beside any other number widens to DOUBLE
    return max(kinds, key=INTS.index)


def to_type(node: Node, kind: pa.DataType, *, compare: bool = False) -> Node:
    """The node coerced; `compare`: whole numbers of any width will do, they are compared as they are."""
    if node.decimal is not None:
        if not is_float(kind):
            raise UnsupportedError
        positive_zero = 0.0  # a DECIMAL has no negative zero
        exact = np.float64(float(node.decimal) + positive_zero)
        return constant(kind, exact if kind == DOUBLE else _nearest_float(node.decimal) + np.float32(positive_zero))
    if node.type == kind:
        return node
    if node.is_null:
        return null_of(kind)
    source = node.type
    if not (is_int(source) or is_float(source)) or not (is_int(kind) or is_float(kind)):
        raise UnsupportedError
    if compare and is_int(source) and is_int(kind):
        return node
    return converted(node, kind)


def converted(node: Node, kind: pa.DataType) -> Node:
    """The node cast among BOOLEAN and the numeric types."""
    source = node.type
    if node.rounded and kind == DOUBLE:
        raise UnsupportedError
    made = mapped(kind, lambda a: arithmetic.cast(a, source, kind), node)
    return replace(made, rounded=kind == FLOAT and source in (INT, BIGINT))


_DIGITS = re.compile(r"-?\d+")
_EXPONENT = re.compile(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_POINT = re.compile(r"-?(\d+\.\d*|\.\d+)")


def number(text: str) -> Node:
    """A number as Spark's grammar reads it: INT, BIGINT, DOUBLE with an exponent, else DECIMAL."""
    if _DIGITS.fullmatch(text):
        value = int(text)
        for kind in (INT, BIGINT):
            info = np.iinfo(DTYPES[kind])
            if info.min <= value <= info.max:
                return constant(kind, DTYPES[kind].type(value))
    elif _EXPONENT.fullmatch(text):
        if np.isfinite(float(text)):
            return constant(DOUBLE, np.float64(text))
    elif _POINT.fullmatch(text) and sum(c.isdigit() for c in text) <= 38:
        vector = Vector(None)
        return Node(pa.decimal128(38, 18), lambda _: vector, vector, Decimal(text))
    raise UnsupportedError


def _nearest_float(value: Decimal) -> np.float32:
    """The FLOAT closest to a decimal, rounded once."""
    guess = np.float32(float(value))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [n for n in near if np.isfinite(n)]
    distances = [abs(Fraction(float(n)) - Fraction(value)) for n in finite]
    if distances.count(min(distances)) > 1 or not np.isfinite(guess):
        raise UnsupportedError
    return np.float32(finite[distances.index(min(distances))])


def moment(text: str, kind: pa.DataType) -> Node:
    """A DATE or TIMESTAMP literal in its full form."""
    if kind == pa.date32():
        value = date_literal(text)
    elif kind in (TIMESTAMP, TIMESTAMP_NTZ):
        value = timestamp_literal(text)
    else:
        raise UnsupportedError
    if value is None:
        raise UnsupportedError
    return constant(kind, DTYPES.get(kind, np.dtype(np.int64)).type(value))
