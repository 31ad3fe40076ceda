"""Files as a streaming source: Structured Streaming says which are new, tasks read each by its own form and header.

A file that as a whole does not fit its stream is named with the reason; of the others each record stands for itself,
as in a file that is fed alone.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from clew.archive.layout import MANIFEST
from clew.engine.arrow_files import Held
from clew.engine.batches import as_table
from clew.engine.file_parts import FORMS, form_of, is_readable, parts_of, typed
from clew.engine.lanes.tasks import run_tasks
from clew.engine.parquet_files import fits, read_share, shares
from clew.engine.pieces import Form, Scan, write_pieces
from clew.errors import BatchError, SourceFailed, StoreFull
from clew.model.types import type_name
from clew.network.boxes import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = "_file"
READ_RECORDS, PIECE_ROWS = 20_000, 500_000  # what a task holds of a text file: as Python's objects, as a table
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_LISTING = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_NAMED = 3  # of the files that are left out
_GLOB = re.compile(r"[\\*?\[\]{}]")


class FileLeftOut(UserWarning):
    """A file of a source that is in no form that can be read."""


def check_path(path: Path, name: str) -> None:
    """Refuse a path that is not there, that is a store, or that holds files of which none can be read."""
    if not path.exists():
        raise SourceFailed(f"source '{name}' reads '{path}', which is not there")
    if (path / MANIFEST).exists():
        raise SourceFailed(
            f"source '{name}' reads '{path}', which is a store", hint="give a folder of files, or one file of it"
        )
    files = outside_stores([p for p in _seen(path) if p.is_file()], path)
    if files and not any(map(is_readable, files)):
        raise SourceFailed(
            f"source '{name}' reads '{path}', which holds no files of a known form",
            details=[FORMS],
            hint="give a streaming DataFrame: spark.readStream.format(...).load(...)",
        )


def _seen(path: Path) -> list[Path]:
    """What Spark lists: nothing whose name, or whose folder's, starts with a dot or an underscore."""
    if not path.is_dir():
        return [path]
    return [p for p in path.rglob("*") if not any(part[0] in "._" for part in p.relative_to(path).parts)]


def outside_stores(paths: Sequence[Path], root: Path) -> list[Path]:
    """Those that are in no store below the root: what an engine writes there is no source."""
    if not root.is_dir():
        return list(paths)
    known = {root: False, root.absolute(): False}

    def in_store(folder: Path) -> bool:
        if folder not in known:
            known[folder] = (folder / MANIFEST).exists() or (folder != folder.parent and in_store(folder.parent))
        return known[folder]

    return [path for path in paths if not in_store(path.parent)]


def file_names(spark: SparkSession, path: Path) -> DataFrame:
    """The names of a folder's files, or of one file, as a stream: one row a file, none of them read."""
    from pyspark.sql import functions as f

    text = str(path.absolute())
    plain = _GLOB.sub(r"\\\g<0>", text)
    if not path.is_dir():
        # Spark takes one file only as a pattern; an escaped letter makes it one, and stands for itself
        plain = plain if plain != text else f"{text[:-1]}\\{text[-1]}"
    reader = spark.readStream.format("binaryFile").schema(_LISTING).option("recursiveFileLookup", True)
    reader = reader.option("maxFileAge", "36500d")  # else what is a week older than the newest is never seen
    return reader.load(plain).select(f.col("path").alias(FILE))


def as_paths(uris: Sequence[str]) -> list[Path]:
    """Spark's names of local files as paths, in order."""
    return [Path("/" + uri.removeprefix("file:").lstrip("/")) for uri in sorted(uris)]


