"""One writer per store: an operating-system lock that is gone with its process."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import sys
import warnings
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clew.archive.disk import writing
from clew.errors import StoreInUse


class StoreLock:
    """Holds a store for this process, and for none of its children.

    The file tells a second opener who holds it; only the operating system's lock counts, so what a dead
    process wrote there is harmless.
    """

    _descriptor = -1

    def __init__(self, path: Path) -> None:
        self._root = path.parent
        with writing("the store's lock", path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with writing("the store's lock", path):
                self._take(path.parent)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise
        _held.add(self)

    def _take(self, root: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(root, _holder(self._descriptor)) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(_self()).encode(), 0)

    def release(self) -> None:
        """Let the store go; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _held.discard(self)

    def __del__(self) -> None:
        """A store that nobody holds any more is let go, as an open file is closed."""
        if self._descriptor >= 0:
            self.release()
            warnings.warn(f"store '{self._root}' was not closed", ResourceWarning, stacklevel=1, source=self)


_held: weakref.WeakSet[StoreLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child shares the open file, and with it the lock: closing the child's end leaves the parent's.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)


def _self() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": _user(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv)[:200],
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id need not have a name
        return str(os.getuid())


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:  # it has the lock and has not yet said who it is
        return {}
    return found if isinstance(found, dict) else {}


def _in_use(root: Path, holder: dict[str, Any]) -> StoreInUse:
    details = []
    if holder:
        me = (
            " (this process)" if holder.get("pid") == os.getpid() and holder.get("host") == socket.gethostname() else ""
        )
        details = [
            f"held by: pid {holder.get('pid')} on {holder.get('host')}{me}, user {holder.get('user')}, "
            f"since {holder.get('since')}",
            f"command: {holder.get('command')}",
        ]
    return StoreInUse(
        f"store '{root}' is open in another engine",
        details=details,
        hint="close that engine; reading needs none: `clew show`, or any Delta reader",
    )
