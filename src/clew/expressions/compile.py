"""Spark SQL expressions over Arrow tables: a subset, with Spark's types and bits, or nothing.

What is meant is the value of the expression tree as Spark evaluates it row by row (ANSI on, case
sensitivity off): an operand is evaluated only where Spark evaluates it. Spark's plans may
hoist a common part out of a branch or move the conditions of a filter; then Spark itself can fail on a
row for which the tree has a value, or the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from clew.errors import SyntaxProblem
from clew.expressions.builder import Builder
from clew.expressions.monotone import is_monotone_in
from clew.expressions.nodes import Node, UnsupportedError
from clew.expressions.parse import parse_expression, tokens_of
from clew.expressions.vectors import REASONS, Batch, Codes, Vector, both, spread, to_arrow
from clew.model.rows import Bools

__all__ = ["Compiled", "Evaluated", "compile_expression", "is_monotone_in"]


@dataclass(eq=False)
class Evaluated:
    """The values of an expression, and the rows on which it failed (null in `values`)."""

    vector: Vector
    type: pa.DataType
    rows: int

    @cached_property
    def values(self) -> pa.Array:
        return to_arrow(self.vector, self.type, self.rows)

    @cached_property
    def codes(self) -> Codes | None:
        """For each row the index of its reason in `REASONS`, 0 where it did not fail; None: none failed."""
        codes = self.vector.codes
        return None if codes is None or not codes.any() else np.asarray(spread(codes, self.rows), np.uint8)

    @property
    def failed(self) -> Bools | None:
        """The rows on which ANSI Spark would raise; None if there are none."""
        return None if self.codes is None else self.codes != 0

    def reason(self, row: int) -> str:
        """Why a row failed, as Spark names the condition; "" if it did not."""
        return "" if self.codes is None else REASONS[self.codes[row]]


@dataclass(frozen=True)
class Compiled:
    """An expression that can be evaluated without Spark; `type` is the one Spark gives it."""

    sql: str
    type: pa.DataType
    node: Node

    def evaluate(self, table: pa.Table) -> Evaluated:
        """Evaluate over a table with the columns of the schema it was compiled for."""
        with np.errstate(all="ignore"):
            return Evaluated(self.node.run(Batch(table)), self.type, len(table))

    def keep(self, table: pa.Table) -> tuple[Bools, Evaluated]:
        """As a condition: the rows for which it is true, not false, null or failed."""
        result = self.evaluate(table)
        keep = both(result.vector.data, result.vector.valid)
        if result.codes is not None:
            keep = keep & (result.codes == 0)
        return spread(keep, len(table)), result


def compile_expression(sql: str, schema: pa.Schema, *, zone: str = "UTC") -> Compiled | None:
    """Compile an expression over the columns of a schema; None: not in the subset, leave it to Spark.

    Fields may have qualified names ("left.price"), as in a join's residual condition. `zone` is the
    session's; under another than UTC a TIMESTAMP literal is left to Spark.

    >>> half = compile_expression("10 / x", pa.schema([("x", pa.int32())]))
    >>> result = half.evaluate(pa.table({"x": pa.array([4, 0, None], pa.int32())}))
    >>> half.type, result.values.to_pylist(), result.failed.tolist(), result.reason(1)
    (DataType(double), [2.5, None, None], [False, True, False], 'DIVIDE_BY_ZERO')
    """
    try:
        tree = parse_expression(sql)
        if not _is_plain(sql):
            return None
        with np.errstate(all="ignore"):
            node = Builder(schema, zone).build(tree)
    except (UnsupportedError, SyntaxProblem):
        return None
    if node.decimal is not None or pa.types.is_null(node.type):
        return None
    return Compiled(sql, node.type, node)


_BEFORE_OPERAND = frozenset(
    ["L_PAREN", "COMMA", "PLUS", "DASH", "STAR", "SLASH", "MOD", "DIV", "EQ", "NEQ", "LT", "LTE", "GT", "GTE",
     "NULLSAFE_EQ", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "LIKE", "IN"]
)  # fmt: skip


def _is_plain(sql: str) -> bool:
    """Whether the text is free of what sqlglot and Spark may read in two ways: escapes, variables, unary plus."""
    if "\\" in sql or "${" in sql:
        return False
    tokens = tokens_of(sql)
    for i, token in enumerate(tokens):
        kind = token.token_type.name
        if kind == "STRING" and sql[token.start + 1 : token.end] != token.text:
            return False
        if kind == "PLUS" and (i == 0 or tokens[i - 1].token_type.name in _BEFORE_OPERAND):
            return False
    return True
