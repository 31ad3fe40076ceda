"""Files as batches: CSV, JSON lines and Parquet, cut into parts of so many records, at positions that do not move.

A record that cannot be read is given on whole, with the reason for which it is rejected. Columns are found by name,
in any case; those that the stream does not have are left out.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clew.engine.batches import Malformed, row_json
from clew.errors import BatchError, SourceFailed, nearest
from clew.model.values import python_rows

TRUE, FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")
ENDS = "a file may change at its end only; give another one another name, or another --id-prefix"
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # as text, since JSON has no word for them


_PLAIN = (  # kinds of column, and of what JSON's values for them are found to be
    (pa.types.is_integer, pa.types.is_int64),
    (pa.types.is_floating, lambda found: pa.types.is_float64(found) or pa.types.is_int64(found)),
    (pa.types.is_string, pa.types.is_string),
    (pa.types.is_boolean, pa.types.is_boolean),
    (lambda _: True, pa.types.is_null),
)


@dataclass(frozen=True)
class Part:
    """Records `start` to `end` of a file; `read` says how far into the file that is, from 0 to 1."""

    start: int
    end: int
    rows: Any
    read: float


@dataclass(frozen=True)
class Cut:
    """Where to cut a file: parts of `count` records, from behind the first `skip`; `label` names it in reasons."""

    count: int
    skip: int = 0
    label: str = ""


Reader = Callable[[Path, pa.Schema, Cut], Iterator[Part]]


def parts_of(file: Path, schema: pa.Schema, count: int, skip: int = 0, label: str = "") -> Iterator[Part]:
    """The records of a file behind the first `skip`, `count` at a time, for a stream of this schema."""
    reader = _READERS.get(form_of(file))
    if reader is None:
        raise BatchError(f"'{file}' is in no form that can be read", details=[FORMS], hint="convert it")
    with _failures_named(file):
        yield from reader(file, schema, Cut(count, skip, label))


def beginning_of(file: Path) -> str:
    """A mark of how a file begins, with its header and first record, that stays while it grows at its end."""
    with _failures_named(file):
        if form_of(file) == ".parquet":
            whole = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            plain = [field.name for field in whole.schema_arrow if not pa.types.is_nested(field.type)]
            first = next(whole.iter_batches(batch_size=1, columns=plain), None) if plain else None
            begins = row_json(python_rows(pa.Table.from_batches([first]))[0]).encode() if first else b""
        else:
            with _opened(file) as stream:
                lines = (line.rstrip(b"\r\n") for line in stream if line.strip())
                begins = b"\n".join(islice(lines, 2 if form_of(file) in (".csv", ".tsv") else 1))
    return hashlib.sha256(begins).hexdigest()[:16]


@contextlib.contextmanager
def _failures_named(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise SourceFailed(
            f"'{file}' cannot be read to its end",
            details=[lines[0]],
            hint="put it right under its name, then run again; what was fed before is kept",
        ) from error


def form_of(file: Path) -> str:
    """The ending that says how to read a file; text may be packed by gzip.

    >>> form_of(Path("a.CSV")), form_of(Path("a.jsonl.gz")), form_of(Path("a.parquet.gz"))
    ('.csv', '.jsonl', '.gz')
    """
    *before, last = ["", *(suffix.lower() for suffix in file.suffixes)]
    return before[-1] if last == ".gz" and before[-1] in _TEXTS else last


def is_readable(file: Path) -> bool:
    """Whether a file is in a form that can be read, by the ending of its name."""
    return form_of(file) in _READERS


def _parquet(file: Path, schema: pa.Schema, cut: Cut) -> Iterator[Part]:
    whole = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    moments = [c.path for c in map(whole.schema.column, range(len(whole.schema))) if c.physical_type == "INT96"]
    wanted = {name.lower() for name in schema.names}
    columns = [name for name in whole.schema_arrow.names if name.lower() in wanted]
    total, end = whole.metadata.num_rows, 0
    for batch in whole.iter_batches(batch_size=cut.count, columns=columns):
        start, end = end, end + len(batch)
        if end > cut.skip:
            rows = pa.Table.from_batches([batch.slice(max(cut.skip - start, 0))])
            for i in [i for i, name in enumerate(columns) if name in moments]:  # Spark writes these in UTC
                rows = rows.set_column(i, columns[i], pc.assume_timezone(rows.column(i), "UTC"))
            yield Part(max(start, cut.skip), end, rows, end / total)
    _check_skipped(file, cut, min(end, cut.skip))


# --- JSON lines ---


def _json_lines(file: Path, schema: pa.Schema, cut: Cut) -> Iterator[Part]:
    fields = {field.name.lower(): field.type for field in schema}
    exact = {name for name, kind in fields.items() if _is_exact(kind)}
    with _opened(file) as stream:
        records = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
        for start, chunk in _chunks(file, records, cut):
            rows = [_json_row(number, line, fields, exact, cut.label) for number, line in chunk]
            yield Part(start, start + len(rows), _json_table(rows, schema) or rows, _share(stream, file))


def _json_table(rows: list[dict[str, Any] | Malformed], schema: pa.Schema) -> pa.Table | None:
    """The rows as a table, where all of their values are plainly of the columns' types; that spares a look at each."""
    names = set(schema.names)
    if not all(isinstance(row, dict) and row.keys() == names for row in rows):
        return None
    columns = {}
    for field in schema:
        try:
            column = pa.array([row[field.name] for row in rows])  # type: ignore[index]
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            return None
        if not any(is_kind(field.type) and fits(column.type) for is_kind, fits in _PLAIN):
            return None
        columns[field.name] = column
    return pa.table(columns)


