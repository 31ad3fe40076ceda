"""Names of boxes: given, or derived from the variable that the user assigns them to."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import FrameType

from clew.errors import NetworkError

LONGEST_NAME = 200  # file systems take 255 bytes
PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


_Place = tuple[int, int]  # line, and column in bytes


@dataclass(frozen=True)
class Spot:
    """Where the user wrote a box: file, line, where its statement begins, and the variable that it assigns, if any."""

    file: str
    line: int
    statement: _Place
    target: str | None

    @property
    def text(self) -> str:
        name = os.path.relpath(self.file) if Path(self.file).is_absolute() else self.file
        return f"{self.file if name.startswith('..') else name}:{self.line}"

    def written_with(self, other: Spot) -> bool:
        """Whether both stand in one statement."""
        return (self.file, self.statement) == (other.file, other.statement)


def calling_spot() -> Spot:
    """The innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return Spot("<unknown>", 0, (0, 0), None)
    file, line = frame.f_code.co_filename, frame.f_lineno
    statement, target = _statement_at(file, line, _place(frame))
    return Spot(file, line, statement, target)


def shown(value: object) -> str:
    """What the user gave, as an error shows it: on one line, and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def check_length(name: str | None, what: str, at: str) -> None:
    """A name is that of a folder, too, where all but letters, digits and signs of ASCII is spelt out."""
    if name is not None and sum(1 if c.isascii() else len(f"~{ord(c):x}") + 1 for c in name) > LONGEST_NAME:
        raise NetworkError(
            f"'{name[:40]}...' is too long to name {what}",
            hint=f"{LONGEST_NAME} letters at most; one that is not of ASCII counts more",
            at=at,
        )


def _place(frame: FrameType) -> _Place | None:
    """Where the call that a frame is in begins; Python may run without columns."""
    line, _, column, _ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    return None if line is None or column is None else (line, column)


def _statement_at(file: str, line: int, place: _Place | None) -> tuple[_Place, str | None]:
    """The innermost assignment around a place, or around a line if that is all that is known."""
    around = [
        (start, target)
        for start, end, target in _assignments(file, len(linecache.getlines(file)))
        if (start <= place < end if place else start[0] <= line <= end[0])
    ]
    return max(around, default=((line, -1), None), key=lambda found: found[0])


@lru_cache(maxsize=64)
def _assignments(file: str, lines: int) -> tuple[tuple[_Place, _Place, str], ...]:
    """Where each assignment to a variable begins and ends."""
    del lines  # part of the key: a notebook cell or a file may have grown
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(targets[0], ast.Name):
            end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
            found.append(((node.lineno, node.col_offset), end, targets[0].id))
    return tuple(found)
