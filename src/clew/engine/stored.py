"""The forms in which rows are stored: what a bucket holds beside the visible columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clew.archive.store import Store
from clew.engine.batches import Reject, row_json
from clew.engine.evaluate import Named
from clew.model.axis import Number, axis_end, span_of
from clew.model.places import Places
from clew.model.rows import IDENT, POS, STAMP, Ints, Rows, mix
from clew.model.values import python_rows
from clew.network.boxes import Source
from clew.operators.base import NO_FLOOR, ORIGIN_COLUMNS, Refused
from clew.operators.lineage import Known

SEQ, EPOCH, REASON = "_seq", "_epoch", "_reason"
GROUP = "_group"

SOURCE_HIDDEN = (SEQ, STAMP, EPOCH)
DERIVED_HIDDEN = (SEQ, STAMP, POS, IDENT, EPOCH)

#: under the mark of a step the origins of what it emitted; under that of an input what was logged of it
OWN_ORIGINS_SCHEMA = pa.schema([pa.field(c, pa.int64()) for c in (STAMP, POS, *ORIGIN_COLUMNS, GROUP)])
ORIGINS_SCHEMA = pa.schema([pa.field("of", pa.string()), *OWN_ORIGINS_SCHEMA])
ORIGINS = "origins"
ALONE = 10_000  # rows of one mark in an epoch that go into a table of their own
FEW = 1_000  # rows of all marks in an epoch that its record holds
HELD = 5_000  # rows that records hold at most before they become a bucket
_Columns = tuple[Ints, tuple[Ints | None, ...]]  # the stamps, and all columns behind them
#: columns of the origins in which null says that the value is the row's own stamp; in all others it is a constant
AS_STAMP = ("first_stamp", "last_stamp")
_CONSTANT = {POS: 0, "first_pos": 0, "last_pos": 0, "tag": 0, "floor": NO_FLOOR, GROUP: 0}
REJECTED_SCHEMA = pa.schema(
    [("name", pa.string()), ("reason", pa.string()), ("row", pa.string()), (STAMP, pa.int64()), (EPOCH, pa.int64())]
)


MOVES_SCHEMA = pa.schema(
    [("stream", pa.string()), ("whole", pa.int64()), ("real", pa.float64()), ("finish", pa.bool_()),
     (STAMP, pa.int64()), (EPOCH, pa.int64())]
)  # fmt: skip


@dataclass(frozen=True)
class Move:
    """Progress admitted without a tuple: by `advance`, or by `finish` to the end of the axis."""

    stream: str
    to: Number
    stamp: int
    finish: bool


def moves_table(moves: Sequence[Move], epoch: int) -> pa.Table:
    whole = [m.to if isinstance(m.to, int) else None for m in moves]
    real = [m.to if isinstance(m.to, float) else None for m in moves]
    columns = [
        [m.stream for m in moves],
        whole,
        real,
        [m.finish for m in moves],
        [m.stamp for m in moves],
        [epoch] * len(moves),
    ]
    return pa.table(columns, schema=MOVES_SCHEMA)


def moves_since(store: Store, epoch: int) -> list[Move]:
    """All moves committed after an epoch, in the order of their stamps."""
    if "moves" not in store.state.tables:
        return []
    rows = store.read_table("moves", ranges={EPOCH: (epoch + 1, None)}, kind="tables").to_pylist()
    return [
        Move(r["stream"], r["real"] if r["whole"] is None else r["whole"], r[STAMP], r["finish"])
        for r in sorted(rows, key=lambda r: r[STAMP])
    ]


def recent_keys(store: Store, source: Source, progress: Number) -> pa.Table:
    """The keys, with their order, that a tuple which is not late could still repeat."""
    kind = source.schema.field(source.order).type
    within = source.key_span is not None and source.order not in source.key
    reach = span_of(source.key_span or 0, kind, "key_span") if within else 0
    names = list(dict.fromkeys((*source.key, source.order)))
    last = progress
    if progress >= axis_end(kind):
        ends = [f.stats[source.order][1] for f in store.files(source.name) if source.order in f.stats]
        last = max([end for end in ends if end is not None], default=progress)
    return store.read_table(source.name, names, {source.order: (last - reach, None)})


def stored_schema(visible: pa.Schema, hidden: Iterable[str]) -> pa.Schema:
    return pa.schema([*visible, *(pa.field(name, pa.int64()) for name in hidden)])


def late_schema(visible: pa.Schema) -> pa.Schema:
    return pa.schema([*visible, pa.field(REASON, pa.string()), *(pa.field(n, pa.int64()) for n in (STAMP, POS, EPOCH))])


def source_ident(stream: str, seq: Ints) -> Ints:
    """The 64-bit name of a source tuple: its tid, hashed."""
    return mix(seq, zlib.crc32(stream.encode()))


def source_rows(stream: str, table: pa.Table, stamps: Ints, first_seq: int) -> Rows:
    """Admitted tuples as rows: place and name from their numbers."""
    seq = np.arange(first_seq, first_seq + len(stamps), dtype=np.int64)
    return Rows(table, stamps, np.zeros(len(stamps), np.int64), source_ident(stream, seq))


def source_bucket(table: pa.Table, stamps: Ints, first_seq: int, epoch: int) -> pa.Table:
    seq = np.arange(first_seq, first_seq + len(table), dtype=np.int64)
    return _with(table, {SEQ: seq, STAMP: stamps, EPOCH: np.full(len(table), epoch)})


def derived_bucket(rows: Rows, first_seq: int, epoch: int) -> pa.Table:
    seq = np.arange(first_seq, first_seq + len(rows), dtype=np.int64)
    hidden = {SEQ: seq, STAMP: rows.stamp, POS: rows.pos, IDENT: rows.ident, EPOCH: np.full(len(rows), epoch)}
    return _with(rows.table, hidden)


def archived_rows(stream: str, table: pa.Table) -> Rows:
    """Rows of a source as they were when admitted, from its archive."""
    seq, stamp = np.asarray(table.column(SEQ)), np.asarray(table.column(STAMP))
    return Rows(table.drop_columns(list(SOURCE_HIDDEN)), stamp, np.zeros(len(seq), np.int64), source_ident(stream, seq))


@dataclass(frozen=True)
class OriginsPart:
    """A table of the origin index: that of all marks, or of one."""

    name: str
    schema: pa.Schema
    meta: dict[str, Any]
    table: pa.Table


def index_parts(named: Mapping[str, Named], logs: Mapping[str, Known]) -> dict[str, pa.Table]:
    """The origin index of one epoch, by mark: what boxes emitted, then what was logged of inputs, in place order.

    Most columns of a box are its rows' own stamps, or one constant: these are left out.
    """
    columns: dict[str, _Columns] = {m: (r.stamp, (r.pos, *r.origin.arrays(), None)) for m, r in named.items()}
    columns |= {m: (k.stamp, (k.pos, None, None, None, None, k.on, None, k.group)) for m, k in logs.items()}
    return {mark: _index_table(c) for mark, c in columns.items() if len(c[0])}


def origins_parts(index: Sequence[tuple[str, pa.Table]], alone: int = ALONE) -> list[OriginsPart]:
    """Parts of the origin index as the tables that they go into.

    What a mark has many rows of goes into a table of its own, so that no row needs to say whose it is.
    """
    few = [(mark, table) for mark, table in index if len(table) < alone]
    parts = [
        OriginsPart(own_origins(mark), OWN_ORIGINS_SCHEMA, {"of": mark}, table)
        for mark, table in index
        if len(table) >= alone
    ]
    if few:
        words = list(dict.fromkeys(mark for mark, _ in few))
        codes = np.repeat([words.index(mark) for mark, _ in few], [len(table) for _, table in few])
        marks = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words)
        shared = pa.concat_tables([table for _, table in few], promote_options="default").add_column(0, "of", marks)
        parts.append(OriginsPart(ORIGINS, ORIGINS_SCHEMA, {}, shared))
    return parts


def index_json(index: Sequence[tuple[str, pa.Table]]) -> list[Any]:
    """Parts of the origin index as an epoch record holds few rows of them."""
    return [[mark, {name: table.column(name).to_pylist() for name in table.column_names}] for mark, table in index]


def index_from_json(parts: Sequence[Any]) -> list[tuple[str, pa.Table]]:
    """The inverse of `index_json`."""
    return [
        (mark, pa.table({n: pa.array(values, pa.int64()) for n, values in columns.items()})) for mark, columns in parts
    ]


def whole_index(store: Store) -> pa.Table:
    """All of the origin index, with nothing left out."""
    parts = [index_rows(table, mark) for mark, table in index_from_json(store.state.lineage.get("rows", []))]
    for name, folder in store.state.tables.items():
        if name.startswith(ORIGINS) and folder.schema is not None:
            parts.append(index_rows(store.read_table(name, kind="tables"), folder.meta.get("of")))
    return pa.concat_tables([ORIGINS_SCHEMA.empty_table(), *parts])


def own_origins(mark: str) -> str:
    """The name of the table that holds what one mark has many rows of."""
    return f"{ORIGINS}-{mark.replace(':', '-').replace('<', '-input')}"


def _index_table(columns: _Columns) -> pa.Table:
    stamp, rest = columns
    found = {STAMP: pa.array(stamp)}
    for name, values in zip(OWN_ORIGINS_SCHEMA.names[1:], rest, strict=True):
        said = stamp if name in AS_STAMP else np.int64(_CONSTANT[name])
        if values is not None and (values[0] != np.broadcast_to(said, values.shape)[0] or (values != said).any()):
            found[name] = pa.array(values)
    return pa.table(found)


def index_rows(table: pa.Table, of: str | None = None) -> pa.Table:
    """Rows of the origin index with nothing left out; `of`: the mark that all are of, if the table does not say."""
    count = len(table)
    for name in OWN_ORIGINS_SCHEMA.names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(count, pa.int64()))
    marks = pa.array([of] * count, pa.string()) if of is not None else table.column("of").cast(pa.string())
    return pa.table([marks, *origins_from(table)], names=ORIGINS_SCHEMA.names)


def origins_from(table: pa.Table) -> tuple[Ints, ...]:
    """Stamp, pos, the columns of origins and the group: the inverse of `index_parts`, of one mark."""
    stamp = np.asarray(table.column(STAMP))
    columns = []
    for name in OWN_ORIGINS_SCHEMA.names:
        column = table.column(name)
        if column.null_count == len(column) and len(column):
            columns.append(stamp if name in AS_STAMP else np.full(len(stamp), _CONSTANT[name]))
        elif column.null_count:
            values = np.asarray(column.fill_null(0))
            said = stamp if name in AS_STAMP else np.int64(_CONSTANT[name])
            columns.append(np.where(np.asarray(column.is_null()), said, values))
        else:
            columns.append(np.asarray(column))
    return tuple(columns)


def rejected_table(streams: dict[str, list[Reject]], boxes: dict[str, list[Refused]], epoch: int) -> pa.Table:
    """What was rejected in one epoch, at streams and at boxes, whole and with its reason."""
    rows = [(name, r.reason, r.row, r.stamp) for name, rejects in streams.items() for r in rejects]
    for box, refused in boxes.items():
        for part in refused:
            values = python_rows(part.rows.table)
            stamps = part.rows.stamp.tolist()
            rows += [(box, why, row_json(v), s) for v, why, s in zip(values, part.reasons, stamps, strict=True)]
    columns = [[row[i] for row in rows] for i in range(4)]
    return pa.table([*columns, [epoch] * len(rows)], schema=REJECTED_SCHEMA)


def late_table(visible: pa.Table, reasons: list[str], places: Places | None, epoch: int) -> pa.Table:
    """Late tuples, whole; at a box with their place, at a stream without one."""
    count = len(visible)
    none = pa.nulls(count, pa.int64())
    place = (none, none) if places is None else (pa.array(places.stamp), pa.array(places.pos))
    columns = [*visible.columns, pa.array(reasons, pa.string()), *place, pa.array(np.full(count, epoch))]
    return pa.table(columns, schema=late_schema(visible.schema))


def _with(table: pa.Table, hidden: dict[str, Ints]) -> pa.Table:
    for name, values in hidden.items():
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table