def _json_row(
    number: int, line: bytes, fields: Mapping[str, pa.DataType], exact: Set[str], label: str
) -> dict[str, Any] | Malformed:
    try:
        row = json.loads(line, parse_float=Decimal) if exact else json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        text = line.decode(errors="replace").rstrip("\r\n")
        return Malformed(text, f"malformed row: line {number}{label} is no JSON object")
    row = {name: value for name, value in row.items() if name.lower() in fields}
    if exact:
        row = {name: value if name.lower() in exact else _floats(value) for name, value in row.items()}
    if b'NaN"' in line or b'Infinity"' in line:
        floats = {name for name in row if pa.types.is_floating(fields[name.lower()])}
        return {k: NUMBERS.get(v, v) if isinstance(v, str) and k in floats else v for k, v in row.items()}
    return row


def _is_exact(kind: pa.DataType) -> bool:
    """Whether it holds decimals, which a float on the way would round."""
    return bool(pa.types.is_decimal(kind.value_type if pa.types.is_list(kind) else kind))


def _floats(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case list():
            return [_floats(v) for v in value]
        case dict():
            return {k: _floats(v) for k, v in value.items()}
    return value


# --- CSV ---


class _Lines:
    """The lines of a text; `text` holds those handed out since it was emptied."""

    def __init__(self, stream: io.TextIOBase) -> None:
        self._stream, self.text = stream, ""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._stream)
        self.text += line
        return line


def _csv(file: Path, schema: pa.Schema, cut: Cut) -> Iterator[Part]:
    # A byte that is no UTF-8 becomes half of a surrogate pair, which no text has: it marks its record.
    with _opened(file) as raw, io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as stream:
        lines = _Lines(stream)
        reader = csv.reader(lines, delimiter="\t" if form_of(file) == ".tsv" else ",")
        header = _header(file, [_printable(name.strip()) for name in next(reader, [])], schema)
        if not header:
            _check_skipped(file, cut, 0)
        else:
            for start, chunk in _chunks(file, _csv_records(reader, lines, len(header), cut.label), cut):
                yield Part(start, start + len(chunk), _csv_rows(chunk, header, schema), _share(stream, file))


def _header(file: Path, found: list[str], schema: pa.Schema) -> list[str]:
    """The names of a file's columns as the stream spells them. An empty file has none, and no records."""
    names = {name.lower(): name for name in schema.names}
    header = [names.get(name.lower(), name) for name in found]
    for name in schema.names if header else ():
        if name not in header:
            raise BatchError(
                f"'{file}' lacks column '{name}'",
                details=[f"it has: {', '.join(header)}", f"the stream has: {', '.join(schema.names)}"],
                hint=_separator(file, header) or nearest(name, header),
            )
        if header.count(name) > 1:
            raise BatchError(
                f"'{file}' has column '{name}' twice",
                details=[f"its header: {', '.join(found)}"],
                hint="names are found in any case",
            )
    return header


