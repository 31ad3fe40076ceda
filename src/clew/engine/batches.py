"""Batches of any form as Arrow tables of a stream's schema; rows that do not fit come back with a reason."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clew.engine.zones import tz
from clew.errors import BatchError, nearest
from clew.model.types import type_name
from clew.model.values import broken_text, python_rows, python_value

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


NOT_TEXT = "column '{}' is not UTF-8"


@dataclass(frozen=True)
class Reject:
    """A row that could not be taken, whole as JSON, and why."""

    row: str
    reason: str
    stamp: int | None = None


@dataclass(frozen=True)
class Malformed:
    """A record that is no row: its text, and why."""

    text: str
    reason: str


def as_table(batch: Any, schema: pa.Schema, stream: str, zone: str = "UTC") -> tuple[pa.Table, list[Reject]]:
    """A batch in hand (dicts, an Arrow table or batch, a pandas frame) as a table of the schema.

    A time without a zone, where the schema has one, is taken in `zone`.
    """
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if isinstance(batch, pa.RecordBatchReader):
        batch = batch.read_all()
    if isinstance(batch, pd.DataFrame):
        return _from_pandas(batch, schema, stream, zone)
    if isinstance(batch, pa.Table):
        return _from_table(batch, schema, stream, zone)
    if isinstance(batch, Mapping | str | bytes | pd.Series | np.ndarray) or not hasattr(batch, "__iter__"):
        raise BatchError(
            f"cannot feed stream '{stream}' with {type(batch).__name__}",
            hint="give a list of dicts, an Arrow table, a pandas frame, or a Spark DataFrame",
        )
    return _from_rows(list(batch), schema, zone)


def one_value(value: Any, field: pa.Field, what: str, zone: str) -> Any:
    """A value as a column would hold it; `BatchError` if that column could not hold it as it stands."""
    try:
        return _column([value], field, zone)[0].as_py()
    except _ARROW_ERRORS as error:
        raise BatchError(f"{what}: {_misfit(field, value)}") from error


def _from_rows(rows: Sequence[Any], schema: pa.Schema, zone: str) -> tuple[pa.Table, list[Reject]]:
    names = set(schema.names)
    good: list[Mapping[str, Any]] = []
    rejects: list[Reject] = []
    for row in rows:
        if isinstance(row, Malformed):
            rejects.append(Reject(row.text, row.reason))
            continue
        row = row.asDict() if hasattr(row, "asDict") else row
        if not isinstance(row, Mapping):
            rejects.append(Reject(row_json({"value": row}), f"not a row but {type(row).__name__}"))
            continue
        named = row if row.keys() <= names else {declared(str(k), schema): v for k, v in row.items()}
        if odd := sorted(named.keys() - names):
            hint = nearest(odd[0], schema.names)
            rejects.append(Reject(row_json(row), f"unknown column '{odd[0]}'" + (f"; {hint}" if hint else "")))
        elif twice := _twice([declared(str(k), schema) for k in row] if named is not row else ()):
            rejects.append(Reject(row_json(row), f"column '{twice}' is given twice"))
        else:
            good.append(named)
    try:
        columns = [_column([r.get(f.name) for r in good], f, zone) for f in schema]
    except _ARROW_ERRORS:
        good, bad = _fitting(good, schema, zone)
        rejects += bad
        columns = [_column([r.get(f.name) for r in good], f, zone) for f in schema]
    return pa.table(columns, schema=schema), rejects


def _fitting(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, zone: str
) -> tuple[list[Mapping[str, Any]], list[Reject]]:
    good, rejects = [], []
    for row in rows:
        for field in schema:
            value = row.get(field.name)
            try:
                _column([value], field, zone)
            except _ARROW_ERRORS:
                rejects.append(Reject(row_json(row), _misfit(field, value)))
                break
        else:
            good.append(row)
    return good, rejects


def _column(values: list[Any], field: pa.Field, zone: str) -> pa.Array:
    return pa.array(_ready(values, field.type, zone), field.type)


def _ready(values: list[Any], kind: pa.DataType, zone: str) -> list[Any]:
    """The values as Arrow takes them for this type without changing any; an error if that cannot be."""
    if pa.types.is_list(kind):
        return [None if v is None else _ready(_items(v), kind.value_type, zone) for v in values]
    if pa.types.is_timestamp(kind):
        values = [_moment(v, zone if kind.tz is not None else None) for v in values]
    elif pa.types.is_date(kind):
        values = [dt.date.fromisoformat(v) if isinstance(v, str) else v for v in values]
        if any(isinstance(v, dt.datetime | int | float | np.number) for v in values):
            raise TypeError("a timestamp or a number is no date")
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if any(isinstance(v, bool | str) for v in values):
            raise TypeError("not a number")
        values = [float(v) if isinstance(v, int | Decimal) and pa.types.is_floating(kind) else v for v in values]
        if pa.types.is_decimal(kind):
            values = [Decimal(str(v)) if isinstance(v, float | int) else v for v in values]
    elif pa.types.is_integer(kind) and any(
        isinstance(v, bool | float | Decimal | str | np.bool_ | np.floating) for v in values
    ):
        raise TypeError("not a whole number")
    return values


def _items(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping | Set):  # a set has no order
        raise TypeError("not a list")
    return list(value)


def _moment(value: Any, zone: str | None) -> Any:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        if zone is not None:
            value = value.replace(tzinfo=tz(zone)) if value.tzinfo is None else value
            return value.astimezone(dt.UTC)
        if value.tzinfo is not None:
            raise TypeError("a time with zone does not fit TIMESTAMP_NTZ")
    elif isinstance(value, int | float) and not isinstance(value, np.datetime64):
        raise TypeError("a bare number is no timestamp")
    return value


def _from_pandas(frame: pd.DataFrame, schema: pa.Schema, stream: str, zone: str) -> tuple[pa.Table, list[Reject]]:
    names = [declared(str(name), schema) for name in frame.columns]
    check_columns(names, schema, stream)
    named = frame.iloc[:, [names.index(name) for name in schema.names]].set_axis(schema.names, axis=1)
    try:
        return _from_table(pa.Table.from_pandas(named, preserve_index=False), schema, stream, zone)
    except pa.ArrowException:  # a column of several types: each row is looked at
        cells = named.astype(object)
        return _from_rows(cells.where(cells.notna(), None).to_dict("records"), schema, zone)


def _from_table(table: pa.Table, schema: pa.Schema, stream: str, zone: str) -> tuple[pa.Table, list[Reject]]:
    table = table.rename_columns([declared(n, schema) for n in table.column_names])
    check_columns(table.column_names, schema, stream)
    columns, reasons = [], dict[int, str]()
    for field in schema:
        column = table.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.type != field.type:
            _check_kinds(column.type, field, stream)
            column = in_zone(column, field, zone)
        try:
            columns.append(_cast(column, field.type))
        except pa.ArrowException:
            columns.append(_cell_by_cell(column, field, reasons, zone))
    fitted = pa.table(columns, schema=schema)
    reasons = {i: NOT_TEXT.format(name) for i, name in broken_text(fitted).items()} | reasons
    if not reasons:
        return fitted, []
    keep = np.ones(len(table), np.bool_)
    keep[list(reasons)] = False
    bad = sorted(reasons)
    rows = python_rows(table.select(schema.names).take(pa.array(bad)))
    rejects = [Reject(row_json(row), reasons[i]) for i, row in zip(bad, rows, strict=True)]
    return fitted.filter(pa.array(keep)), rejects


def check_columns(found: Sequence[str], schema: pa.Schema, stream: str) -> None:
    """`BatchError` unless each column of the schema is there, once."""
    if twice := _twice([n for n in found if n in schema.names]):
        raise BatchError(f"batch for stream '{stream}' has column '{twice}' twice", hint="names are found in any case")
    missing = [n for n in schema.names if n not in found]
    if missing:
        raise BatchError(
            f"batch for stream '{stream}' lacks column '{missing[0]}'",
            details=[f"it has: {', '.join(found)}", f"the stream has: {', '.join(schema.names)}"],
            hint=nearest(missing[0], found),
        )


def in_zone(column: pa.ChunkedArray, field: pa.Field, zone: str) -> pa.ChunkedArray:
    """Times without a zone as times of `zone`, if the field has one, and the other way round.

    Of two readings it is the earlier, as Spark takes it.
    """
    if not pa.types.is_timestamp(column.type) or not pa.types.is_timestamp(field.type):
        return column
    if (column.type.tz is None) == (field.type.tz is None):
        return column
    if field.type.tz is None:
        return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    made = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    other = pc.not_equal(pc.local_timestamp(made), column)  # times that a clock has skipped
    skipped = pc.fill_null(other, False).combine_chunks()
    if not pc.any(skipped).as_py():
        return made
    moments = [_moment(v, zone) for v in column.filter(skipped).cast(pa.timestamp("us")).to_pylist()]
    whole = made.cast(field.type).combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(whole, skipped, pa.array(moments, field.type))])


def _cell_by_cell(column: pa.ChunkedArray, field: pa.Field, reasons: dict[int, str], zone: str) -> pa.ChunkedArray:
    """A column whose values do not all fit; the reason of each that does not goes to `reasons`."""
    cells = []
    for i in range(len(column)):
        cell = column.slice(i, 1)
        try:
            cells += _cast(cell, field.type).chunks
            continue
        except pa.ArrowException:
            value = python_value(cell[0])
        try:
            cells.append(_column([value], field, zone))
        except _ARROW_ERRORS:
            reasons.setdefault(i, _misfit(field, value))
            cells.append(pa.nulls(1, field.type))
    return pa.chunked_array(cells, field.type)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """As Arrow casts, which refuses what it would have to change, but for what stands in lists."""
    if not pa.types.is_list(kind) or pa.types.is_null(column.type) or column.type.value_type == kind.value_type:
        return column.cast(kind)
    if pa.types.is_temporal(kind.value_type):  # it may be of another zone: each is looked at
        raise pa.ArrowInvalid("a list of another type")
    lists = column.combine_chunks()
    ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)), dtype=np.int32)
    offsets = pa.array(np.append(np.int32(0), ends))
    return pa.chunked_array(
        [pa.ListArray.from_arrays(offsets, lists.flatten().cast(kind.value_type), mask=lists.is_null()).cast(kind)]
    )


def _check_kinds(kind: pa.DataType, field: pa.Field, stream: str) -> None:
    """Whole batches of another kind are an error of the caller, not of single rows."""
    families = (_is_text, pa.types.is_boolean, _is_bytes, pa.types.is_temporal, pa.types.is_date, _is_list)
    if not pa.types.is_null(kind) and any(f(kind) != f(field.type) for f in families):
        raise BatchError(
            f"batch for stream '{stream}' has column '{field.name}' as {kind}, not {type_name(field.type).upper()}",
            hint="cast it before feeding",
        )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    forms = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(f(kind) for f in forms)


def _misfit(field: pa.Field, value: Any) -> str:
    return f"column '{field.name}' is {type_name(field.type).upper()}, got {type(value).__name__} {value!r}"[:500]


def _twice(names: Sequence[str]) -> str | None:
    return next((n for i, n in enumerate(names) if n in names[:i]), None)


def declared(name: str, schema: pa.Schema) -> str:
    return next((n for n in schema.names if n.lower() == name.lower()), name)


def row_json(row: Mapping[str, Any]) -> str:
    """A row as JSON text that keeps what JSON has no word for as text; there is one for any row."""
    try:
        text = json.dumps(dict(row), default=_plain, ensure_ascii=False, skipkeys=True)
    except (ValueError, RecursionError):  # a row that holds itself
        text = json.dumps({str(name): repr(value) for name, value in row.items()}, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
