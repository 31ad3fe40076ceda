"""`clew-store.json`: what makes a folder a store, in which format, under which pinned settings."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from clew.archive.disk import sync_folder, write_new, writing
from clew.archive.layout import FORMAT, MANIFEST, Layout, is_temporary
from clew.archive.record import Json, now
from clew.errors import NotAStore, StoreError, StoreSettings, StoreVersion

#: how a store of an older format becomes one of the next; format 1 is the first
UPGRADES: dict[int, Callable[[Layout, Json], Json]] = {}
_OWN = {"_lock", "_epochs", "streams", "tables", "checkpoints", "cache", "_streaming"}


def write_manifest(layout: Layout, settings: Mapping[str, Any], *, durable: bool) -> Json:
    """Make the folder a store; the caller holds its lock."""
    manifest = {
        "format": FORMAT,
        "clew": clew_version(),
        "id": uuid.uuid4().hex,
        "created_at": now(),
        "settings": dict(settings),
    }
    with writing("a new store", layout.manifest):
        layout.epochs.mkdir(exist_ok=True)
        write_new(layout.manifest, json.dumps(manifest, indent=2).encode() + b"\n", durable=durable)
        if durable:
            sync_folder(layout.root)
    return manifest


def read_manifest(layout: Layout) -> Json:
    """The manifest of a store this clew can read; else an error, and nothing is touched."""
    if not layout.manifest.is_file():
        raise NotAStore(
            f"'{layout.root}' is not a clew store",
            details=[f"it has no {layout.manifest.name}" if layout.root.exists() else "there is no such folder"],
            hint="give the folder of a store, or a new or empty one to make one",
        )
    try:
        manifest = json.loads(layout.manifest.read_bytes())
        found = int(manifest["format"])
        writer, _ = str(manifest["clew"]), dict(manifest["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            "the store has a damaged file", details=[f"file: {layout.manifest}", f"cause: {error!r}"]
        ) from error
    if found > FORMAT:
        raise StoreVersion(
            f"store '{layout.root}' has format {found}, this clew reads format {FORMAT}",
            details=[f"written by: clew {writer}", f"this is: clew {clew_version()}"],
            hint=f"upgrade clew to {writer} or newer; the store is untouched",
        )
    if found < FORMAT and not all(step in UPGRADES for step in range(found, FORMAT)):
        raise StoreVersion(
            f"store '{layout.root}' has format {found}, which this clew cannot upgrade to {FORMAT}",
            details=[f"written by: clew {writer}", f"this is: clew {clew_version()}"],
            hint=f"read it with clew {writer}; the store is untouched",
        )
    return dict(manifest)


def upgrade(layout: Layout, manifest: Json) -> Json:
    """Bring an older store to this format, step by step; the caller holds its lock."""
    while manifest["format"] < FORMAT:
        manifest = UPGRADES[manifest["format"]](layout, manifest)
    return manifest


def check_settings(root: Path, pinned: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """`StoreSettings` if a pinned setting is asked for with another value."""
    wrong = [key for key, value in asked.items() if key in pinned and pinned[key] != value]
    if wrong:
        raise StoreSettings(
            f"store '{root}' was made with other settings",
            details=[f"{key}: {pinned[key]!r} in the store, {asked[key]!r} asked for" for key in wrong],
            hint="open it with the store's settings, or make a new store",
        )


def check_free(root: Path) -> None:
    """`NotAStore` unless a store can be made here: no such folder, an empty one, or one left half made."""
    if not root.exists():
        return
    if not root.is_dir():
        raise NotAStore(f"'{root}' is a file, not a folder")
    if (root / MANIFEST).exists():
        raise StoreError(f"'{root}' is a store already", hint="open it")
    if any((root / "_epochs").glob("*.json")) or followed_streams(Layout(root)):
        raise StoreError(
            f"'{root}' is a store that has lost its {MANIFEST}",
            details=["it holds epochs, but not the settings that they were made under"],
            hint=f"restore {MANIFEST} from a backup; nothing was touched",
        )
    others = sorted(p.name for p in root.iterdir() if p.name not in _OWN and not is_temporary(p.name))
    if others:
        raise NotAStore(
            f"'{root}' holds something else",
            details=[f"found: {', '.join(others[:5])}{', ...' if len(others) > 5 else ''}"],
            hint="give a new or empty folder",
        )


def followed_streams(layout: Layout) -> list[str]:
    """The folders of streams that have a Delta log, which follows the commit of an epoch."""
    return sorted({path.parent.parent.name for path in layout.root.glob("streams/*/_delta_log/*.json")})


def clew_version() -> str:
    try:
        return version("clew")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0+unknown"