def _separator(file: Path, header: list[str]) -> str | None:
    """What to do about a header of one column in which another separator stands."""
    own, others = ("a tab", ",;") if form_of(file) == ".tsv" else ("a comma", ";\t")
    other = next((c for c in others if len(header) == 1 and c in header[0]), None)
    if other is None:
        return None
    way = "; name it .tsv" if other == "\t" else ""
    return f"its fields are parted by {'tabs' if other == chr(9) else repr(other)}, not by {own}{way}"


def _csv_records(reader: Any, lines: _Lines, width: int, label: str) -> Iterator[list[str] | Malformed]:
    while True:
        lines.text, line = "", reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a field that is too long, often since a quote is not closed
            yield Malformed(_printable(lines.text), f"malformed row: line {line}{label}: {error}")
            continue
        if not fields:
            continue
        if len(fields) != width:
            reason = f"has {len(fields)} fields, not {width}"
        elif lines.text.isascii() or _is_text(lines.text):
            yield fields
            continue
        else:
            reason = "is not UTF-8"
        yield Malformed(_printable(lines.text), f"malformed row: line {line}{label} {reason}")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    return text.rstrip("\r\n").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _csv_rows(chunk: list[list[str] | Malformed], header: list[str], schema: pa.Schema) -> Any:
    """A table if every record fits; else dicts, in which what does not fit stays text."""
    whole = [fields for fields in chunk if isinstance(fields, list)]
    columns = dict(zip(header, zip(*whole, strict=True) if whole else [()] * len(header), strict=True))
    table = {field.name: typed(columns[field.name], field.type) for field in schema}
    fits = all(isinstance(column, pa.Array) for column in table.values())
    if fits and len(whole) == len(chunk):
        return pa.table(table)
    lists = {name: c.to_pylist() if isinstance(c, pa.Array) else c for name, c in table.items()}
    rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return rows + [record for record in chunk if isinstance(record, Malformed)]


def typed(texts: tuple[str | None, ...], kind: pa.DataType) -> Any:
    """The texts of one column in its type, as an array; as a list with the odd ones left as text if some do not fit."""
    if pa.types.is_string(kind):
        return pa.array(texts, kind)
    if pa.types.is_list(kind):
        return [_json_list(text, _is_exact(kind)) for text in texts]
    array = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))
    array = pc.if_else(pc.equal(array, ""), None, array)
    try:
        return _cast(array, kind)
    except pa.ArrowException:
        return _values(array, kind)


def _json_list(text: str | None, exact: bool) -> Any:
    """A field that holds a list as JSON; what is none stays text."""
    if text is None or not text.strip():
        return None
    try:
        found = json.loads(text, parse_float=Decimal if exact else float)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, list) else text


def _values(array: pa.Array, kind: pa.DataType) -> list[object]:
    try:
        return cast("list[object]", _cast(array, kind).to_pylist())  # a time may come without its zone
    except pa.ArrowException:
        half = len(array) // 2
        return _values(array[:half], kind) + _values(array[half:], kind) if half else list(array.to_pylist())


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


# --- both ---


def _opened(file: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb"))


def _chunks(file: Path, records: Iterator[Any], cut: Cut) -> Iterator[tuple[int, list[Any]]]:
    start = sum(1 for _ in islice(records, cut.skip))
    _check_skipped(file, cut, start)
    while chunk := list(islice(records, cut.count)):
        yield start, chunk
        start += len(chunk)


def _check_skipped(file: Path, cut: Cut, found: int) -> None:
    if found < cut.skip:
        raise SourceFailed(f"'{file}' has fewer records than were fed from it: {found:,}, not {cut.skip:,}", hint=ENDS)


def _share(stream: Any, file: Path) -> float:
    """How far a file is read; its buffer's reach counts as read."""
    return min(os.lseek(stream.fileno(), 0, os.SEEK_CUR) / max(file.stat().st_size, 1), 1.0)


_TEXTS: dict[str, Reader] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
_READERS: dict[str, Reader] = {**_TEXTS, ".parquet": _parquet}
FORMS = f"forms: {', '.join(_READERS)}; text may be packed by gzip (.csv.gz)"
