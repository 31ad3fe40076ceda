"""Names of boxes: given, or derived from the variable that the user assigns them to."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True)
class Spot:
    """Where the user wrote a box: file and line, and the variable that the statement assigns, if any."""

    file: str
    line: int
    statement: int
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
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return Spot("<unknown>", 0, 0, None)
    file, line = frame.f_code.co_filename, frame.f_lineno
    statement, target = _statement_at(file, line)
    return Spot(file, line, statement, target)


def _statement_at(file: str, line: int) -> tuple[int, str | None]:
    found: tuple[int, str | None] = (line, None)
    width = sys.maxsize
    for start, end, target in _assignments(file, len(linecache.getlines(file))):
        if start <= line <= end and end - start < width:
            found, width = (start, target), end - start
    return found


@lru_cache(maxsize=64)
def _assignments(file: str, lines: int) -> tuple[tuple[int, int, str], ...]:
    del lines  # part of the key: a notebook cell or a file may have grown
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(targets[0], ast.Name):
            found.append((node.lineno, node.end_lineno or node.lineno, targets[0].id))
    return tuple(found)
