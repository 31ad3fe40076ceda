"""Column types: Spark SQL's names on the outside, Arrow's types on the inside."""

from __future__ import annotations

import re

import pyarrow as pa

from clew.errors import SchemaError, nearest

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

_BY_NAME: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_ARRAY = re.compile(r"array\s*<(.*)>", re.DOTALL)


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type name.

    >>> parse_type("LONG"), parse_type("decimal(10, 2)"), parse_type("array<int>")
    (DataType(int64), Decimal128Type(decimal128(10, 2)), ListType(list<element: int32>))
    """
    name = text.strip().lower()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise SchemaError(
                f"type '{text.strip()}' is not a decimal that Spark has",
                hint="precision is 1 to 38, scale at most the precision",
            )
        return pa.decimal128(precision, scale)
    if array := _ARRAY.fullmatch(name):
        return pa.list_(pa.field("element", parse_type(array[1])))
    raise SchemaError(
        f"unknown type '{text.strip()}'",
        details=["types: " + ", ".join(sorted(_BY_NAME)) + ", decimal(p, s), array<type>"],
        hint=nearest(name, _BY_NAME),
    )


def type_name(data_type: pa.DataType) -> str:
    """Spark SQL's name of an Arrow type; the inverse of `parse_type`."""
    if data_type in _NAMES:
        return _NAMES[data_type]
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"array<{type_name(data_type.value_type)}>"
    if pa.types.is_large_string(data_type):
        return "string"
    if pa.types.is_large_binary(data_type):
        return "binary"
    raise SchemaError(f"Arrow type {data_type} has no counterpart in clew")
