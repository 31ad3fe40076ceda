"""Batches of any form become tables of a stream's schema; a row that does not fit comes back whole, with a reason."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.engine.batches import Malformed, as_table, row_json
from clew.engine.frames import scanner
from clew.engine.pieces import Form, Scan
from clew.errors import BatchError
from clew.model.schema import parse_schema

SCHEMA = parse_schema("ts LONG, g STRING, x DOUBLE, n INT")


def taken(batch: Any, schema: str | pa.Schema = SCHEMA) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    made, rejects = as_table(batch, parse_schema(schema) if isinstance(schema, str) else schema, "s")
    assert made.schema.equals(parse_schema(schema) if isinstance(schema, str) else schema)
    return made.to_pylist(), [(r.row, r.reason) for r in rejects]


@pytest.mark.parametrize("rows", [1, 4, 5, 10**6])
def test_how_many_rows_of_a_frame_a_task_holds_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("clew.engine.frames.TASK_ROWS", rows)
    net = clew.Network("net")
    net.stream("s", "ts LONG, g STRING, x DOUBLE, n INT", order="ts", key="ts").filter("n > 0").output("o")
    form = Form.of(net.sources["s"])
    table = pa.table({"ts": range(12), "g": ["a"] * 12, "x": [0.5] * 12, "n": range(12)}).cast(SCHEMA)
    marked = table.append_column("_bad_3", pa.array([1.5 if i == 7 else None for i in range(12)]))
    told = scanner(str(tmp_path), [form], "UTC")(iter(marked.to_batches(max_chunksize=2)))
    found = Scan.of(form, [t for part in told for t in json.loads(part.column(0)[0].as_py())])
    assert found.batch.table.equals(pa.concat_tables([table.slice(0, 7), table.slice(8)]))
    assert found.batch.runs is not None
    assert [(r.row, r.reason) for r in found.rejects] == [
        ('{"ts": 7, "g": "a", "x": 0.5, "n": 1.5}', "column 'n' does not fit its type")
    ]


def test_every_form_of_a_batch_gives_the_same_table() -> None:
    rows = [{"ts": 1, "g": "a", "x": 0.5, "n": 3}, {"ts": 2, "g": "", "x": -1.0, "n": 4}]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    forms = [
        rows,
        tuple(rows),
        iter(rows),
        table,
        table.to_batches()[0],
        table.to_pandas(),
        table.select(["n", "x", "g", "ts"]),
    ]
    assert [taken(form) for form in forms] == [(rows, [])] * len(forms)


def test_what_a_row_lacks_is_null_and_a_column_it_should_not_have_rejects_it() -> None:
    found, rejects = taken([{"ts": 1}, {"ts": 2, "gg": "a"}, {}])
    assert found == [{"ts": 1, "g": None, "x": None, "n": None}, dict.fromkeys(SCHEMA.names)]
    assert rejects == [('{"ts": 2, "gg": "a"}', "unknown column 'gg'; did you mean 'g'?")]


def test_an_unknown_column_offers_the_nearest_name() -> None:
    _, rejects = taken([{"celcius": 1.0}], "ts LONG, celsius DOUBLE")
    assert rejects[0][1] == "unknown column 'celcius'; did you mean 'celsius'?"


def test_names_are_found_in_any_case_in_every_form() -> None:
    """Rows as dicts were rejected, tables were not."""
    assert taken([{"TS": 1, "G": "a"}]) == taken(pa.table({"TS": [1], "G": ["a"], "X": [None], "N": [None]}))
    assert taken([{"TS": 1, "G": "a"}])[0][0]["ts"] == 1


def test_a_name_given_in_two_cases_is_refused() -> None:
    assert taken([{"ts": 1, "TS": 2}])[1] == [('{"ts": 1, "TS": 2}', "column 'ts' is given twice")]
    with pytest.raises(BatchError, match="has column 'ts' twice"):
        taken(pa.table({"ts": [1], "TS": [2], "g": ["a"], "x": [1.0], "n": [1]}))


def test_a_pandas_frame_with_a_column_twice_is_refused_by_name_if_the_stream_has_it() -> None:
    frame = pd.DataFrame([[1, "a", 1.0, 1, 2]], columns=["ts", "g", "x", "n", "n"])
    with pytest.raises(BatchError) as refused:
        taken(frame)
    assert str(refused.value) == "batch for stream 's' has column 'n' twice\n  hint: names are found in any case"
    more = pd.DataFrame([[1, "a", 1.0, 1, 2, 3]], columns=["ts", "g", "x", "n", "more", "more"])
    assert taken(more) == ([{"ts": 1, "g": "a", "x": 1.0, "n": 1}], [])


@pytest.mark.parametrize("row", [5, "text", None, [1, 2], ("ts", 1)])
def test_what_is_no_row_is_rejected_whole(row: Any) -> None:
    found, rejects = taken([{"ts": 1}, row])
    assert len(found) == 1
    assert rejects == [(json.dumps({"value": row}), f"not a row but {type(row).__name__}")]


@pytest.mark.parametrize("batch", ["text", b"bytes", 5, None, {"ts": 1}])
def test_what_is_no_batch_is_an_error(batch: Any) -> None:
    with pytest.raises(BatchError, match="cannot feed stream 's' with"):
        as_table(batch, SCHEMA, "s")


BAD = {
    "LONG": ["1", 1.0, True, 2**63, Decimal("1.5"), math.nan, np.float32(1), np.bool_(True), [1], b"1"],
    "INT": [2**31, -(2**31) - 1, "x", False],
    "STRING": [1, 1.5, True, ["a"], "\ud800"],
    "DOUBLE": ["1.5", True, [1.0], 10**400],
    "DECIMAL(5, 2)": ["1.0", Decimal("1000.00"), Decimal("0.001"), True, math.nan, math.inf],
    "BOOLEAN": [1, 0.0, "true"],
    "DATE": ["yesterday", dt.datetime(2024, 1, 1), 19000, 1.5],
    "TIMESTAMP": ["soon", 1700000000, 1.5, True],
    "TIMESTAMP_NTZ": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "2024-01-01T00:00:00+00:00", 5],
    "ARRAY<INT>": [1, ["a"], [2**40], "ab"],
    "BINARY": [1, 1.5],
}


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, values in BAD.items() for v in values], ids=repr)
def test_a_value_that_does_not_fit_rejects_its_row_and_no_other(kind: str, value: Any) -> None:
    found, rejects = taken([{"ts": 1}, {"ts": 2, "v": value}, {"ts": 3}], f"ts LONG, v {kind}")
    assert [r["ts"] for r in found] == [1, 3]
    (only,) = rejects
    assert only[1].startswith(
        f"column 'v' is {kind.replace(', ', ',')}, got {type(value).__name__} ".replace("LONG", "BIGINT")
    )
    assert json.loads(only[0])["ts"] == 2
    (only[0] + only[1]).encode()  # can be stored


GOOD = {
    "LONG": [(np.int64(5), 5), (np.int8(5), 5), (-(2**63), -(2**63))],
    "DOUBLE": [
        (3, 3.0),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (math.inf, math.inf),
        (2**60 + 1, float(2**60)),
    ],
    "FLOAT": [(0.1, float(np.float32(0.1)))],
    "STRING": [("", ""), ("null", "null"), ("\x00ß漢", "\x00ß漢")],
    "DECIMAL(5, 2)": [(1, Decimal("1.00")), (1.5, Decimal("1.50")), (Decimal("999.99"), Decimal("999.99"))],
    "BOOLEAN": [(True, True)],
    "DATE": [("2024-02-29", dt.date(2024, 2, 29)), (dt.date(1900, 1, 1), dt.date(1900, 1, 1))],
    "TIMESTAMP": [
        ("2024-01-01T01:00:00+01:00", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        (pd.Timestamp("2024-01-01", tz="UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    ],
    "TIMESTAMP_NTZ": [(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1)), ("2024-01-01", dt.datetime(2024, 1, 1))],
    "ARRAY<INT>": [([1, None], [1, None]), ((), [])],
    "BINARY": [(b"\xff", b"\xff")],
}


@pytest.mark.parametrize(("kind", "value", "kept"), [(k, *p) for k, pairs in GOOD.items() for p in pairs], ids=repr)
def test_a_value_that_fits_is_kept(kind: str, value: Any, kept: Any) -> None:
    assert taken([{"v": value}, {"v": None}], f"v {kind}") == ([{"v": kept}, {"v": None}], [])


def test_a_table_without_a_column_is_an_error_that_says_what_it_has() -> None:
    with pytest.raises(BatchError) as error:
        taken(pa.table({"ts": [1], "gg": ["a"], "x": [1.0], "n": [1]}))
    assert str(error.value).splitlines() == [
        "batch for stream 's' lacks column 'g'",
        "  it has: ts, gg, x, n",
        "  the stream has: ts, g, x, n",
        "  hint: did you mean 'gg'?",
    ]


@pytest.mark.parametrize(
    "column", [pa.array(["1"]), pa.array([True]), pa.array([dt.date(2024, 1, 1)]), pa.array([b"1"])]
)
def test_a_column_of_another_kind_is_an_error_of_the_whole_batch(column: pa.Array) -> None:
    with pytest.raises(BatchError, match=r"has column 'v' as .*, not BIGINT"):
        taken(pa.table({"v": column}), "v LONG")


STRINGS = [
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_strings_in_every_form_of_arrow_are_strings(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(["a", None, ""]).cast(kind)])
    assert taken(pa.table({"v": column}), "v STRING") == ([{"v": "a"}, {"v": None}, {"v": ""}], [])
    with pytest.raises(BatchError, match="not BIGINT"):
        taken(pa.table({"v": column}), "v LONG")


def test_a_category_of_pandas_is_its_values() -> None:
    frame = pd.DataFrame({"v": pd.Categorical(["a", "b", "a"])})
    assert [r["v"] for r in taken(frame, "v STRING")[0]] == ["a", "b", "a"]


@given(st.lists(st.sampled_from([None, 1.0, 2.5, -3.0, math.nan, 1e30]), max_size=6))
def test_whether_a_row_of_a_table_fits_does_not_depend_on_its_neighbours(values: list[float | None]) -> None:
    """A whole number in a column of doubles was taken, unless another row's was not whole."""
    table = pa.table({"v": pa.array(values, pa.float64())})
    found, rejects = taken(table, "v LONG")
    alone = [taken(table.slice(i, 1), "v LONG") for i in range(len(table))]
    assert found == [row for rows, _ in alone for row in rows]
    assert rejects == [reject for _, part in alone for reject in part]


