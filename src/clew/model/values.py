"""Arrow's values as Python's, also those that Python has no object for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts.

    >>> python_rows(pa.table({"d": pa.array([0, 10**7], pa.int32()).cast(pa.date32())}))
    [{'d': datetime.date(1970, 1, 1)}, {'d': '29349-01-26'}]
    """
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        columns = [[python_value(cell) for cell in column] for column in table.columns]
        return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_value(cell: pa.Scalar) -> Any:
    """A value; as text, if it is a time outside the years 1 to 9999 or a string that is not UTF-8."""
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        if isinstance(cell, pa.ListScalar):
            return [python_value(item) for item in cell.values]
        if pa.types.is_date32(cell.type):
            return str(np.datetime64(cell.value, "D"))
        if pa.types.is_timestamp(cell.type):
            return str(np.datetime64(cell.value, cell.type.unit)) + ("Z" if cell.type.tz else "")
        return cell.as_buffer().to_pybytes().decode(errors="backslashreplace")


def holds_text(data_type: pa.DataType) -> bool:
    """Whether there are strings in values of this type."""
    if pa.types.is_list(data_type):
        return holds_text(data_type.value_type)
    return bool(pa.types.is_string(data_type))


def broken_text(table: pa.Table) -> dict[int, str]:
    """The rows in which a string is not UTF-8, and the column that it is in.

    Arrow and Parquet carry such strings without a look at them; Python, Spark's functions and JSON fail on them.
    """
    broken: dict[int, str] = {}
    for name in (field.name for field in table.schema if holds_text(field.type)):
        try:
            table.column(name).validate(full=True)
        except pa.ArrowInvalid:
            for i, cell in enumerate(table.column(name)):
                if not _decodes(cell):
                    broken.setdefault(i, name)
    return broken


def _decodes(cell: pa.Scalar) -> bool:
    try:
        cell.as_py()
    except UnicodeDecodeError:
        return False
    return True
