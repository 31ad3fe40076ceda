"""What a user reads who builds a network that cannot be: one piece of code, one text, side by side in `errors.txt`.

Each piece is a file of its own, run with two streams at hand; what it makes is opened if it can be built. No Spark.
"""

from __future__ import annotations

import re
import runpy
import zlib
from pathlib import Path

import pytest

import clew
from clew import errors
from clew.errors import ClewError

PREAMBLE = """import clew
net = clew.Network("net")
s = net.stream("s", "ts LONG, g STRING, celsius DOUBLE", order="ts", key=["ts", "g"])
t = net.stream("t", "ts LONG, g STRING, top DOUBLE", order="ts", key=["ts", "g"])
"""
PAIRS = [
    tuple(part.strip("\n") for part in block.split("\n---\n"))
    for block in (Path(__file__).parent / "errors.txt").read_text().split("\n\n")
    if "\n---\n" in block
]


def said(code: str, folder: Path) -> str:
    """The error of a piece of code, or of opening what it builds; the preamble's lines do not count."""
    file = f"n{zlib.crc32(code.encode())}.py"  # Python remembers the lines of a file by its name
    (folder / file).write_text(PREAMBLE + code + "\n")
    try:
        made = runpy.run_path(file)
        clew.open(folder / "store", made["net"], lane="driver").close()
    except ClewError as error:
        text = f"{type(error).__name__}: {error}"
        above = PREAMBLE.count("\n")
        return re.sub(rf"  at {file}:(\d+)$", lambda at: f"  at line {int(at[1]) - above}", text)
    return "nothing"


@pytest.mark.parametrize(("code", "text"), PAIRS, ids=[code for code, _ in PAIRS])
def test_an_error_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(code, tmp_path) == text


def test_there_are_pairs() -> None:
    assert len(PAIRS) > 100
    assert len({code for code, _ in PAIRS}) == len(PAIRS)


def test_every_error_is_one_of_ours_and_of_python() -> None:
    found = [
        e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, ClewError) and e is not ClewError
    ]
    assert len(found) > 20
    for kind in found:
        assert issubclass(kind, ValueError | TypeError | RuntimeError | LookupError | OSError), kind
        text = str(kind("what is wrong", details=["more: 1"], hint="do this", at="a.py:3"))
        assert text == "what is wrong\n  more: 1\n  hint: do this\n  at a.py:3"


def test_windows_without_aggregates_say_what_they_want() -> None:
    net = clew.Network("net")
    s = net.stream("s", "ts LONG, x DOUBLE", order="ts", key="ts")
    for waiting, box in (
        (s.window(rows=2, name="w"), "'net.w' (window)"),
        (s.resample(s, within=1, name="r"), "'net.r' (resample)"),
    ):
        with pytest.raises(AttributeError) as raised:
            waiting.output("a")
        assert str(raised.value) == f"box {box} has no aggregates yet: write .agg(...) before .output"
        with pytest.raises(AttributeError, match=r"object has no attribute 'outputs'$"):
            waiting.outputs  # noqa: B018
