"""Files as batches: CSV, JSON lines and Parquet, cut into parts of so many records, at positions that do not move.

A record that cannot be read is given on whole, with the reason for which it is rejected.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clew.engine.batches import Malformed
from clew.errors import BatchError, SourceFailed, nearest

TRUE, FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


@dataclass(frozen=True)
class Part:
    """Records `start` to `end` of a file; `read` says how far into the file that is, from 0 to 1."""

    start: int
    end: int
    rows: Any
    read: float


Reader = Callable[[Path, pa.Schema, int, int], Iterator[Part]]


def parts_of(file: Path, schema: pa.Schema, count: int, skip: int = 0) -> Iterator[Part]:
    """The records of a file behind the first `skip`, `count` at a time, for a stream of this schema."""
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise BatchError(
            f"'{file}' is in no form that can be read", details=[f"forms: {', '.join(_READERS)}"], hint="convert it"
        )
    try:
        yield from reader(file, schema, count, skip)
    except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise SourceFailed(
            f"'{file}' cannot be read to its end",
            details=[str(error).splitlines()[0]],
            hint="what was fed before is kept; run again to go on from there",
        ) from error


def _parquet(file: Path, schema: pa.Schema, count: int, skip: int) -> Iterator[Part]:
    whole = pq.ParquetFile(file)
    wanted = {name.lower() for name in schema.names}
    columns = [name for name in whole.schema_arrow.names if name.lower() in wanted]
    total, end = whole.metadata.num_rows, 0
    for batch in whole.iter_batches(batch_size=count, columns=columns):
        start, end = end, end + len(batch)
        if end > skip:
            rows = pa.Table.from_batches([batch.slice(max(skip - start, 0))])
            yield Part(max(start, skip), end, rows, end / total)


def _json_lines(file: Path, schema: pa.Schema, count: int, skip: int) -> Iterator[Part]:
    names = {name.lower(): name for name in schema.names}
    with file.open("rb") as stream:
        records = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        for start, chunk in _chunks(records, count, skip):
            rows = [_json_row(number, line, names) for number, line in chunk]
            yield Part(start, start + len(rows), rows, _share(stream, file))


def _json_row(number: int, line: bytes, names: dict[str, str]) -> dict[str, Any] | Malformed:
    try:
        row = json.loads(line)
        if isinstance(row, dict):
            return {names[key.lower()]: value for key, value in row.items() if key.lower() in names}
    except ValueError:
        pass  # no JSON: given on as it is, and rejected
    return Malformed(line.decode(errors="replace").rstrip("\r\n"), f"malformed row: line {number} is no JSON object")


def _csv(file: Path, schema: pa.Schema, count: int, skip: int) -> Iterator[Part]:
    with file.open("r", encoding="utf-8-sig", newline="") as stream:
        lines = csv.reader(stream, delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
        names = {name.lower(): name for name in schema.names}
        header = [names.get(name.strip().lower(), name.strip()) for name in next(lines, [])]
        missing = [name for name in schema.names if name not in header]
        if missing:
            raise BatchError(
                f"'{file}' lacks column '{missing[0]}'",
                details=[f"it has: {', '.join(header)}", f"the stream has: {', '.join(schema.names)}"],
                hint=nearest(missing[0], header),
            )
        records = ((lines.line_num, fields) for fields in lines if fields)
        for start, chunk in _chunks(records, count, skip):
            yield Part(start, start + len(chunk), _csv_rows(chunk, header, schema), _share(stream, file))


def _csv_rows(chunk: list[tuple[int, list[str]]], header: list[str], schema: pa.Schema) -> Any:
    """A table if every record fits; else dicts, in which what does not fit stays text."""
    whole = [fields for _, fields in chunk if len(fields) == len(header)]
    columns = dict(zip(header, zip(*whole, strict=True) if whole else [()] * len(header), strict=True))
    table = {field.name: _typed(columns[field.name], field.type) for field in schema}
    fits = all(isinstance(column, pa.Array) for column in table.values())
    if fits and len(whole) == len(chunk):
        return pa.table(table)
    lists = {name: c.to_pylist() if isinstance(c, pa.Array) else c for name, c in table.items()}
    rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return rows + [
        Malformed(",".join(fields), f"malformed row: line {number} has {len(fields)} fields, not {len(header)}")
        for number, fields in chunk
        if len(fields) != len(header)
    ]


def _typed(texts: tuple[str, ...], kind: pa.DataType) -> Any:
    """The texts of one column in its type, as an array; as a list with the odd ones left as text if some do not fit."""
    if pa.types.is_string(kind):
        return pa.array(texts, kind)
    array = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))
    array = pc.if_else(pc.equal(array, ""), None, array)
    try:
        return _cast(array, kind)
    except pa.ArrowException:
        return [_value(text, kind) for text in array]


def _value(text: pa.Scalar, kind: pa.DataType) -> object:
    try:
        return _cast(pa.array([text.as_py()], pa.string()), kind)[0].as_py()  # a time may come without its zone
    except pa.ArrowException:
        return text.as_py()


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(array)
        true, false = (pc.is_in(lower, pa.array(words)) for words in (TRUE, FALSE))
        if not pc.all(pc.or_kleene(pc.or_(true, false), pc.is_null(lower))).as_py():
            raise pa.ArrowInvalid("not a boolean")
        return pc.if_else(pc.is_null(lower), pa.scalar(None, pa.bool_()), true)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.match_substring_regex(array, r"(Z|[+-]\d\d:?\d\d)$")
        if not pc.any(zoned).as_py():
            return array.cast(pa.timestamp("us"))  # in the store's time zone, which admission knows
        return pc.if_else(pc.fill_null(zoned, True), array, "a time without a zone").cast(kind)
    return array.cast(kind)


def _chunks(records: Iterator[Any], count: int, skip: int) -> Iterator[tuple[int, list[Any]]]:
    start = sum(1 for _ in islice(records, skip))
    while chunk := list(islice(records, count)):
        yield start, chunk
        start += len(chunk)


def _share(stream: Any, file: Path) -> float:
    """How far a file is read; its buffer's reach counts as read."""
    return min(os.lseek(stream.fileno(), 0, os.SEEK_CUR) / max(file.stat().st_size, 1), 1.0)


_READERS: dict[str, Reader] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".parquet": _parquet,
}
