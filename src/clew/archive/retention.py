"""Retention: whole buckets leave at the old end, or what is not needed wherever it stands.

Removed files leave the disk when nobody can need them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from clew.archive import buckets, faults
from clew.archive.layout import KINDS, Kind, Layout, checkpoint_epoch, is_bucket, is_temporary
from clew.archive.record import FileEntry, Pruned
from clew.archive.state import Doomed, Folder, State
from clew.model.axis import Number, axis_of
from clew.model.rows import Bools


def age_out_plan(folder: Folder, keep_from: Number, leave: Iterable[str] = ()) -> list[FileEntry]:
    """The buckets at the old end of a stream in which every row's order is below `keep_from`.

    It stops at the first bucket that must stay, or is in `leave`, so what is left is one unbroken run of seqs.
    """
    plan: list[FileEntry] = []
    kept = set(leave)
    if folder.order is None:
        return plan
    for entry in folder.files.values():
        if entry.path in kept or entry.overlaps(folder.order, keep_from, None):
            break
        plan.append(entry)
    return plan


def prune_bucket(place: Path, folder: Folder, entry: FileEntry, goes: Callable[[pa.Table], Bools]) -> Pruned | None:
    """A bucket without the rows that go; None where they are less than half of it: then all stay.

    So a row is written again at most once for each row that goes. `goes` is given seq, stamp, epoch and order.
    """
    assert folder.order is not None
    assert folder.schema is not None
    names = ["_seq", "_stamp", "_epoch", folder.order]
    table = buckets.read_buckets(place, [entry], folder.schema, names)
    mask = goes(table)
    if not mask.any() or 2 * int(mask.sum()) < len(mask):
        return None
    gone = table.filter(pa.array(mask))
    seq, stamp, epoch = (np.asarray(gone.column(name)) for name in names[:3])
    add = None
    if not mask.all():
        whole = buckets.read_buckets(place, [entry], folder.schema)
        add = buckets.write_bucket(place, whole.filter(pa.array(~mask)))
    seqs, stamps, orders = (
        (ends.min().item(), ends.max().item()) for ends in (seq, stamp, axis_of(gone.column(folder.order))[0])
    )
    return Pruned(entry.path, add, len(gone), seqs, stamps, orders, int(epoch.min()))


def delete_doomed(doomed: Iterable[Doomed], path_of: Callable[[Doomed], Path], grace_s: float) -> list[Doomed]:
    """Delete removed files that are past the grace; give back those that are not."""
    horizon = time.time() - grace_s
    waiting = []
    for item in doomed:
        if item.since > horizon:
            waiting.append(item)
        else:
            path_of(item).unlink(missing_ok=True)
            faults.step("file-deleted")
    return waiting


def leftovers(layout: Layout, state: State) -> Iterator[Path]:
    """What a crash left behind: files and checkpoint folders that no record names, and all that is in the cache."""
    known: dict[tuple[Kind, Path], set[str]] = {}
    for kind in KINDS:
        for name, folder in state.folders(kind).items():
            known[kind, layout.folder(kind, name)] = set(folder.files)
    for item in state.doomed:
        known.setdefault((item.kind, layout.folder(item.kind, item.name)), set()).add(item.path)
    for kind in KINDS:
        root = layout.root / kind
        for place in sorted(root.iterdir()) if root.is_dir() else []:
            if place.is_dir():
                named = known.get((kind, place), set())
                yield from (p for p in place.iterdir() if _is_leftover(p.name, named))
                yield from _temporaries(place / "_delta_log")
    yield from _temporaries(layout.epochs)
    yield from _temporaries(layout.deliveries)
    yield from _temporaries(layout.root)
    if layout.cache.is_dir():
        yield from layout.cache.iterdir()
    if layout.checkpoints.is_dir():
        named = set(state.checkpoints)
        yield from (
            p for p in layout.checkpoints.iterdir() if checkpoint_epoch(p.name) is not None and p.name not in named
        )


def _is_leftover(name: str, named: set[str]) -> bool:
    return is_temporary(name) or (is_bucket(name) and name not in named)


def _temporaries(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (p for p in folder.iterdir() if is_temporary(p.name))


def sweep(layout: Layout, state: State) -> int:
    """Delete what a crash left; nothing outside the cache that is not clew's by its name. How many were deleted."""
    found = list(leftovers(layout, state))
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(found)