def test_numbers_of_a_table_fit_by_value() -> None:
    assert taken(pa.table({"v": pa.array([1, 2**40])}), "v INT")[0] == [{"v": 1}]
    assert taken(pa.table({"v": pa.array([1, 1000])}), "v DECIMAL(5, 2)")[0] == [{"v": Decimal("1.00")}]
    assert taken(pa.table({"v": pa.array([1, None])}), "v DOUBLE")[0] == [{"v": 1.0}, {"v": None}]
    assert taken(pa.table({"v": pa.nulls(2)}), "v DATE")[0] == [{"v": None}] * 2


def test_times_of_a_table_fit_by_value() -> None:
    nanos = pa.array([1_000, 1_001], pa.timestamp("ns"))  # Spark, too, leaves out what is below a microsecond
    assert taken(pa.table({"v": nanos}), "v TIMESTAMP_NTZ")[0] == [{"v": dt.datetime(1970, 1, 1, 0, 0, 0, 1)}] * 2
    zoned = pa.array([0], pa.timestamp("s", tz="Asia/Tokyo"))
    assert taken(pa.table({"v": zoned}), "v TIMESTAMP")[0] == [{"v": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}]


def test_an_empty_batch_is_a_batch() -> None:
    for empty in ([], SCHEMA.empty_table(), SCHEMA.empty_table().to_pandas()):
        assert taken(empty) == ([], [])


