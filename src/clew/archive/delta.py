"""A stream's Delta log: it follows the epoch records, so that any Delta reader can read the stream.

A commit is one JSON file created if absent; clew writes it itself (measured: 0.1 ms, and the same whatever
the table holds; `deltalake` keeps the whole table in memory and took 3 ms at 25 files, 27 ms at 125). Tables
are created, checkpointed and loaded by `deltalake`. None of its automatic hooks ever runs.

The log is bounded: every `CHECKPOINT_EVERY` commits it gets a checkpoint, and entries before the checkpoint
are deleted once they are older than the store's grace. So it holds at most `CHECKPOINT_EVERY` entries, two
checkpoints, and what was committed within the grace. Tombstones leave the checkpoints after `TOMBSTONES`.

The log can be rebuilt from the records: a table that is behind, torn or missing is brought to what the
records say in one transaction.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from clew.archive import faults
from clew.archive.disk import sync_all, write_new
from clew.archive.record import FileEntry
from clew.errors import StoreError
from clew.model.axis import column_at

APP = "clew"
CHECKPOINT_EVERY = 32
TOMBSTONES = "interval 1 hour"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_FOUR_DIGITS = re.compile(r"\d{4}-")
_ANY_VERSION = re.compile(r"(\d{20})\..*")


@dataclass
class DeltaLog:
    """The log of one table: `version` of its last commit and of its last checkpoint, `epoch` it has come to."""

    folder: Path
    version: int
    checkpointed: int
    epoch: int

    @staticmethod
    def open(folder: Path, schema: pa.Schema, live: dict[str, FileEntry], epoch: int) -> DeltaLog:
        """The log of `folder`, brought to hold `live` as of `epoch` if it does not; made if it is not there."""
        logs = folder / "_delta_log"
        checkpointed = max(_versions(logs, _CHECKPOINT), default=-1)
        try:
            _drop_torn_entries(logs, checkpointed)
            if _versions(logs, _ANY_VERSION):
                table = DeltaTable(str(folder))
            else:
                folder.mkdir(parents=True, exist_ok=True)
                table = DeltaTable.create(str(folder), schema, configuration=_CONFIGURATION)
            at = table.transaction_version(APP)
            log = DeltaLog(folder, table.version(), max(checkpointed, 0), 0 if at is None else at)
            if log.epoch != epoch:
                log._reconcile(table, schema, live, epoch)
        except (DeltaError, OSError) as error:
            raise StoreError(
                f"the Delta log of '{folder.name}' cannot be read or written",
                details=[f"folder: {logs}", f"cause: {error}"],
                hint="delete that folder: it is built anew from the epoch records",
            ) from error
        return log

    def _reconcile(self, table: DeltaTable, schema: pa.Schema, live: dict[str, FileEntry], epoch: int) -> None:
        there = pa.table(table.get_add_actions(flatten=True))
        sizes = dict(zip(there.column("path").to_pylist(), there.column("size_bytes").to_pylist(), strict=True))
        missing = [entry for path, entry in live.items() if path not in sizes]
        surplus = [(path, size) for path, size in sizes.items() if path not in live]
        self.commit(epoch, schema, missing, surplus)

    def commit(
        self,
        epoch: int,
        schema: pa.Schema,
        add: Sequence[FileEntry],
        remove: Sequence[tuple[str, int]],
        merged: Iterable[str] = (),
    ) -> None:
        """One transaction: the files of `add` in, those of `remove` (path, bytes) out.

        Paths in `merged` are marked as no change of data. A version taken by somebody else is stepped over.
        """
        at, quiet = int(time.time() * 1000), set(merged)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": at, "operation": "WRITE", "operationParameters": {"mode": "Append"},
                            "engineInfo": APP, "clewEpoch": epoch}}
        ]  # fmt: skip
        for path, size in remove:
            actions.append({"remove": {"path": path, "deletionTimestamp": at, "dataChange": path not in quiet,
                                       "extendedFileMetadata": True, "partitionValues": {}, "size": size}})  # fmt: skip
        for entry in add:
            actions.append({"add": {"path": entry.path, "partitionValues": {}, "size": entry.bytes,
                                    "modificationTime": at, "dataChange": entry.path not in quiet,
                                    "stats": json.dumps(delta_stats(entry, schema))}})  # fmt: skip
        actions.append({"txn": {"appId": APP, "version": epoch, "lastUpdated": at}})
        data = "\n".join(json.dumps(action) for action in actions).encode()
        version = self.version + 1
        while True:
            try:
                write_new(self._entry(version), data, durable=False)
                break
            except FileExistsError:
                version += 1
        self.version, self.epoch = version, epoch

    def checkpoint(self, grace_s: float, *, durable: bool) -> None:
        """Fold the log into a Delta checkpoint and delete what it makes superfluous."""
        logs = self.folder / "_delta_log"
        table = DeltaTable(str(self.folder))
        self.version = self.checkpointed = table.version()
        table.create_checkpoint()
        if durable:
            sync_all([*logs.glob(f"{self.version:020d}.checkpoint*"), *logs.glob("_last_checkpoint")])
        faults.step("delta-checkpointed")
        horizon = time.time() - grace_s
        for path in logs.iterdir():
            match = _ANY_VERSION.fullmatch(path.name)
            if match and int(match[1]) < self.version and path.stat().st_mtime <= horizon:
                path.unlink(missing_ok=True)

    @property
    def checkpoint_due(self) -> bool:
        return self.version - self.checkpointed >= CHECKPOINT_EVERY

    def _entry(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"


_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "1000000",
    "delta.deletedFileRetentionDuration": TOMBSTONES,
}


def _versions(logs: Path, pattern: re.Pattern[str]) -> list[int]:
    names = logs.iterdir() if logs.is_dir() else []
    return sorted(int(match[1]) for path in names if (match := pattern.fullmatch(path.name)))


def _drop_torn_entries(logs: Path, checkpointed: int) -> None:
    """Delete what a power cut left unfinished, and all behind it: entries are not fsynced, records are."""
    whole = True
    for count, version in enumerate(v for v in _versions(logs, _ENTRY) if v > checkpointed):
        path = logs / f"{version:020d}.json"
        whole = whole and version == checkpointed + 1 + count and _is_whole(path)
        if not whole:
            path.unlink()


def _is_whole(path: Path) -> bool:
    try:
        return bool([json.loads(line) for line in path.read_bytes().splitlines()])
    except ValueError:
        return False


def delta_stats(entry: FileEntry, schema: pa.Schema) -> dict[str, Any]:
    """A bucket's bounds as Delta's `stats` want them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, (least, greatest, null_count) in entry.stats.items():
        nulls[name] = null_count
        if least is not None and greatest is not None:
            kind = schema.field(name).type
            bounds = _delta_value(least, kind), _delta_value(greatest, kind)
            if None not in bounds:
                low[name], high[name] = bounds
    return {"numRecords": entry.rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _delta_value(value: float | int, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        text = str(column_at(np.array([value]), kind).cast(pa.string())[0]).replace(" ", "T")
        return text if _FOUR_DIGITS.match(text) else None  # readers know the years 0000 to 9999
    if pa.types.is_decimal(kind):
        # Delta wants a bare number; a double holds its 15 digits exactly, more could round past the bound.
        number = float(value) / 10**kind.scale
        return number if abs(value) < 10**15 and math.isfinite(number) else None
    return value
