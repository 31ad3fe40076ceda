"""What all epoch records together say: the fold of the journal.

A base is a `State` written down, so that opening reads few files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

import pyarrow as pa

from clew.archive.gone import Gone, aged, pruned
from clew.archive.layout import KINDS, Kind
from clew.archive.record import (
    EpochRecord,
    FileEntry,
    FolderChange,
    Json,
    Merge,
    schema_from_text,
    schema_to_text,
)
from clew.errors import UnknownStream, nearest

RECENT_EPOCHS = 200


@dataclass
class Folder:
    """One stream or table as of the last epoch. `files` are in seq order; `epoch` last changed them."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    seq: int = 0
    schema: pa.Schema | None = None
    order: str | None = None
    meta: Json = field(default_factory=dict)
    gone: Gone | None = None
    epoch: int = 0

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.files.values())

    def apply(self, change: FolderChange, epoch: int) -> None:
        for merge in change.merges:
            self._merge(merge)
        if change.age_out:
            self.gone = aged(self.gone, [self.files[path] for path in change.age_out], self.order, epoch)
        if change.prune:
            self.gone = pruned(self.gone, change.prune, epoch)
            self._replace({p.remove: p.add for p in change.prune})
        for path in (*change.remove, *change.age_out):
            del self.files[path]
        for entry in change.add:
            self.files[entry.path] = entry
        if change.changes_files:
            self.epoch = epoch
        self.seq = self.seq if change.seq is None else change.seq
        self.schema = self.schema if change.schema is None else change.schema
        self.order = self.order if change.order is None else change.order
        self.meta |= change.meta

    def _replace(self, instead: Mapping[str, FileEntry | None]) -> None:
        files = [instead.get(path, entry) for path, entry in self.files.items()]
        self.files = {entry.path: entry for entry in files if entry is not None}

    def _merge(self, merge: Merge) -> None:
        removed, files = set(merge.remove), {}
        for path, entry in self.files.items():
            if path == merge.remove[0]:
                files[merge.add.path] = merge.add
            if path not in removed:
                files[path] = entry
        self.files = files

    def to_json(self) -> Json:
        return {
            "files": [entry.to_json() for entry in self.files.values()],
            "seq": self.seq,
            "schema": None if self.schema is None else schema_to_text(self.schema),
            "order": self.order,
            "meta": self.meta,
            "gone": None if self.gone is None else self.gone.to_json(),
            "epoch": self.epoch,
        }

    @staticmethod
    def from_json(data: Json) -> Folder:
        return Folder(
            files={entry["path"]: FileEntry.from_json(entry) for entry in data["files"]},
            seq=data["seq"],
            schema=None if data["schema"] is None else schema_from_text(data["schema"]),
            order=data["order"],
            meta=data["meta"],
            gone=None if data["gone"] is None else Gone.from_json(data["gone"]),
            epoch=data["epoch"],
        )


@dataclass(frozen=True)
class Doomed:
    """A file that no record names any more, and since when (seconds since 1970)."""

    kind: Kind
    name: str
    path: str
    since: float


@dataclass
class State:
    """The fold of all epoch records: what is in the store as of `epoch`.

    `ids` are those since the last base, `Store.seen` knows all. `recent` has for each of the newest epochs what was
    measured.
    """

    epoch: int = 0
    stamp: int = 0
    streams: dict[str, Folder] = field(default_factory=dict)
    tables: dict[str, Folder] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    id_segments: dict[str, int] = field(default_factory=dict)
    queries: dict[str, int] = field(default_factory=dict)
    checkpoints: list[str] = field(default_factory=list)
    sources: Json = field(default_factory=dict)
    network: Json | None = None
    lineage: Json = field(default_factory=dict)
    recent: list[Json] = field(default_factory=list)
    doomed: list[Doomed] = field(default_factory=list)

    def folders(self, kind: Kind) -> dict[str, Folder]:
        return self.streams if kind == "streams" else self.tables

    def folder(self, kind: Kind, name: str) -> Folder:
        """A folder that is there; `UnknownStream` if it is not."""
        known = self.folders(kind)
        if name not in known:
            raise UnknownStream(
                f"the store has no {kind[:-1]} '{name}'",
                details=[f"{kind}: {', '.join(sorted(known)) or 'none'}"],
                hint=nearest(name, known),
            )
        return known[name]

    @property
    def checkpoint(self) -> str | None:
        """The newest checkpoint's name."""
        return self.checkpoints[-1] if self.checkpoints else None

    def apply(self, record: EpochRecord) -> None:
        """Take one record in; it must be the next."""
        self.epoch, self.stamp = record.epoch, max(self.stamp, record.stamp)
        removed_at = datetime.fromisoformat(record.created_at).timestamp()
        for kind in KINDS:
            for name, change in record.folders(kind).items():
                self.folders(kind).setdefault(name, Folder()).apply(change, record.epoch)
                self.doomed += [Doomed(kind, name, path, removed_at) for path in change.removed()]
        if record.id is not None:
            self.ids[record.id] = record.epoch
        if record.query is not None:
            self.queries[record.query[0]] = record.query[1]
        if record.checkpoint is not None:
            self.checkpoints.append(record.checkpoint)
        self.sources |= record.sources
        self.network = self.network if record.network is None else record.network
        self._take_lineage(record)
        summary = {key: getattr(record, key) for key in ("epoch", "created_at", "id", "stamp", "checkpoint", "boxes")}
        self.recent = [*self.recent[-(RECENT_EPOCHS - 1) :], summary]

    def _take_lineage(self, record: EpochRecord) -> None:
        """Modes as [epoch from which on, modes], where they change; ranges of stamps joined where they meet.

        `rows` are few rows of the origin index, held here until a bucket is worth it (`flushed`).
        """
        if record.lineage.get("flushed"):
            self.lineage["rows"] = []
        self.lineage.setdefault("rows", []).extend(record.lineage.get("rows", []))
        modes, covered = record.lineage.get("modes"), record.lineage.get("covers", {})
        told = self.lineage.setdefault("modes", [])
        if modes is not None and (not told or told[-1][1] != modes):
            told.append([record.epoch, modes])
        ranges = self.lineage.setdefault("covers", {})
        for mark, (low, high) in covered.items():
            known = ranges.setdefault(mark, [])
            if known and known[-1][1] + 1 >= low:
                known[-1][1] = max(known[-1][1], high)
            else:
                known.append([low, high])

    def to_json(self) -> Json:
        data = dict(vars(self))
        for kind in KINDS:
            data[kind] = {name: folder.to_json() for name, folder in self.folders(kind).items()}
        data["doomed"] = [vars(doomed) for doomed in self.doomed]
        return data

    @staticmethod
    def from_json(data: Json) -> State:
        data = {name: value for name, value in data.items() if name in _PARTS}  # an earlier clew wrote more
        for kind in KINDS:
            data[kind] = {name: Folder.from_json(folder) for name, folder in data[kind].items()}
        data["doomed"] = [Doomed(**doomed) for doomed in data["doomed"]]
        return State(**data)


_PARTS = frozenset(part.name for part in fields(State))