@dataclass(frozen=True)
class Files:
    """Files of one micro-batch, for one source; `root` is what the source was given."""

    source: Source
    root: Path
    paths: Sequence[Path]
    zone: str

    def scan(self, spark: SparkSession, folder: Path) -> Scan:
        """Read the files as one batch; `SourceFailed` names those that do not fit."""
        form = Form.of(self.source)
        arguments = [a for path in self._taken() for a in self._tasks(path, form, str(folder))]
        found = run_tasks(spark, read, arguments)
        failed = [f["failed"] for f in found if "failed" in f]
        if failed:
            raise self._refusal(failed)
        return Scan.of(form, (t for f in found for t in f["told"]))

    def _taken(self) -> list[Path]:
        left = [path for path in self.paths if not is_readable(path)]
        if left:
            named = ", ".join(f"'{path}'" for path in left[:_NAMED]) + (", ..." if len(left) > _NAMED else "")
            what = named if len(left) == 1 else f"{len(left):,} files, {named}"
            warnings.warn(f"source '{self.source.name}' leaves out {what}: {FORMS}", FileLeftOut, stacklevel=2)
        return [path for path in self.paths if is_readable(path)]

    def _tasks(self, path: Path, form: Form, folder: str) -> list[Task]:
        fixed = self._fixed(path)
        if form_of(path) == ".parquet" and not fixed and fits(path, self.source):
            return [Task(folder, form, path, held=Held(str(path), s, form.schema)) for s in shares(str(path))]
        return [Task(folder, form, path, label=f" of '{path.name}'", fixed=fixed, zone=self.zone)]

    def _fixed(self, path: Path) -> dict[str, str | None]:
        """Columns of which the names of the folders below the root hold the value, as in `day=7/1.parquet`."""
        below = path.parent.relative_to(self.root.absolute()).parts if self.root.is_dir() else ()
        pairs = [part.split("=", 1) for part in below if "=" in part]
        names = {name.lower(): name for name in self.source.schema.names}
        values = {names[k.lower()]: unquote(v) for k, v in pairs if k.lower() in names}
        return {name: None if value == NO_VALUE else value for name, value in values.items()}

    def _refusal(self, failed: Sequence[Mapping[str, Any]]) -> SourceFailed:
        first, *more = failed
        others = f"others: {', '.join(f['path'] for f in more[:5])}" + (", ..." if len(more) > 5 else "")
        return SourceFailed(
            f"source '{self.source.name}' cannot take file '{first['path']}'",
            details=[*first["why"], *([others] if more else [])],
            hint="put it right under its name, or take it away, and run again: its batch has not been taken",
        )


@dataclass(frozen=True)
class Task:
    """A file, or a part of one, for a task to read; plain values, to cross processes."""

    folder: str
    form: Form
    path: Path
    held: Held | None = None
    label: str = ""
    fixed: Mapping[str, str | None] = field(default_factory=dict)
    zone: str = "UTC"


def read(task: Task) -> dict[str, Any]:
    """What one task tells: pieces, or why its file does not fit."""
    try:
        if task.held is not None:
            return {"told": [read_share(task.folder, task.form, task.held)]}
        return {"told": list(_pieces(task))}
    except (BatchError, SourceFailed) as error:
        message = error.message.replace(f"'{task.path}'", "it").replace(f"batch for stream '{task.form.stream}'", "it")
        hint = [f"hint: {error.hint}"] if isinstance(error, BatchError) and error.hint else []
        return {"failed": {"path": str(task.path), "why": [message, *error.details, *hint]}}
    except StoreFull:
        raise
    except (pa.ArrowException, OSError) as error:
        return {"failed": {"path": str(task.path), "why": [f"it cannot be read: {str(error).splitlines()[0]}"]}}


def _pieces(task: Task) -> Iterator[dict[str, Any]]:
    schema = task.form.schema
    fixed = {name: _value(task, name, text) for name, text in task.fixed.items()}
    own = pa.schema([f for f in schema if f.name not in fixed])
    tables: list[pa.Table] = []
    rejects: list[tuple[str, str]] = []
    for part in parts_of(task.path, own, READ_RECORDS, label=task.label):
        table, odd = as_table(_with(part.rows, fixed), schema, task.form.stream, task.zone)
        tables.append(table)
        rejects += [(r.row, r.reason) for r in odd]
        if sum(map(len, tables)) >= PIECE_ROWS:
            yield write_pieces(task.folder, task.form, pa.concat_tables(tables), rejects)
            tables, rejects = [], []
    if tables:
        yield write_pieces(task.folder, task.form, pa.concat_tables(tables), rejects)


def _value(task: Task, name: str, text: str | None) -> pa.Scalar:
    kind = task.form.schema.field(name).type
    values = typed((text,), kind)
    if isinstance(values, pa.Array):
        return values[0]
    raise BatchError(f"'{task.path}' lies in a folder '{name}={text}', which is no {type_name(kind).upper()}")


def _with(rows: Any, fixed: Mapping[str, pa.Scalar]) -> Any:
    """Rows with columns of one value each, in the place of any that they have themselves."""
    if not fixed:
        return rows
    if isinstance(rows, pa.Table):
        for name, value in fixed.items():
            rows = rows.append_column(name, pa.repeat(value, len(rows)))
        return rows
    names, values = {name.lower() for name in fixed}, {name: value.as_py() for name, value in fixed.items()}
    return [
        {**{k: v for k, v in row.items() if k.lower() not in names}, **values} if isinstance(row, dict) else row
        for row in rows
    ]
