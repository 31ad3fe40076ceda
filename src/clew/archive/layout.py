"""What lies where in a store's folder, and what its files are called.

clew-store.json       format, who wrote it, pinned settings
_lock                 held by the one writer
_epochs/              the epoch records (`N.json`) and their foldings (`N.base.json`)
streams/NAME/         one Delta table per stored stream
tables/NAME/          clew's own tables: origins, rejected, late, pending, moves
checkpoints/          states of all boxes, each named in the epoch record that made it
_deliveries/          how far each receiver has been served
_streaming/           Spark's checkpoints; opaque
cache/                anything; may be deleted, and a writer does when it opens the store
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FORMAT = 1
MANIFEST = "clew-store.json"
Kind = Literal["streams", "tables"]
KINDS: tuple[Kind, ...] = ("streams", "tables")

_BUCKET = re.compile(r"bucket-[0-9a-f]{32}\.parquet")
_TEMPORARY = re.compile(r"\.clew-[0-9a-f]{32}\.tmp")
_RECORD = re.compile(r"(\d{12})\.json")
_BASE = re.compile(r"(\d{12})\.base\.json")
_IDS = re.compile(r"ids-(\d{12})\.json")
_CHECKPOINT = re.compile(r"(\d{12})-[0-9a-f]{8}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]|^[._-]")


@dataclass(frozen=True)
class Layout:
    """The paths of one store."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / MANIFEST

    @property
    def lock(self) -> Path:
        return self.root / "_lock"

    @property
    def epochs(self) -> Path:
        return self.root / "_epochs"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def deliveries(self) -> Path:
        return self.root / "_deliveries"

    @property
    def streaming(self) -> Path:
        return self.root / "_streaming"

    def folder(self, kind: Kind, name: str) -> Path:
        return self.root / kind / folder_name(name)

    def record(self, epoch: int) -> Path:
        return self.epochs / f"{epoch:012d}.json"

    def base(self, epoch: int) -> Path:
        return self.epochs / f"{epoch:012d}.base.json"


def folder_name(name: str) -> str:
    """A stream's or table's name as the name of its folder: readable, and safe on any file system.

    >>> folder_name("alarms"), folder_name("a/b"), folder_name("_x")
    ('alarms', 'a~2f~b', '~5f~x')
    """
    return _UNSAFE.sub(lambda match: f"~{ord(match[0]):x}~", name)


def new_bucket_name() -> str:
    """A name that no other attempt, task or process will choose."""
    return f"bucket-{uuid.uuid4().hex}.parquet"


def new_temporary_name() -> str:
    return f".clew-{uuid.uuid4().hex}.tmp"


def new_checkpoint_name(epoch: int) -> str:
    return f"{epoch:012d}-{uuid.uuid4().hex[:8]}"


def is_bucket(name: str) -> bool:
    return _BUCKET.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def record_epoch(name: str) -> int | None:
    """The epoch of a record's file name; None if it is no record."""
    match = _RECORD.fullmatch(name)
    return int(match[1]) if match else None


def base_epoch(name: str) -> int | None:
    """The epoch of a base's file name; None if it is no base."""
    match = _BASE.fullmatch(name)
    return int(match[1]) if match else None


def ids_epoch(name: str) -> int | None:
    """The epoch of a file of seen ids; None if it is none."""
    match = _IDS.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_epoch(name: str) -> int | None:
    """The epoch of a checkpoint's name; None if it is no checkpoint."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None
