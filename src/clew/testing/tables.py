"""Text tables as batches, for tests and examples that a reader can check by eye."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from clew.errors import SchemaError
from clew.model.schema import parse_schema
from clew.model.types import type_name

WORDS = {"null": None, "true": True, "false": False}


def table(text: str) -> pa.Table:
    """One batch: a header of `name TYPE` cells, then a row a line, cells between `|`.

    `null` is null, `NaN`, `inf` and `-inf` are what they say in a floating column, `''` is the empty string.
    Empty lines and lines of dashes are passed over.

    >>> table('''
    ...     ts LONG | sensor STRING | celsius DOUBLE
    ...     1       | a             | 90.5
    ...     2       | null          | NaN
    ... ''').to_pylist()
    [{'ts': 1, 'sensor': 'a', 'celsius': 90.5}, {'ts': 2, 'sensor': None, 'celsius': nan}]
    """
    (only,) = batches(text)
    return only


def batches(text: str) -> list[pa.Table]:
    """Several batches under one header, a line of `===` between them; a batch may be empty.

    >>> [len(b) for b in batches("ts LONG\\n1\\n2\\n===\\n===\\n3")]
    [2, 0, 1]
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and line.strip("-+| ")]
    if not lines:
        raise SchemaError("a text table needs a header", hint="name TYPE | name TYPE | ...")
    schema = parse_schema(", ".join(_cells(lines[0])))
    found: list[list[list[Any]]] = [[]]
    for line in lines[1:]:
        if not line.strip("="):
            found.append([])
            continue
        cells = _cells(line)
        if len(cells) != len(schema):
            raise SchemaError(f"'{line}' has {len(cells)} cells, the header has {len(schema)}")
        found[-1].append([_value(cell, field.type) for cell, field in zip(cells, schema, strict=True)])
    return [_table(rows, schema) for rows in found]


def text(table: pa.Table) -> str:
    """A table as text, in columns; the inverse of `table` for flat types.

    >>> print(text(table("ts LONG | g STRING\\n1 | ''")))
    ts BIGINT | g STRING
    1         | ''
    """
    head = [f"{f.name} {type_name(f.type).upper()}" for f in table.schema]
    rows = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [" | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
    return "\n".join(lines)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _table(rows: list[list[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _value(cell: str, kind: pa.DataType) -> Any:
    if cell.lower() in WORDS and not (pa.types.is_string(kind) and cell != "null"):
        return WORDS[cell.lower()]
    if pa.types.is_string(kind):
        return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == "'" else cell
    if pa.types.is_floating(kind):
        return float(cell)
    if pa.types.is_decimal(kind):
        return Decimal(cell)
    if pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(cell)
        return moment.replace(tzinfo=dt.UTC) if kind.tz and moment.tzinfo is None else moment
    return dt.date.fromisoformat(cell) if pa.types.is_date32(kind) else int(cell)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"'{value}'" if not value or value != value.strip() or value.lower() in WORDS else value
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)
