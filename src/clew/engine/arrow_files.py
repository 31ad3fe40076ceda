"""Rows in files, as tasks leave them for one another: Arrow files mapped into memory, parts of Parquet files."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clew.archive.disk import writing


def write_arrow(folder: str | Path, table: pa.Table) -> str:
    """Write a table as a new uncompressed Arrow file, to be mapped into memory; its path."""
    path = Path(folder) / f"{uuid.uuid4().hex}.arrow"
    with (
        writing("rows of this epoch", path),
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return str(path)


def map_arrow(path: str, encoded: Collection[str] | None = ()) -> pa.Table:
    """A table over the file's pages: nothing is copied until it is used.

    Columns that were written encoded stay so if they are among `encoded`; all of them if it is None.
    """
    return decoded(pa.ipc.open_file(pa.memory_map(path)).read_all(), encoded)


def decoded(table: pa.Table, but: Collection[str] | None = ()) -> pa.Table:
    """The table with its encoded columns as plain values, but for some; None: for all."""
    wanted = [
        f.with_type(f.type.value_type)
        if pa.types.is_dictionary(f.type) and but is not None and f.name not in but
        else f
        for f in table.schema
    ]
    return table if wanted == list(table.schema) else table.cast(pa.schema(wanted))


FEW_WORDS = 64 * 1024  # bytes of a dictionary page in which each value is likely to stand many times


@dataclass(frozen=True)
class Held:
    """A table where it lies: a whole Arrow file, or row groups of a Parquet file in the types of a schema.

    Columns of text may be had `encoded`, each value once and a number for each row, where the file has few of them:
    so a million rows are read in a third of the time, and sooner compared and written. None: all that can be.
    """

    path: str
    groups: tuple[int, ...] = ()
    schema: pa.Schema | None = None

    def table(self, encoded: Collection[str] | None = ()) -> pa.Table:
        return map_arrow(self.path, encoded) if self.schema is None else self.columns(self.schema.names, encoded)

    def columns(self, names: Sequence[str], encoded: Collection[str] | None = ()) -> pa.Table:
        """Some columns of a Parquet part; a file may spell their names in another case."""
        assert self.schema is not None
        file = pq.ParquetFile(self.path, memory_map=True)
        spelt = {n.lower(): n for n in file.schema_arrow.names}
        wanted = [spelt[n.lower()] for n in names]
        words = self._encoded(file, [s for n, s in zip(names, wanted, strict=True) if encoded is None or n in encoded])
        if words:
            file = pq.ParquetFile(self.path, memory_map=True, metadata=file.metadata, read_dictionary=words)
        found = file.read_row_groups(list(self.groups), columns=wanted, use_threads=False).select(wanted)
        fields = [self.schema.field(n) for n in names]
        types = [
            pa.dictionary(pa.int32(), f.type) if n in words else f.type for n, f in zip(wanted, fields, strict=True)
        ]
        return found.rename_columns(names).cast(pa.schema(list(zip(names, types, strict=True))))

    def _encoded(self, file: pq.ParquetFile, names: Sequence[str]) -> list[str]:
        """Those of the columns that are text, of few values in each row group."""
        text = [n for n in names if pa.types.is_string(file.schema_arrow.field(n).type)]
        index = {file.schema.column(i).path: i for i in range(len(file.schema))}
        chunks = {n: [file.metadata.row_group(g).column(index[n]) for g in self.groups] for n in text}
        return [n for n, found in chunks.items() if all(map(_few_words, found))]


def _few_words(chunk: pq.ColumnChunkMetaData) -> bool:
    start, end = chunk.dictionary_page_offset, chunk.data_page_offset
    return start is not None and start < end <= start + FEW_WORDS
