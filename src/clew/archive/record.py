"""What an epoch record says: files added and removed per folder, numbers used up, names of what was made beside."""

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

from clew.archive.layout import Kind
from clew.errors import StoreError

Json = dict[str, Any]


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

    def has_null(self, column: str) -> bool:
        """Whether a null can be in the column."""
        bounds = self.stats.get(column)
        return bounds is None or bounds[2] > 0

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


@dataclass(frozen=True)
class Pruned:
    """A bucket of which some rows go: `add` holds those that stay; None if none do.

    `seq` and `stamp` are the first and the last of what goes; rows that stay can lie between.
    """

    remove: str
    add: FileEntry | None
    rows: int
    seq: tuple[int, int]
    stamp: tuple[int, int]
    order: tuple[Any, Any]
    epoch: int  # in which the oldest of what goes came in

    def to_json(self) -> Json:
        return {**vars(self), "add": None if self.add is None else self.add.to_json()}

    @staticmethod
    def from_json(data: Json) -> Pruned:
        ends = {name: (data[name][0], data[name][1]) for name in ("seq", "stamp", "order")}
        add = None if data["add"] is None else FileEntry.from_json(data["add"])
        return Pruned(**{**data, **ends, "add": add})


@dataclass
class FolderChange:
    """What one epoch changes in one stream or table.

    `add` come behind what is there, `remove` are rows that are no more, `age_out` are buckets past the
    retention, `prune` those of which rows go wherever they stand, `merges` change no row. `seq` is the last number
    used; `meta` is the engine's own and is merged into what the state has. `schema` and `order` are given once, with
    the folder's first change.
    """

    add: list[FileEntry] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    age_out: list[str] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    prune: list[Pruned] = field(default_factory=list)
    seq: int | None = None
    schema: pa.Schema | None = None
    order: str | None = None
    meta: Json = field(default_factory=dict)

    @property
    def changes_files(self) -> bool:
        return bool(self.add or self.remove or self.age_out or self.merges or self.prune)

    def removed(self) -> list[str]:
        """All paths that are not live any more."""
        merged = (path for merge in self.merges for path in merge.remove)
        return [*self.remove, *self.age_out, *merged, *(p.remove for p in self.prune)]

    def added(self) -> list[FileEntry]:
        """All buckets that are new."""
        return [*self.add, *self.rewritten()]

    def rewritten(self) -> list[FileEntry]:
        """The new buckets in which no row is new."""
        return [*(merge.add for merge in self.merges), *(p.add for p in self.prune if p.add is not None)]

    def to_json(self) -> Json:
        full: Json = {
            "add": [entry.to_json() for entry in self.add],
            "remove": self.remove,
            "age_out": self.age_out,
            "merges": [{"remove": list(m.remove), "add": m.add.to_json()} for m in self.merges],
            "prune": [p.to_json() for p in self.prune],
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
            prune=[Pruned.from_json(p) for p in data.get("prune", ())],
            seq=data.get("seq"),
            schema=schema_from_text(data["schema"]) if "schema" in data else None,
            order=data.get("order"),
            meta=dict(data.get("meta", {})),
        )


@dataclass
class EpochRecord:
    """One epoch, as the engine hands it to `Store.commit`.

    Free-form parts belong to the engine: `sources` are merged into the state's by key, `network` replaces it where
    given, `boxes` (measures of this epoch) are kept for the newest 200 epochs. `lineage` says in which `modes` the
    epoch ran, by mark from which to which stamp it `covers` what boxes did, and `rows` of that if they are few.
    `query` is (query id, batch id), `id` the caller's name of the batch.
    """

    epoch: int
    stamp: int = 0
    id: str | None = None
    query: tuple[str, int] | None = None
    streams: dict[str, FolderChange] = field(default_factory=dict)
    tables: dict[str, FolderChange] = field(default_factory=dict)
    checkpoint: str | None = None
    sources: Json = field(default_factory=dict)
    network: Json | None = None
    lineage: Json = field(default_factory=dict)
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
            "sources": self.sources,
            "network": self.network,
            "lineage": self.lineage,
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
            sources=data["sources"],
            network=data["network"],
            lineage=data.get("lineage", {}),
            boxes=data["boxes"],
            created_at=data["created_at"],
        )


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
