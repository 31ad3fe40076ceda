"""Rows in files, as tasks leave them for one another: Arrow files mapped into memory, parts of Parquet files."""

from __future__ import annotations

import uuid
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


def map_arrow(path: str) -> pa.Table:
    """A table over the file's pages: nothing is copied until it is used."""
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


@dataclass(frozen=True)
class Held:
    """A table where it lies: a whole Arrow file, or row groups of a Parquet file in the types of a schema."""

    path: str
    groups: tuple[int, ...] = ()
    schema: pa.Schema | None = None

    def table(self) -> pa.Table:
        return map_arrow(self.path) if self.schema is None else self.columns(self.schema.names)

    def columns(self, names: list[str]) -> pa.Table:
        """Some columns of a Parquet part; a file may spell their names in another case."""
        assert self.schema is not None
        file = pq.ParquetFile(self.path, memory_map=True)
        spelt = {n.lower(): n for n in file.schema_arrow.names}
        wanted = [spelt[n.lower()] for n in names]
        found = file.read_row_groups(list(self.groups), columns=wanted, use_threads=False).select(wanted)
        return found.rename_columns(names).cast(pa.schema([self.schema.field(n) for n in names]))
