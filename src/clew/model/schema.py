"""Schemas: `"ts LONG, sensor INT"` as text, `pyarrow.Schema` in hand."""

from __future__ import annotations

import re

import pyarrow as pa

from clew.errors import DuplicateName, SchemaError
from clew.model.types import parse_type, type_name

_PLAIN = r"[^\s,:()<>`]+"
_QUOTED = r"`(?:[^`]|``)+`"
_FIELD = re.compile(rf"\s*({_QUOTED}|{_PLAIN})(?:\s*:|\s)\s*(\S.*)", re.DOTALL)


def parse_schema(text: str) -> pa.Schema:
    """Read a schema written as Spark writes it: `name TYPE [, name TYPE ...]`; any name can stand in backticks.

    >>> parse_schema("ts LONG, `list price` DECIMAL(10, 2)").names
    ['ts', 'list price']
    """
    if not isinstance(text, str):
        raise SchemaError(f"{text!r} is no schema", hint="write it as text, like 'ts LONG, sensor INT'")
    fields: list[pa.Field] = []
    for part in _split_top(text):
        field = _FIELD.fullmatch(part)
        if field is None:
            raise SchemaError(
                f"cannot read '{part.strip()}' in schema '{text}'", hint="write NAME TYPE, NAME TYPE, ..."
            )
        name, type_text = field.groups()
        if name.startswith("`"):
            name = name[1:-1]
        if "`" in name:
            raise SchemaError(f"column '{name.replace('``', '`')}' has a backtick in its name", hint="rename it")
        if name.startswith("_"):
            raise SchemaError(f"column '{name}' starts with an underscore", hint="such names are clew's own")
        if any(f.name.lower() == name.lower() for f in fields):
            raise DuplicateName(f"schema '{text}' has two columns named '{name}'")
        fields.append(pa.field(name, parse_type(type_text)))
    return pa.schema(fields)


def schema_text(schema: pa.Schema) -> str:
    """The text form of a schema; the inverse of `parse_schema`."""
    return ", ".join(f"{_written(f.name)} {type_name(f.type).upper()}" for f in schema)


def _written(name: str) -> str:
    return name if re.fullmatch(_PLAIN, name) else f"`{name}`"


def _split_top(text: str) -> list[str]:
    parts, depth, start, quoted = [], 0, 0, False
    for i, char in enumerate(text):
        quoted ^= char == "`"
        if quoted:
            continue
        if char in "(<":
            depth += 1
        elif char in ")>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    if not any(p.strip() for p in parts):
        raise SchemaError("a stream needs at least one column")
    return parts


def spark_schema(schema: pa.Schema) -> str:
    """A schema as Spark's DDL."""
    return ", ".join(f"`{f.name}` {type_name(f.type)}" for f in schema)
