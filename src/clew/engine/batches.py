"""Batches of any form as Arrow tables of a stream's schema; rows that do not fit come back with a reason."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from clew.errors import BatchError, nearest
from clew.model.types import type_name

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


@dataclass(frozen=True)
class Reject:
    """A row that could not be taken, whole as JSON, and why."""

    row: str
    reason: str
    stamp: int | None = None


def as_table(batch: Any, schema: pa.Schema, stream: str) -> tuple[pa.Table, list[Reject]]:
    """A batch in hand (dicts, an Arrow table or batch, a pandas frame) as a table of the schema."""
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if isinstance(batch, pd.DataFrame):
        batch = pa.Table.from_pandas(batch, preserve_index=False)
    if isinstance(batch, pa.Table):
        return _from_table(batch, schema, stream)
    if isinstance(batch, Mapping | str | bytes) or not hasattr(batch, "__iter__"):
        raise BatchError(
            f"cannot feed stream '{stream}' with {type(batch).__name__}",
            hint="give a list of dicts, an Arrow table, a pandas frame, or a Spark DataFrame",
        )
    return _from_rows(list(batch), schema)


def _from_rows(rows: Sequence[Any], schema: pa.Schema) -> tuple[pa.Table, list[Reject]]:
    names = set(schema.names)
    good: list[Mapping[str, Any]] = []
    rejects: list[Reject] = []
    for row in rows:
        row = row.asDict() if hasattr(row, "asDict") else row
        if not isinstance(row, Mapping):
            rejects.append(Reject(row_json({"value": row}), f"not a row but {type(row).__name__}"))
        elif not row.keys() <= names:
            odd = sorted(str(k) for k in row.keys() - names)
            hint = nearest(odd[0], schema.names)
            rejects.append(Reject(row_json(row), f"unknown column '{odd[0]}'" + (f"; {hint}" if hint else "")))
        else:
            good.append(row)
    try:
        columns = [_column([r.get(f.name) for r in good], f) for f in schema]
    except _ARROW_ERRORS:
        good, bad = _fitting(good, schema)
        rejects += bad
        columns = [_column([r.get(f.name) for r in good], f) for f in schema]
    return pa.table(columns, schema=schema), rejects


def _fitting(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[list[Mapping[str, Any]], list[Reject]]:
    good, rejects = [], []
    for row in rows:
        for field in schema:
            value = row.get(field.name)
            try:
                _column([value], field)
            except _ARROW_ERRORS:
                reason = (
                    f"column '{field.name}' is {type_name(field.type).upper()}, got {type(value).__name__} {value!r}"
                )
                rejects.append(Reject(row_json(row), reason[:500]))
                break
        else:
            good.append(row)
    return good, rejects


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_timestamp(kind):
        values = [_moment(v, kind.tz is not None) for v in values]
    elif pa.types.is_date(kind):
        values = [dt.date.fromisoformat(v) if isinstance(v, str) else v for v in values]
        if any(isinstance(v, dt.datetime) for v in values):
            raise TypeError("a timestamp is no date")
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if any(isinstance(v, bool | str) for v in values):
            raise TypeError("not a number")
        values = [float(v) if isinstance(v, int | Decimal) and pa.types.is_floating(kind) else v for v in values]
        if pa.types.is_decimal(kind):
            values = [Decimal(str(v)) if isinstance(v, float | int) else v for v in values]
    elif pa.types.is_integer(kind) and any(isinstance(v, bool | float | str) for v in values):
        raise TypeError("not a whole number")
    return pa.array(values, kind)


def _moment(value: Any, zoned: bool) -> Any:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        if zoned:
            return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        if value.tzinfo is not None:
            raise TypeError("a time with zone does not fit TIMESTAMP_NTZ")
    elif isinstance(value, int | float) and not isinstance(value, np.datetime64):
        raise TypeError("a bare number is no timestamp")
    return value


def _from_table(table: pa.Table, schema: pa.Schema, stream: str) -> tuple[pa.Table, list[Reject]]:
    table = table.rename_columns([_declared(n, schema) for n in table.column_names])
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise BatchError(
            f"batch for stream '{stream}' lacks column '{missing[0]}'",
            details=[f"it has: {', '.join(table.column_names)}", f"the stream has: {', '.join(schema.names)}"],
            hint=nearest(missing[0], table.column_names),
        )
    table = table.select(schema.names)
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            _check_kinds(column.type, field, stream)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException:
            return _row_by_row(table, schema)
    return pa.table(columns, schema=schema), []


def _check_kinds(kind: pa.DataType, field: pa.Field, stream: str) -> None:
    """Whole batches of another kind are an error of the caller, not of single rows."""
    families = (pa.types.is_string, pa.types.is_boolean, pa.types.is_binary, pa.types.is_temporal)
    if not pa.types.is_null(kind) and any(
        f(kind) != f(field.type) for f in families if not pa.types.is_large_string(kind)
    ):
        raise BatchError(
            f"batch for stream '{stream}' has column '{field.name}' as {kind}, not {type_name(field.type).upper()}",
            hint="cast it before feeding",
        )


def _row_by_row(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[Reject]]:
    rows = table.to_pylist()
    good, rejects = _fitting(rows, schema)
    return pa.table([_column([r.get(f.name) for r in good], f) for f in schema], schema=schema), rejects


def _declared(name: str, schema: pa.Schema) -> str:
    return next((n for n in schema.names if n.lower() == name.lower()), name)


def row_json(row: Mapping[str, Any]) -> str:
    """A row as JSON text that keeps what JSON has no word for as text."""
    return json.dumps(dict(row), default=_plain, ensure_ascii=False, skipkeys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
