"""Schemas: `"ts LONG, sensor INT"` as text, `pyarrow.Schema` in hand."""

from __future__ import annotations

import pyarrow as pa

from clew.errors import DuplicateName, SchemaError
from clew.model.types import parse_type, type_name


def parse_schema(text: str) -> pa.Schema:
    """Read a schema written as Spark writes it: `name TYPE [, name TYPE ...]`.

    >>> parse_schema("ts LONG, price DECIMAL(10, 2)").names
    ['ts', 'price']
    """
    fields: list[pa.Field] = []
    for part in _split_top(text):
        pieces = part.strip().replace(":", " ", 1).split(None, 1)
        if len(pieces) != 2:
            raise SchemaError(
                f"cannot read '{part.strip()}' in schema '{text}'", hint="write NAME TYPE, NAME TYPE, ..."
            )
        name, type_text = pieces
        name = name.strip("`")
        if name.startswith("_"):
            raise SchemaError(f"column '{name}' starts with an underscore", hint="such names are clew's own")
        if any(f.name.lower() == name.lower() for f in fields):
            raise DuplicateName(f"schema '{text}' has two columns named '{name}'")
        fields.append(pa.field(name, parse_type(type_text)))
    return pa.schema(fields)


def schema_text(schema: pa.Schema) -> str:
    """The text form of a schema; the inverse of `parse_schema`."""
    return ", ".join(f"{f.name} {type_name(f.type).upper()}" for f in schema)


def _split_top(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
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
