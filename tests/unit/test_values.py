"""Values that Arrow holds and Python cannot: they are shown, and strings that are no text are found."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from clew.model.axis import column_at, from_axis, value_on_axis
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ
from clew.model.values import broken_text, python_rows

FAR = 4 * 10**17  # microseconds: in the year 14645


def strings(*values: bytes | None) -> pa.Array:
    """Strings as their bytes, which need not be UTF-8."""
    ends = np.cumsum([0, *(len(v or b"") for v in values)]).astype(np.int32)
    valid = pa.array([v is not None for v in values])
    bits = pa.py_buffer(np.packbits(np.asarray(valid), bitorder="little").tobytes())
    data = pa.py_buffer(b"".join(v or b"" for v in values))
    return pa.Array.from_buffers(pa.string(), len(values), [bits, pa.py_buffer(ends.tobytes()), data])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0, 10**7], pa.int32()).cast(pa.date32()), [dt.date(1970, 1, 1), "29349-01-26"]),
        (pa.array([0, FAR], pa.int64()).cast(TIMESTAMP_NTZ), [dt.datetime(1970, 1, 1), "14645-06-30T15:06:40.000000"]),
        (pa.array([FAR, None], pa.int64()).cast(TIMESTAMP), ["14645-06-30T15:06:40.000000Z", None]),
        (strings(b"a", b"b\xff", None), ["a", "b\\xff", None]),
        (pa.ListArray.from_arrays([0, 2, 2], strings(b"\xfe", b"x")), [["\\xfe", "x"], []]),
    ],
    ids=["date", "timestamp_ntz", "timestamp", "string", "list"],
)  # fmt: skip
def test_what_python_cannot_hold_is_text(column: pa.Array, expected: list[object]) -> None:
    rows = python_rows(pa.table({"n": range(len(column)), "c": column}))
    assert rows == [{"n": i, "c": value} for i, value in enumerate(expected)]


def test_strings_that_are_no_text_are_found_wherever_they_stand() -> None:
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], strings(b"x", b"\xff", b"y"))
    table = pa.table({"n": [1, 2, 3], "s": strings(b"\xc3", "ü".encode(), None), "l": lists})
    assert broken_text(table) == {0: "s", 1: "l"}
    assert broken_text(table.slice(2)) == {}
    assert broken_text(pa.table({"n": [1]})) == {}


@pytest.mark.parametrize("kind", [pa.date32(), TIMESTAMP, TIMESTAMP_NTZ, pa.int8(), pa.decimal128(9, 2), pa.float32()])
def test_a_point_of_an_axis_is_a_value_and_back(kind: pa.DataType) -> None:
    for point in (-7, 0, 100):
        value = from_axis(point, kind)
        assert value_on_axis(value, kind) == point
        assert column_at(np.array([point]), kind).to_pylist() == [value]


def test_a_point_beyond_pythons_years_is_told_as_text() -> None:
    assert from_axis(FAR, TIMESTAMP) == "14645-06-30T15:06:40.000000Z"
    assert from_axis(-(10**6), pa.date32()) == "-768-02-04"