@given(
    st.dictionaries(
        st.text() | st.integers(),
        st.none()
        | st.text(st.characters())
        | st.floats()
        | st.integers()
        | st.binary()
        | st.datetimes()
        | st.decimals()
        | st.lists(st.dates()),
    )
)
def test_any_row_can_be_kept_as_json(row: dict[Any, Any]) -> None:
    text = row_json(row)
    text.encode()
    assert set(json.loads(text)) <= {str(k).encode("utf-8", "backslashreplace").decode() for k in row}


def test_a_row_that_holds_itself_can_be_kept() -> None:
    row: dict[str, Any] = {"ts": 1}
    row["self"] = row
    assert len(as_table([row], SCHEMA, "s")[1]) == 1


# What Spark 4 gives for `timestamp'...'` under America/New_York: a repeated hour is read as its first, a skipped one
# as if the clock had not been set forward yet.
NEW_YORK = {
    "2024-01-15T12:00:00": "2024-01-15T17:00:00+00:00",
    "2024-11-03T01:30:00": "2024-11-03T05:30:00+00:00",
    "2024-03-10T02:30:00": "2024-03-10T07:30:00+00:00",
}


@pytest.mark.parametrize(("given", "expected"), NEW_YORK.items())
def test_a_time_without_a_zone_is_one_of_the_stores_zone_in_every_form(given: str, expected: str) -> None:
    schema = parse_schema("t TIMESTAMP")
    naive = dt.datetime.fromisoformat(given)
    table = pa.table({"t": pa.array([naive], pa.timestamp("us"))})
    for batch in ([{"t": given}], [{"t": naive}], table, pd.DataFrame({"t": [naive]})):
        made, rejects = as_table(batch, schema, "s", "America/New_York")
        assert not rejects
        assert made.column("t")[0].as_py() == dt.datetime.fromisoformat(expected)


