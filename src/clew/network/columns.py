"""Columns and expressions as SQL text: text as it is, pyspark's Columns written out from their trees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from clew.errors import NetworkError
from clew.expressions.functions import WITHOUT_PARENTHESES
from clew.expressions.parse import tokens_of
from clew.network.naming import shown

_HINT = "write the expression as text; a UDF is called by the name it is registered under"
_INFIX = {"+", "-", "*", "/", "%", "=", "<=>", "<", "<=", ">", ">=", "and", "or", "&", "|", "^"}
_PREFIX = {"!": "NOT ", "~": "~", "negative": "-", "positive": "+"}
_SUFFIX = {"isNull": "IS NULL", "isNotNull": "IS NOT NULL"}


def column_text(value: Any) -> str:
    """The SQL text of a column or expression given as text or as a pyspark Column."""
    if isinstance(value, str):
        return value
    inner = getattr(value, "_jc", None)
    if inner is None:
        raise NetworkError(
            f"{shown(value)} is no column or expression", hint="give Spark SQL as text, or a pyspark Column"
        )
    return _text(inner.node())


def is_column(value: object) -> bool:
    """Whether this is a pyspark Column, without importing Spark."""
    return hasattr(value, "_jc")


def each_of(names: Any) -> Iterable[Any]:
    """What is given as none, one or several; of what is neither, `column_text` says so."""
    if names is None:
        return ()
    return (names,) if isinstance(names, str) or is_column(names) or not isinstance(names, Iterable) else names


def _text(node: Any) -> str:
    """One node of a Column's tree. Its own `sql()` is no SQL: it writes `+(x, 1)`, and leaves out DISTINCT."""
    match str(node.getClass().getSimpleName()).rstrip("$"):
        case "UnresolvedAttribute":
            return ".".join(quoted(part) for part in _each(node.nameParts()))
        case "Literal":
            return _literal(node)
        case "UnresolvedFunction":
            return _call(str(node.functionName()), [_text(a) for a in _each(node.arguments())], node.isDistinct())
        case "Alias" if node.name().size() == 1:
            return f"{_text(node.child())} AS `{node.name().apply(0)}`"
        case "Cast":
            word = "TRY_CAST" if "TRY" in str(node.evalMode()) else "CAST"
            return f"{word}({_text(node.child())} AS {node.dataType().sql()})"
        case "CaseWhenOtherwise":
            branches = "".join(f" WHEN {_text(b._1())} THEN {_text(b._2())}" for b in _each(node.branches()))
            other = f" ELSE {_text(node.otherwise().get())}" if node.otherwise().isDefined() else ""
            return f"CASE{branches}{other} END"
        case "SqlExpression":
            return f"({node.expression()})"
        case "UnresolvedStar" if not node.unparsedTarget().isDefined():
            return "*"
        case "ExpressionColumnNode" if str(node.expression().getClass().getSimpleName()) == "PythonUDF":
            raise NetworkError(
                f"a pyspark Column calls the Python UDF '{node.expression().name()}', which has no name in SQL",
                hint="register it, spark.udf.register('f', ...), and call it in text: 'f(x)'",
            )
        case kind:
            raise NetworkError(
                f"a pyspark Column with {kind} in it cannot stand in a network",
                hint=_HINT,
            )


def _call(name: str, arguments: list[str], distinct: bool) -> str:
    if name in _INFIX and len(arguments) == 2:
        return f"({arguments[0]} {name.upper()} {arguments[1]})"
    if name in _PREFIX and len(arguments) == 1:
        return f"({_PREFIX[name]}{arguments[0]})"
    if name in _SUFFIX:
        return f"({arguments[0]} {_SUFFIX[name]})"
    if name == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    return f"{name}({'DISTINCT ' if distinct else ''}{', '.join(arguments)})"


def _literal(node: Any) -> str:
    """A value with its type: Spark reads 2.5 as a decimal where a Column's float is a double."""
    value = node.value()
    match value:
        case float():
            return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case None | bool() | int():
            return str(node.sql())
        case Decimal():
            return f"{value:f}BD"
    match str(value.getClass().getSimpleName()):
        case "Date" | "LocalDate":
            return f"DATE '{value}'"
        case "Timestamp":
            return f"TIMESTAMP '{value.toInstant()}'"
        case "Instant":
            return f"TIMESTAMP '{value}'"
        case "LocalDateTime":
            return f"TIMESTAMP_NTZ '{value}'"
        case kind:
            raise NetworkError(f"a pyspark Column with a literal {kind} cannot stand in a network", hint=_HINT)


def quoted(part: str) -> str:
    """A column's name as it stands in an expression: in backticks, if it is no plain word or a word of SQL's own."""
    return part if _is_plain(part) else "`" + part.replace("`", "``") + "`"


def _is_plain(part: str) -> bool:
    if not (part.isidentifier() and part.isascii()) or part.lower() in WITHOUT_PARENTHESES | {"current_path"}:
        return False
    return [token.token_type.name for token in tokens_of(part)] == ["VAR"]


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of one of Scala's sequences."""
    return (sequence.apply(i) for i in range(sequence.size()))
