"""The store: one folder that holds everything, and the commit that changes it.

    with Store.create("store", {"time_zone": "UTC"}) as store:
        record = store.begin(id="batch 1")
        record.folder("streams", "readings").add.append(store.write_bucket("streams", "readings", table))
        store.commit(record)
        store.read_table("readings")

A commit makes the buckets durable, then creates the epoch record: from there on the epoch is in the store, whole.
The Delta logs follow; one that cannot is named in `behind` and is brought up later.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from clew.archive import buckets, checkpoint, compaction, faults, retention
from clew.archive.delta import DeltaLog
from clew.archive.disk import sync_all, sync_folder, writing
from clew.archive.journal import Journal
from clew.archive.layout import KINDS, Kind, Layout
from clew.archive.lock import StoreLock
from clew.archive.manifest import (
    check_free,
    check_settings,
    followed_streams,
    read_manifest,
    upgrade,
    write_manifest,
)
from clew.archive.record import EpochRecord, FileEntry, FolderChange, Json
from clew.archive.state import Folder
from clew.errors import Fenced, StoreError, StoreFull, TooOld
from clew.model.axis import Number
from clew.model.rows import Bools

_FENCED = "another engine has committed to it"
_log = logging.getLogger("clew.archive")


class Store:
    """A store open in this process, for writing or for reading only.

    A reader takes no lock and stands at the epoch that was last when it was opened.
    """

    def __init__(
        self, layout: Layout, manifest: Json, lock: StoreLock | None, journal: Journal, grace_s: float
    ) -> None:
        self.layout = layout
        self.manifest = manifest
        self.grace_s = grace_s
        self.behind: dict[str, str] = {}
        self._lock = lock
        self._journal = journal
        self._logs: dict[str, DeltaLog] = {}
        self._unmerged: set[tuple[Kind, str]] = set()
        self._broken: str | None = None
        self.state = journal.load()

    @staticmethod
    def create(
        path: str | Path,
        settings: Mapping[str, Any] | None = None,
        *,
        durable: bool = True,
        grace_s: float = 300,
        fold_every: int | None = None,
    ) -> Store:
        """Make a store in a new or empty folder and open it for writing."""
        layout = Layout(Path(path))
        check_free(layout.root)
        with writing("a new store", layout.root):
            layout.root.mkdir(parents=True, exist_ok=True)
        lock = StoreLock(layout.lock)
        try:
            check_free(layout.root)
            manifest = write_manifest(layout, settings or {}, durable=durable)
            return Store(layout, manifest, lock, Journal(layout, durable=durable, fold_every=fold_every), grace_s)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def open(
        path: str | Path,
        settings: Mapping[str, Any] | None = None,
        *,
        read_only: bool = False,
        durable: bool = True,
        grace_s: float = 300,
        fold_every: int | None = None,
    ) -> Store:
        """Open a store; `settings` that differ from the pinned ones are refused.

        A writer takes the lock, sweeps what a crash left, and brings every Delta log to the last epoch.
        `durable=False` leaves out the waits for the disk: safe against a killed process, not against a power cut.
        """
        layout = Layout(Path(path))
        manifest = read_manifest(layout)
        check_settings(layout.root, manifest["settings"], settings or {})
        journal = Journal(layout, durable=durable, fold_every=fold_every)
        if read_only:
            reader = Store(layout, manifest, None, journal, grace_s)
            reader._check_records()
            return reader
        lock = StoreLock(layout.lock)
        try:
            store = Store(layout, upgrade(layout, manifest), lock, journal, grace_s)
            store._check_records()
            store._check_folders()
            store._sweep()
            store._follow_all()
            return store
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Let the store go; a second call does nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._broken = self._broken or "it is closed"

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is there ---

    @property
    def last_epoch(self) -> int:
        return self.state.epoch

    @property
    def settings(self) -> Json:
        """The settings pinned when the store was made."""
        return dict(self.manifest["settings"])

    def seen(self, id: str) -> int | None:
        """The epoch in which the batch that its caller named `id` was committed."""
        return self._journal.ids.find(id, self.state)

    def ids(self, prefix: str = "") -> dict[str, int]:
        """The ids of callers' batches that start with `prefix`, each with its epoch."""
        return self._journal.ids.starting(prefix, self.state)

    def seen_batch(self, query: str, batch: int) -> bool:
        """Whether a streaming query's batch, or a later one, was committed."""
        return batch <= self.state.queries.get(query, -1)

    def files(self, name: str, as_of: int | None = None, *, kind: Kind = "streams") -> list[FileEntry]:
        """The buckets of a stream or table in seq order; as of an epoch, those that can hold rows of it.

        `TooOld` if some that could have aged out.
        """
        folder = self.state.folder(kind, name)
        _check_as_of(name, folder, as_of)
        return [entry for entry in folder.files.values() if entry.overlaps("_epoch", None, as_of)]

    def path_of(self, name: str, entry: FileEntry | str, *, kind: Kind = "streams") -> Path:
        """Where a bucket lies."""
        return self.layout.folder(kind, name) / (entry if isinstance(entry, str) else entry.path)

    def check_there(self, name: str, entry: FileEntry, *, kind: Kind = "streams") -> None:
        """`StoreError` unless the bucket is there, as large as it was written."""
        buckets.check_there(self.layout.folder(kind, name), entry)

    def read_table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        ranges: buckets.Ranges | None = None,
        *,
        equals: Mapping[str, str] | None = None,
        or_null: Sequence[str] = (),
        as_of: int | None = None,
        kind: Kind = "streams",
    ) -> pa.Table:
        """The rows of a stream or table in seq order, those within `ranges` only, and with the texts of `equals`.

        Nulls lie within a range of a column of `or_null`, and in no other.

        `ranges` maps a column to (low, high), both inclusive or None, as points of the column's axis; buckets and
        row groups outside are not read. `as_of` keeps the rows that had come in by that epoch; `TooOld` if some of
        them have aged out since.
        """
        folder = self.state.folder(kind, name)
        _check_as_of(name, folder, as_of)
        if folder.schema is None:
            raise StoreError(f"{kind[:-1]} '{name}' has no schema yet")
        wanted = dict(ranges or {})
        if as_of is not None and "_epoch" in folder.schema.names:
            wanted["_epoch"] = (wanted.get("_epoch", (None, None))[0], as_of)
        entries = list(folder.files.values())
        return buckets.read_buckets(
            self.layout.folder(kind, name), entries, folder.schema, columns, wanted, equals, or_null
        )

    # --- an epoch ---

    def begin(self, *, id: str | None = None, query: tuple[str, int] | None = None) -> EpochRecord:
        """The next epoch's record, still empty."""
        return EpochRecord(epoch=self.state.epoch + 1, stamp=self.state.stamp, id=id, query=query)

    def write_bucket(self, kind: Kind, name: str, table: pa.Table) -> FileEntry:
        """Write a bucket; it is in the store once a committed record adds it."""
        self._check_writable()
        return buckets.write_bucket(self.layout.folder(kind, name), table)

    def compact(self, record: EpochRecord) -> int:
        """Merge small buckets where there are too many; the record says so. How many buckets were merged.

        One folder in sixteen an epoch, the worst first, so that no epoch pays for all of them. A folder whose buckets
        cannot be merged is left as it is until the store is opened again: it costs files, not the epoch.
        """
        self._check_writable()
        folders = [
            (kind, name, folder)
            for kind in KINDS
            for name, folder in self.state.folders(kind).items()
            if (kind, name) not in self._unmerged
        ]
        folders.sort(key=lambda item: -compaction.count_small(item[2]))
        merged = 0
        for kind, name, folder in folders[: 1 + len(folders) // 16]:
            change = record.folders(kind).get(name)
            for run in compaction.plan(folder, change.removed() if change else ()):
                try:
                    made = compaction.merge(self.layout.folder(kind, name), run)
                except StoreFull:
                    raise
                except (StoreError, pa.ArrowException) as error:
                    self._stop_if_fenced(record.epoch)  # another engine may have merged it away
                    self._unmerged.add((kind, name))
                    _log.warning("the buckets of %s '%s' cannot be merged: %s", kind[:-1], name, error)
                    break
                record.folder(kind, name).merges.append(made)
                merged += len(run)
        return merged

    def age_out_plan(
        self, name: str, keep_from: Number, record: EpochRecord | None = None, *, kind: Kind = "streams"
    ) -> list[str]:
        """The buckets that a retention from `keep_from` on lets go, for `FolderChange.age_out`.

        A bucket that `record` merges or removes already stays for a later epoch, and so do those behind it.
        """
        change = record.folders(kind).get(name) if record else None
        leave = change.removed() if change else ()
        return [entry.path for entry in retention.age_out_plan(self.state.folder(kind, name), keep_from, leave)]

    def prune(self, name: str, record: EpochRecord, behind: int, goes: Callable[[pa.Table], Bools]) -> int:
        """Let rows of a stream go with this epoch, of buckets that have some behind a stamp; how many go.

        `goes` says which of a bucket's rows do, by its columns seq, stamp, epoch and order. Those of a bucket in which
        they are fewer than the others stay for now.
        """
        self._check_writable()
        folder, change = self.state.folder("streams", name), record.folder("streams", name)
        leave, before = set(change.removed()), len(change.prune)
        for entry in folder.files.values():
            if entry.path not in leave and entry.overlaps("_stamp", behind + 1, None):
                part = retention.prune_bucket(self.layout.folder("streams", name), folder, entry, goes)
                change.prune += [] if part is None else [part]
        return sum(part.rows for part in change.prune[before:])

    def commit(self, record: EpochRecord) -> None:
        """Make the epoch durable, whole or not at all.

        A record that does not fit the state is refused as it stands. An error before the record is created leaves
        the store as it was and deletes the record's buckets. After one behind it, and after `Fenced` (another
        engine has taken the epoch), the store must be opened again.
        """
        self._check_writable()
        self._complete(record)
        faults.step("commit-begun")
        try:
            if self._journal.durable:
                self._sync(record)
            faults.step("buckets-synced")
            self._journal.create(record)
        except Fenced:
            self._broken = _FENCED
            self.discard(record)
            raise
        except BaseException as error:
            # An interrupt can strike between the record's creation and this line.
            if self.layout.record(record.epoch).exists():
                self._broken = f"its last commit was cut off by {type(error).__name__}"
            else:
                self.discard(record)
            raise
        try:
            self._journal.settle(record.epoch)
            self._take_in(record)
        except BaseException as error:
            self._broken = f"its last commit was cut off by {type(error).__name__}"
            raise

    def discard(self, record: EpochRecord) -> None:
        """Delete the buckets and the checkpoint of a record that will not be committed."""
        for kind in KINDS:
            for name, change in record.folders(kind).items():
                for entry in change.added():
                    self.path_of(name, entry, kind=kind).unlink(missing_ok=True)
        if record.checkpoint is not None:
            shutil.rmtree(self.layout.checkpoints / record.checkpoint, ignore_errors=True)

    def vacuum(self) -> None:
        """Delete removed files that are past the grace."""
        if self.state.doomed:
            self.state.doomed = retention.delete_doomed(
                self.state.doomed, lambda item: self.layout.folder(item.kind, item.name) / item.path, self.grace_s
            )

    # --- checkpoints ---

    def write_checkpoint(self, epoch: int, tables: checkpoint.Tables, meta: Json) -> str:
        """Write the states of all boxes as of `epoch`; the name goes into the record as `checkpoint`."""
        self._check_writable()
        return checkpoint.write_checkpoint(self.layout.checkpoints, epoch, tables, meta, durable=self._journal.durable)

    def read_checkpoint(self, name: str) -> tuple[dict[str, dict[str, pa.Table]], Json]:
        """What `write_checkpoint` was given; `StoreError` that names the file if it is not whole."""
        return checkpoint.read_checkpoint(self.layout.checkpoints, name)

    def drop_checkpoints(self, before: int) -> list[str]:
        """Delete the checkpoints of epochs below `before`, never the newest; their names."""
        self._check_writable()
        dropped = checkpoint.drop_checkpoints(self.layout.checkpoints, self.state.checkpoints, before)
        self.state.checkpoints = [name for name in self.state.checkpoints if name not in dropped]
        return dropped

    # --- inside ---

    def _stop_if_fenced(self, epoch: int) -> None:
        try:
            self._journal.check_not_fenced(epoch)
        except Fenced:
            self._broken = _FENCED
            raise

    def _check_writable(self) -> None:
        if self._broken:
            raise StoreError(f"store '{self.layout.root}' takes no more epochs: {self._broken}", hint="open it again")
        if self._lock is None:
            raise StoreError(f"store '{self.layout.root}' is open for reading only")

    def _complete(self, record: EpochRecord) -> None:
        """Check a record against the state before anything of it is durable; fill in schemas."""
        if record.epoch != self.state.epoch + 1:
            raise StoreError(f"epoch {record.epoch} does not follow epoch {self.state.epoch}")
        for kind in KINDS:
            for name, change in record.folders(kind).items():
                folder = self.state.folders(kind).get(name)
                live = folder.files if folder else {}
                unknown = [path for path in change.removed() if path not in live]
                twice = len(change.removed()) != len(set(change.removed()))
                if unknown or twice:
                    raise StoreError(
                        f"epoch {record.epoch} removes buckets of {kind[:-1]} '{name}' that are not there",
                        details=[f"buckets: {', '.join(unknown or change.removed())}"],
                    )
                self._complete_schema(kind, name, change, folder.schema if folder else None)

    def _complete_schema(self, kind: Kind, name: str, change: FolderChange, known: pa.Schema | None) -> None:
        if known is None and change.schema is None and change.add:
            change.schema = pq.read_schema(self.path_of(name, change.add[0], kind=kind))
        if known is not None and change.schema is not None:
            if not change.schema.equals(known):
                raise StoreError(
                    f"{kind[:-1]} '{name}' has another schema in the store",
                    details=[
                        f"in the store: {', '.join(map(str, known))}",
                        f"given: {', '.join(map(str, change.schema))}",
                    ],
                )
            change.schema = None
        if kind == "streams" and known is None and change.schema is None:
            raise StoreError(f"stream '{name}' is new and has neither a schema nor rows")

    def _sync(self, record: EpochRecord) -> None:
        paths = []
        for kind in KINDS:
            for name, change in record.folders(kind).items():
                paths += [self.path_of(name, entry, kind=kind) for entry in change.added()]
                if name not in self.state.folders(kind) and change.added():
                    sync_folder(self.layout.root / kind)
                    sync_folder(self.layout.root)
        with writing("the buckets of an epoch", self.layout.root):
            sync_all(paths)

    def _take_in(self, record: EpochRecord) -> None:
        """What follows a commit. What fails here is only late: it is logged and tried again with the next epoch."""
        removed = {
            name: [(path, self.state.streams[name].files[path].bytes) for path in change.removed()]
            for name, change in record.streams.items()
            if change.removed()
        }
        self.state.apply(record)
        for name in [n for n in self.state.streams if n in record.streams or n in self.behind]:
            faults.step("delta-written")
            change = record.streams.get(name, FolderChange())
            with self._late(name):
                self._follow(name, change, removed.get(name, []))
        faults.step("delta-followed")
        due = [name for name, log in self._logs.items() if log.checkpoint_due and name not in self.behind]
        for name in due[: 1 + len(due) // 16]:
            with self._late(name):
                self._logs[name].checkpoint(self.grace_s, durable=self._journal.durable)
        with self._late("epoch records"):
            self.vacuum()
            if self._journal.fold_due(record.epoch):
                self._journal.fold(self.state)

    @contextlib.contextmanager
    def _late(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, DeltaError, StoreError) as error:
            if name not in self.behind:
                _log.warning("'%s' could not follow epoch %d: %s", name, self.state.epoch, error)
            self.behind[name] = str(error)
        else:
            self.behind.pop(name, None)

    def _follow(self, name: str, change: FolderChange, removed: list[tuple[str, int]]) -> None:
        """Bring one Delta log to the epoch just committed."""
        folder, log = self.state.streams[name], self._logs.get(name)
        if log is None or name in self.behind:
            self._logs[name] = self._open_log(name)
        elif change.changes_files:
            quiet = {*(path for m in change.merges for path in m.remove), *(e.path for e in change.rewritten())}
            log.commit(folder.epoch, folder.schema, change.added(), removed, quiet)

    def _open_log(self, name: str) -> DeltaLog:
        folder = self.state.streams[name]
        return DeltaLog.open(self.layout.folder("streams", name), folder.schema, folder.files, folder.epoch)

    def _follow_all(self) -> None:
        for name in self.state.streams:
            with self._late(name):
                self._logs[name] = self._open_log(name)

    def _check_records(self) -> None:
        """Refuse a store whose epoch records are all gone: what they named would be swept as a crash's."""
        if self.state.epoch or not (followed := followed_streams(self.layout)):
            return
        if any(self.layout.epochs.glob("*.json")):  # a reader was opened before the first epoch, and it came
            return
        raise StoreError(
            "the store has lost its epoch records",
            details=[
                f"folder: {self.layout.epochs}",
                f"streams whose Delta logs follow them: {', '.join(followed)}",
            ],
            hint=f"restore {self.layout.epochs.name} from a backup; nothing was touched",
        )

    def _check_folders(self) -> None:
        """Refuse a store in which the newest bucket of a stream or table is gone, and with it most often its folder."""
        for kind in KINDS:
            for name, folder in self.state.folders(kind).items():
                newest = next(reversed(folder.files), None)
                if newest is not None and not self.path_of(name, newest, kind=kind).exists():
                    raise StoreError(
                        f"the store has lost files of {kind[:-1]} '{name}'",
                        details=[f"not there: {self.path_of(name, newest, kind=kind)}"],
                        hint="restore its folder from a backup; nothing was touched",
                    )

    def _sweep(self) -> None:
        retention.sweep(self.layout, self.state)
        self.vacuum()


def _check_as_of(name: str, folder: Folder, as_of: int | None) -> None:
    """Refuse an epoch of which the stream had rows that have aged out since."""
    gone = folder.gone
    if as_of is not None and gone is not None and (gone.first or 1) <= as_of < gone.epoch:
        so_many = f"{gone.rows:,} tuples, up to seq {gone.seq}, the last of them in epoch {gone.epoch}"
        raise TooOld(
            f"stream '{name}' cannot be read as of epoch {as_of}: tuples that it had then have {gone.went}",
            details=[f"{gone.went.removeprefix('been ')}: {so_many}"],
            hint=f"the oldest epoch that can still be read is {gone.epoch}",
        )
