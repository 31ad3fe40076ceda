"""Limits of containers are seen where there are any."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.engine import machine


def test_without_limits_the_whole_machine_counts(tmp_path: Path) -> None:
    assert machine.cores(tmp_path) >= 1
    assert machine.memory_bytes(tmp_path) > 1 << 28


@pytest.mark.parametrize(("quota", "expected"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None)])
def test_a_quota_caps_the_cores(tmp_path: Path, quota: str, expected: int | None) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert machine.cores(tmp_path) == (expected or machine.cores(tmp_path / "none"))


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_limit_caps_the_memory(tmp_path: Path, file: str) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / file).write_text("104857600\n")
    assert machine.memory_bytes(tmp_path) == 104857600


def test_no_limit_is_no_cap(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_bytes(tmp_path) == machine.memory_bytes(tmp_path / "none")
