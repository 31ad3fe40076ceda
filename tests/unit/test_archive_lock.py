"""One writer at a time: the second is told who the first is, and a dead writer holds nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clew.archive import Store
from clew.errors import StoreFull, StoreInUse

HOLD = """
import sys
from clew.archive import Store
store = Store.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_writer_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    Store.create(tmp_path / "s").close()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse) as caught:
            Store.open(tmp_path / "s")
        said = json.loads((tmp_path / "s" / "_lock").read_text())
        text = str(caught.value)
        assert f"store '{tmp_path / 's'}' is open in another engine" in text
        assert f"held by: pid {holder.pid} on {said['host']}, user {said['user']}, since {said['since']}" in text
        assert "command: -c" in text
        Store.open(tmp_path / "s", read_only=True).close()
        holder.kill()
    Store.open(tmp_path / "s").close()


def test_one_process_cannot_open_a_store_twice(tmp_path: Path) -> None:
    with (
        Store.create(tmp_path / "s"),
        pytest.raises(StoreInUse, match=f"pid {os.getpid()} on .* \\(this process\\)"),
    ):
        Store.open(tmp_path / "s")
    Store.open(tmp_path / "s").close()


def test_a_full_disk_does_not_leave_the_store_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.create(tmp_path / "s").close()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("pwrite", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(StoreFull, match="the disk is full: cannot write the store's lock"):
                Store.open(tmp_path / "s")
        Store.open(tmp_path / "s").close()


def test_children_do_not_hold_the_lock_on(tmp_path: Path) -> None:
    script = """
import os, subprocess, sys
from clew.archive import Store
store = Store.create(sys.argv[1])
child = subprocess.Popen(["sleep", "60"], close_fds=False)
reading, writing = os.pipe()
forked = os.fork()
if not forked:
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
print(child.pid, forked, flush=True)
os._exit(0)
"""
    # stdout is not a pipe: the children would hold it open
    out = tmp_path / "out"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "s")], check=True, stdout=file)
    child = int(out.read_text().split()[0])
    os.kill(child, 0)
    Store.open(tmp_path / "s").close()
    os.kill(child, 9)


def test_what_a_dead_writer_left_in_the_lock_is_harmless(tmp_path: Path) -> None:
    Store.create(tmp_path / "s").close()
    (tmp_path / "s" / "_lock").write_text("no json")
    Store.open(tmp_path / "s").close()
