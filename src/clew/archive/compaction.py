"""Compaction: adjacent small buckets become one, with the same rows in the same order.

A folder is compacted when it holds more than `MAX_SMALL` buckets under `SMALL_ROWS` rows. So it holds at most
that many small buckets, and a number of large ones that grows with its rows alone. A bucket is merged only with
at least as many rows behind it, so a row is rewritten at most about log2(`SMALL_ROWS`) times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clew.archive.buckets import reading, write_bucket
from clew.archive.record import FileEntry, Merge
from clew.archive.state import Folder

MAX_SMALL = 32
SMALL_ROWS = 65_536
LARGEST_ROWS = 1_048_576


def plan(folder: Folder, leave: Iterable[str] = ()) -> list[list[FileEntry]]:
    """The runs of adjacent small buckets to merge; `leave` names buckets that must stay as they are."""
    if count_small(folder) <= MAX_SMALL:
        return []
    runs = [_worthwhile(run) for run in _runs(folder.files.values(), set(leave))]
    return [run for run in runs if len(run) > 1]


def _worthwhile(run: list[FileEntry]) -> list[FileEntry]:
    """A run without the buckets at its old end that outweigh all behind them."""
    behind = sum(entry.rows for entry in run)
    for start, entry in enumerate(run):
        behind -= entry.rows
        if entry.rows <= behind:
            return run[start:]
    return []


def count_small(folder: Folder) -> int:
    return sum(entry.rows < SMALL_ROWS for entry in folder.files.values())


def _runs(entries: Iterable[FileEntry], kept: set[str]) -> Iterator[list[FileEntry]]:
    run: list[FileEntry] = []
    rows = 0
    for entry in entries:
        fits = entry.rows < SMALL_ROWS and entry.path not in kept
        if run and (not fits or rows + entry.rows > LARGEST_ROWS):
            yield run
            run, rows = [], 0
        if fits:
            run.append(entry)
            rows += entry.rows
    if run:
        yield run


def merge(folder: Path, run: Sequence[FileEntry]) -> Merge:
    """Write the rows of `run` as one bucket; nothing is removed here."""
    # Measured: 0.2 ms a small file; `read_table` takes 1 ms, most of it in setting up threads and prefetch.
    with reading(folder, run):
        files = (pq.ParquetFile(folder / e.path, pre_buffer=False, page_checksum_verification=True) for e in run)
        tables = [file.read(use_threads=False) for file in files]
    table = pa.concat_tables(tables, promote_options="default")
    return Merge(tuple(entry.path for entry in run), write_bucket(folder, table))
