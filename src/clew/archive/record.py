"""What an epoch record says, and what all records together say.

A record is a change: files added and removed per folder, numbers used up, names of what was made beside.
`State` is the fold of all records; a base is a `State` written down, so that opening reads few files.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from clew.archive.layout import KINDS, Kind
from clew.errors import StoreError, UnknownStream, nearest

Json = dict[str, Any]
RECENT_EPOCHS = 200


def now() -> str:
    """This instant, as records write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class FileEntry:
    """A bucket: one Parquet file of a stream or table, and what is known of it without opening it.

    `stats` maps a column to [least, greatest, nulls]; values are points of the column's axis (`model.axis`),
    so timestamps are microseconds. A column is missing where its bounds are not known or not finite.
    """

    path: str
    rows: int
    bytes: int
    stats: Mapping[str, tuple[float | int | None, float | int | None, int]]

    def to_json(self) -> Json:
        return {"path": self.path, "rows": self.rows, "bytes": self.bytes,
                "stats": {name: list(bounds) for name, bounds in self.stats.items()}}  # fmt: skip

    @staticmethod
    def from_json(data: Json) -> FileEntry:
        stats = {name: (low, high, nulls) for name, (low, high, nulls) in data["stats"].items()}
        return FileEntry(data["path"], data["rows"], data["bytes"], stats)

    def overlaps(self, column: str, low: float | None, high: float | None) -> bool:
        """Whether a row with `low <= column <= high` can be in it (None: no bound)."""
        bounds = self.stats.get(column)
        if bounds is None:
            return True
        least, greatest, _ = bounds
        if least is None or greatest is None:  # nothing but nulls
            return low is None and high is None
        return (low is None or greatest >= low) and (high is None or least <= high)


@dataclass(frozen=True)
class Merge:
    """Adjacent buckets made into one that holds the same rows in the same order."""

    remove: tuple[str, ...]
    add: FileEntry


@dataclass
class FolderChange:
    """What one epoch changes in one stream or table.

    `add` come behind what is there, `remove` are rows that are no more, `age_out` are buckets past the
    retention, `merges` change no row. `seq` is the last number used; `meta` is the engine's own and is merged
    into what the state has. `schema` and `order` are given once, with the folder's first change.
    """

    add: list[FileEntry] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    age_out: list[str] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    seq: int | None = None
    schema: pa.Schema | None = None
    order: str | None = None
    meta: Json = field(default_factory=dict)

    @property
    def changes_files(self) -> bool:
        return bool(self.add or self.remove or self.age_out or self.merges)

    def removed(self) -> list[str]:
        """All paths that are not live any more."""
        return [*self.remove, *self.age_out, *(path for merge in self.merges for path in merge.remove)]

    def added(self) -> list[FileEntry]:
        return [*self.add, *(merge.add for merge in self.merges)]

    def to_json(self) -> Json:
        full: Json = {
            "add": [entry.to_json() for entry in self.add],
            "remove": self.remove,
            "age_out": self.age_out,
            "merges": [{"remove": list(m.remove), "add": m.add.to_json()} for m in self.merges],
            "seq": self.seq,
            "schema": None if self.schema is None else schema_to_text(self.schema),
            "order": self.order,
            "meta": self.meta,
        }
        return {key: value for key, value in full.items() if value not in (None, [], {})}

    @staticmethod
    def from_json(data: Json) -> FolderChange:
        return FolderChange(
            add=[FileEntry.from_json(entry) for entry in data.get("add", ())],
            remove=list(data.get("remove", ())),
            age_out=list(data.get("age_out", ())),
            merges=[Merge(tuple(m["remove"]), FileEntry.from_json(m["add"])) for m in data.get("merges", ())],
            seq=data.get("seq"),
            schema=schema_from_text(data["schema"]) if "schema" in data else None,
            order=data.get("order"),
            meta=dict(data.get("meta", {})),
        )


