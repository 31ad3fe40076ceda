"""The forms in which rows are stored: what a bucket holds beside the visible columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from clew.operators.base import ORIGIN_COLUMNS, Origin, Refused
from clew.operators.lineage import Known

SEQ, EPOCH, REASON = "_seq", "_epoch", "_reason"
GROUP = "_group"

SOURCE_HIDDEN = (SEQ, STAMP, EPOCH)
DERIVED_HIDDEN = (SEQ, STAMP, POS, IDENT, EPOCH)

#: under the mark of a step the origins of what it emitted; under that of an input what was logged of it
ORIGINS_SCHEMA = pa.schema(
    [pa.field("of", pa.string())] + [pa.field(c, pa.int64()) for c in (STAMP, POS, *ORIGIN_COLUMNS, GROUP, EPOCH)]
)
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


def origins_table(named: Mapping[str, Named], logs: Mapping[str, Known], epoch: int) -> pa.Table:
    """The origin index of one epoch, by marks: box by box, then the logs of inputs, each in place order."""
    parts = [_index_part(mark, r.stamp, r.pos, r.origin, _zeros(r.stamp), epoch) for mark, r in named.items()]
    for mark, known in logs.items():
        zero = _zeros(known.stamp)
        origin = Origin(zero, zero, zero, zero, known.on)
        parts.append(_index_part(mark, known.stamp, known.pos, origin, known.group, epoch))
    return pa.concat_tables([ORIGINS_SCHEMA.empty_table(), *parts])


def _index_part(mark: str, stamp: Ints, pos: Ints, origin: Origin, group: Ints, epoch: int) -> pa.Table:
    of = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(stamp), np.int32)), [mark]).cast(pa.string())
    columns = [of, stamp, pos, *origin.arrays(), group, np.full(len(stamp), epoch)]
    return pa.table([pa.array(c) for c in columns], schema=ORIGINS_SCHEMA)


def _zeros(like: Ints) -> Ints:
    return np.zeros(len(like), np.int64)


def logged(table: pa.Table) -> Known:
    """What `origins_table` holds of an input."""
    return Known(*(np.asarray(table.column(c)) for c in (STAMP, POS, GROUP, "tag")))


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
