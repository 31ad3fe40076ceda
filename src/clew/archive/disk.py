"""Writing so that a crash leaves the whole file or none, and a full disk is said as such."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from clew.archive import faults
from clew.archive.layout import new_temporary_name
from clew.errors import StoreError, StoreFull

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into `StoreFull` or `StoreError`, with the cause kept."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(
                f"the disk is full: cannot write {what}",
                details=[f"file: {path}", "the store is as it was after its last epoch"],
                hint="free some space and feed the batch again",
            ) from error
        raise StoreError(f"cannot write {what}", details=[f"file: {path}", f"cause: {error}"]) from error


def write_new(path: Path, data: bytes, *, durable: bool, between: str | None = None) -> None:
    """Create `path` with `data`, all or nothing; `FileExistsError` if it is there.

    `between` names the fault step before the file gets its name.
    """
    temporary = _write_temporary(path, data, durable)
    try:
        if between:
            faults.step(between)
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_over(path: Path, data: bytes, *, durable: bool, between: str | None = None) -> None:
    """Create or replace `path` with `data`, all or nothing."""
    temporary = _write_temporary(path, data, durable)
    try:
        if between:
            faults.step(between)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def _write_temporary(path: Path, data: bytes, durable: bool) -> Path:
    temporary = path.parent / new_temporary_name()
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_file(path: Path) -> None:
    """Make a file's contents durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file  # a folder's names are its contents


@lru_cache(maxsize=1)
def _syncers(process: int) -> ThreadPoolExecutor:  # a fork has none of its parent's threads
    del process
    return ThreadPoolExecutor(8, "clew-sync")


def sync_all(paths: Iterable[Path]) -> None:
    """Make several files durable, and the folders that name them; in parallel, so that a journal can batch them."""
    files = list(paths)
    found = [*files, *{file.parent for file in files}]
    if found:
        list(_syncers(os.getpid()).map(sync_file, found))