@dataclass
class EpochRecord:
    """One epoch, as the engine hands it to `Store.commit`.

    Free-form parts belong to the engine: `sources`, `offsets`, `settings` are merged into the state's by key,
    `network` replaces it where given, `boxes` (measures of this epoch) are kept for the newest 200 epochs,
    `advances` until the next checkpoint. `query` is (query id, batch id), `id` the caller's name of the batch.
    """

    epoch: int
    stamp: int = 0
    id: str | None = None
    query: tuple[str, int] | None = None
    streams: dict[str, FolderChange] = field(default_factory=dict)
    tables: dict[str, FolderChange] = field(default_factory=dict)
    checkpoint: str | None = None
    advances: list[Json] = field(default_factory=list)
    sources: Json = field(default_factory=dict)
    offsets: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    network: Json | None = None
    boxes: dict[str, Json] = field(default_factory=dict)
    created_at: str = field(default_factory=now)

    def folder(self, kind: Kind, name: str) -> FolderChange:
        """The change of one folder, made if there is none yet."""
        return self.folders(kind).setdefault(name, FolderChange())

    def folders(self, kind: Kind) -> dict[str, FolderChange]:
        return self.streams if kind == "streams" else self.tables

    def to_json(self) -> Json:
        return {
            "epoch": self.epoch,
            "created_at": self.created_at,
            "id": self.id,
            "query": None if self.query is None else {"id": self.query[0], "batch": self.query[1]},
            "stamp": self.stamp,
            "streams": {name: change.to_json() for name, change in self.streams.items()},
            "tables": {name: change.to_json() for name, change in self.tables.items()},
            "checkpoint": self.checkpoint,
            "advances": self.advances,
            "sources": self.sources,
            "offsets": self.offsets,
            "settings": self.settings,
            "network": self.network,
            "boxes": self.boxes,
        }

    @staticmethod
    def from_json(data: Json) -> EpochRecord:
        query = data["query"]
        return EpochRecord(
            epoch=data["epoch"],
            stamp=data["stamp"],
            id=data["id"],
            query=None if query is None else (query["id"], query["batch"]),
            streams={name: FolderChange.from_json(change) for name, change in data["streams"].items()},
            tables={name: FolderChange.from_json(change) for name, change in data["tables"].items()},
            checkpoint=data["checkpoint"],
            advances=data["advances"],
            sources=data["sources"],
            offsets=data["offsets"],
            settings=data["settings"],
            network=data["network"],
            boxes=data["boxes"],
            created_at=data["created_at"],
        )


@dataclass
class Gone:
    """What has aged out of a stream: seqs and stamps up to these, all orders up to `order`, since `epoch`."""

    rows: int
    seq: int | None
    stamp: int | None
    order: float | int | None
    epoch: int


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
            self.gone = _gone(self, [self.files[path] for path in change.age_out], epoch)
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
            "gone": None if self.gone is None else vars(self.gone),
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
            gone=None if data["gone"] is None else Gone(**data["gone"]),
            epoch=data["epoch"],
        )


def _gone(folder: Folder, entries: list[FileEntry], epoch: int) -> Gone:
    old = folder.gone

    def greatest(column: str | None, before: float | int | None) -> Any:
        bounds = [entry.stats[column][1] for entry in entries if column is not None and column in entry.stats]
        known = [value for value in (*bounds, before) if value is not None]
        return max(known, default=None)

    return Gone(
        rows=sum(entry.rows for entry in entries) + (old.rows if old else 0),
        seq=greatest("_seq", old.seq if old else None),
        stamp=greatest("_stamp", old.stamp if old else None),
        order=greatest(folder.order, old.order if old else None),
        epoch=epoch,
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
    """The fold of all epoch records: what is in the store as of `epoch`."""

    epoch: int = 0
    stamp: int = 0
    streams: dict[str, Folder] = field(default_factory=dict)
    tables: dict[str, Folder] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    queries: dict[str, int] = field(default_factory=dict)
    checkpoints: list[str] = field(default_factory=list)
    advances: list[Json] = field(default_factory=list)
    sources: Json = field(default_factory=dict)
    offsets: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    network: Json | None = None
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
            self.advances = []
        else:
            self.advances += [{"epoch": record.epoch, **advance} for advance in record.advances]
        self.sources |= record.sources
        self.offsets |= record.offsets
        self.settings |= record.settings
        self.network = self.network if record.network is None else record.network
        summary = {key: getattr(record, key) for key in ("epoch", "created_at", "id", "stamp", "checkpoint", "boxes")}
        self.recent = [*self.recent[-(RECENT_EPOCHS - 1) :], summary]

    def to_json(self) -> Json:
        data = dict(vars(self))
        for kind in KINDS:
            data[kind] = {name: folder.to_json() for name, folder in self.folders(kind).items()}
        data["doomed"] = [vars(doomed) for doomed in self.doomed]
        return data

    @staticmethod
    def from_json(data: Json) -> State:
        data = dict(data)
        for kind in KINDS:
            data[kind] = {name: Folder.from_json(folder) for name, folder in data[kind].items()}
        data["doomed"] = [Doomed(**doomed) for doomed in data["doomed"]]
        return State(**data)


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def encode(data: Json) -> bytes:
    """One line of JSON and one with its checksum, so that a torn file is known as such."""
    body = json.dumps(data, separators=(",", ":"), default=_plain).encode()
    return body + b'\n{"crc32":%d}\n' % zlib.crc32(body)


def decode(data: bytes, path: Path) -> Json:
    """The inverse of `encode`; `StoreError` that names `path` if the file is not whole."""
    body, _, tail = data.partition(b"\n")
    try:
        if json.loads(tail)["crc32"] != zlib.crc32(body):
            raise ValueError("its checksum does not match")
        found = json.loads(body)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            "the store has a damaged file",
            details=[f"file: {path}", f"cause: {error}"],
            hint="restore the file from a backup; clew changes nothing in a store it cannot read",
        ) from error
    if not isinstance(found, dict):
        raise StoreError("the store has a damaged file", details=[f"file: {path}"])
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # NumPy's and Arrow's numbers
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot stand in an epoch record")
