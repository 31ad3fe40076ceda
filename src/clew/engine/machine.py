"""How much of this machine a process may use, containers' limits included."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MIB = 1 << 20


def cores(cgroup: Path = CGROUP) -> int:
    """The cores this process may run on, at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _words(cgroup / "cpu.max")
    if len(quota) == 2 and quota[0] != "max":
        allowed = min(allowed, int(quota[0]) // int(quota[1]))
    return max(allowed, 1)


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """The memory this process may use, whether or not it is free."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_words(cgroup / "memory.max"), _words(cgroup / "memory" / "memory.limit_in_bytes")]
    return min([total, *(int(words[0]) for words in limits if words and words[0].isdigit())])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
