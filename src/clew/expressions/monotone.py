"""Whether an expression carries the order of a column: then it carries its progress, too."""

from __future__ import annotations

from sqlglot import exp

from clew.errors import SyntaxProblem
from clew.expressions.parse import parse_expression

_NUMERIC = frozenset(["TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"])


def is_monotone_in(sql: str, column: str) -> bool:
    """Whether an expression never decreases as the numeric or time column grows, and reads nothing else.

    True for the column itself, plus or minus a number, times, `/` or `div` a positive number, cast to a
    number, and these inside each other.

    >>> is_monotone_in("cast(ts as bigint) div 60 + 1", "ts"), is_monotone_in("-ts", "ts")
    (True, False)
    """
    try:
        return _grows(parse_expression(sql), column.lower())
    except SyntaxProblem:
        return False


def _grows(tree: exp.Expr, column: str) -> bool:
    match tree:
        case exp.Paren():
            return _grows(tree.this, column)
        case exp.Column():
            return not tree.table and tree.name.lower() == column
        case exp.Cast():
            wide = tree.to.this.name in _NUMERIC and not tree.args.get("safe")
            return wide and _grows(tree.this, column)
        case exp.Add():
            left, right = tree.this, tree.expression
            return (_grows(left, column) and _number(right) is not None) or (
                _number(left) is not None and _grows(right, column)
            )
        case exp.Sub():
            return _grows(tree.this, column) and _number(tree.expression) is not None
        case exp.Mul():
            left, right = tree.this, tree.expression
            return (_grows(left, column) and _is_positive(right)) or (_is_positive(left) and _grows(right, column))
        case exp.Div() | exp.IntDiv():
            return _grows(tree.this, column) and _is_positive(tree.expression)
    return False


def _number(tree: exp.Expr) -> float | None:
    """The value of a numeric literal, None for anything else."""
    if isinstance(tree, exp.Neg):
        value = _number(tree.this)
        return None if value is None else -value
    if isinstance(tree, exp.Paren):
        return _number(tree.this)
    if isinstance(tree, exp.Cast) and tree.to.this.name in _NUMERIC:  # 1L, 1.5D
        return _number(tree.this)
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return float(tree.name)
    return None


def _is_positive(tree: exp.Expr) -> bool:
    value = _number(tree)
    return value is not None and value > 0