def test_a_time_with_a_zone_keeps_its_moment_in_any_store() -> None:
    moment = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    made, _ = as_table([{"t": moment}, {"t": moment.isoformat()}], parse_schema("t TIMESTAMP"), "s", "Asia/Tokyo")
    assert made.column("t").to_pylist() == [moment, moment]


def test_a_malformed_record_is_rejected_as_it_stands() -> None:
    rows, rejects = as_table([Malformed("1;2", "malformed row: line 1"), {"ts": 1}], SCHEMA, "s")
    assert (len(rows), [(r.row, r.reason) for r in rejects]) == (1, [("1;2", "malformed row: line 1")])


def test_a_pandas_column_of_several_types_rejects_the_odd_rows_alone() -> None:
    schema = parse_schema("t LONG, k STRING")
    frame = pd.DataFrame({"T": [1, 2, 3, None], "k": ["a", 5, None, "b"], "more": [object()] * 4}, dtype=object)
    made, rejects = as_table(frame, schema, "s")
    assert made.to_pylist() == [{"t": 1, "k": "a"}, {"t": 3, "k": None}, {"t": None, "k": "b"}]
    assert [(r.row, r.reason) for r in rejects] == [('{"t": 2, "k": 5}', "column 'k' is STRING, got int 5")]


def test_a_reader_of_batches_is_a_table_and_an_array_is_none() -> None:
    table = pa.table({"ts": [1], "id": [2]})
    schema = parse_schema("ts LONG, id LONG")
    assert as_table(table.to_reader(), schema, "s")[0].equals(table)
    for batch in (pd.Series([1]), np.array([1])):
        with pytest.raises(BatchError, match="cannot feed stream 's' with"):
            as_table(batch, schema, "s")


LISTS = [
    ("ARRAY<INT>", [1.7], "got list [1.7]"),
    ("ARRAY<INT>", b"x", "got bytes b'x'"),
    ("ARRAY<STRING>", "abc", "got str 'abc'"),
    ("ARRAY<TIMESTAMP>", [1], "got list [1]"),
    ("ARRAY<DATE>", [dt.datetime(2024, 1, 1, 5)], "got list [datetime.datetime(2024, 1, 1, 5, 0)]"),
    ("ARRAY<TIMESTAMP_NTZ>", [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
     "got list [datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "reason"), LISTS)
def test_what_stands_in_a_list_is_changed_no_more_than_what_stands_alone(kind: str, value: Any, reason: str) -> None:
    found, ((_, why),) = taken([{"v": value}, {"v": None}], f"v {kind}")
    assert (found, why) == ([{"v": None}], f"column 'v' is {kind}, {reason}")


def test_lists_of_another_type_are_taken_where_nothing_changes() -> None:
    found, rejects = taken(pa.table({"v": pa.array([[1.0], None, [], [2.0, None]])}).slice(1), "v ARRAY<INT>")
    assert (found, rejects) == ([{"v": None}, {"v": []}, {"v": [2, None]}], [])
    found, ((_, why),) = taken(pa.table({"v": pa.array([[1.0], [1.5]])}), "v ARRAY<INT>")
    assert (found, why) == ([{"v": [1]}], "column 'v' is ARRAY<INT>, got list [1.5]")
    large = pa.table({"v": pa.array([[1, None]], pa.large_list(pa.int64()))})
    assert taken(large, "v ARRAY<INT>")[0] == [{"v": [1, None]}]


def test_times_in_a_list_are_of_the_stores_zone_too() -> None:
    made, _ = as_table([{"v": [dt.datetime(2024, 1, 1, 5)]}], parse_schema("v ARRAY<TIMESTAMP>"), "s", "Europe/Paris")
    assert made["v"][0][0].as_py() == dt.datetime(2024, 1, 1, 4, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        ("DATE", pa.array([dt.datetime(2024, 1, 1)]), "as timestamp[us], not DATE"),
        ("TIMESTAMP", pa.array([dt.date(2024, 1, 1)]), "as date32[day], not TIMESTAMP"),
        ("INT", pa.array([[1]]), "as list<item: int64>, not INT"),
    ],
)
def test_dates_times_and_lists_are_not_taken_for_each_other(kind: str, column: pa.Array, text: str) -> None:
    with pytest.raises(BatchError, match=re.escape(f"batch for stream 's' has column 'v' {text}\n  hint: cast it")):
        taken(pa.table({"v": column}), f"v {kind}")


@pytest.mark.parametrize("value", [{1, 2}, frozenset({1})])
def test_a_set_is_no_list(value: Any) -> None:
    made, rejects = taken([{"l": value}, {"l": (3, 4)}], "l ARRAY<LONG>")
    assert made == [{"l": [3, 4]}]
    assert [reason for _, reason in rejects] == [f"column 'l' is ARRAY<BIGINT>, got {type(value).__name__} {value!r}"]
