"""Documents that run: their code blocks are executed, and what they print is compared with what they say.

A ```python block runs in the namespace of its document; one that begins with `# NAME.py` is also written to that
file. A ```console block holds lines `$ clew ...`; a last comment `# exit 1` says that a line fails so. A block with a
file's name behind its language, as ```csv readings.csv, is written to that file. A block ```text output (or, behind a
console block, one with stdout and stderr in that order) says what the block before it prints; with
```text output, numbers vary the digits in it are not compared. Everything of one document happens in one empty
folder, whose path is left out of what is printed.

    python -m tools.documents README.md docs/tutorial.md     # write what is printed into the output blocks
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARYING = "output, numbers vary"
_FENCE = re.compile(r"^```(\w*)[ ]?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
_NAMED = re.compile(r"\w[\w-]*\.\w+")
_EXIT = re.compile(r"\s+# exit (\d+)$")
# What differs from run to run is written as the document has it.
_VOLATILE = re.compile(
    r"\d+(\.\d+)? (s|ms|B|kB|MB)\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|pid \d+|seconds=[\d.]+|(?<=\.md:)\d+"
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words behind it, its text, where that stands, and its line."""

    language: str
    words: str
    text: str
    span: tuple[int, int]
    line: int

    @property
    def is_output(self) -> bool:
        return self.language == "text" and self.words in ("output", VARYING)

    @property
    def is_file(self) -> bool:
        """Whether it is the text of a file that its words name."""
        return self.language != "python" and _NAMED.fullmatch(self.words) is not None

    def says(self, printed: str) -> bool:
        """Whether an output block says this, blanks at the ends of lines and what no two runs share left aside."""
        numbers = self.words == VARYING
        return _plain(printed, numbers) == _plain(self.text, numbers)


@dataclass(frozen=True)
class Ran:
    """A block that has run: what it printed, and the output block that says so, if there is one."""

    block: Block
    printed: str
    expected: Block | None


def documents() -> list[Path]:
    """All documents whose blocks are to run."""
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    return [
        Block(m[1], m[2].strip(), m[3], m.span(3), text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)
    ]


def run(document: Path, folder: Path) -> Iterator[Ran]:
    """Run the blocks of a document one after another in an empty folder."""
    found = blocks(document.read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(folder), _importable(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, block in enumerate(found):
            if block.is_file:
                Path(block.words).write_text(block.text)
            if block.language not in ("python", "console"):
                continue
            after = found[number + 1] if number + 1 < len(found) and found[number + 1].is_output else None
            try:
                printed = _python(block, document, names) if block.language == "python" else _console(block)
            except Exception as error:
                raise AssertionError(f"{document.name}:{block.line} fails: {type(error).__name__}: {error}") from error
            yield Ran(block, printed.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", ""), after)


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """What a document writes can be imported by it, and by no other."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = [place for place in sys.path if Path(place).resolve() != folder.resolve()]
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").parent.resolve() == folder.resolve():
                del sys.modules[name]


def _plain(text: str, numbers: bool) -> list[str]:
    """The lines of an output without what differs from run to run; without any digit if `numbers` vary."""
    lines = [_VOLATILE.sub("?", line) for line in text.strip().splitlines()]
    lines = [re.sub(r"\d[\d.,]*", "?", line) for line in lines] if numbers else lines
    plain = [re.sub(r"  +", "  ", line).strip() for line in lines]
    return [line for line in plain if line]


def _python(block: Block, document: Path, names: dict[str, object]) -> str:
    named = _FILE.match(block.text)
    file, text = document.name, "\n" * block.line + block.text  # so that errors name the document's lines
    if named:
        file, text = named[1], block.text
        Path(file).write_text(text)
    # A box is named after the variable in its source line, which is looked up here.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, file, "exec"), names)
    return out.getvalue()


def _console(block: Block) -> str:
    printed = ""
    for line in block.text.splitlines():
        if not line.startswith("$ clew "):
            continue
        expected = _EXIT.search(line)
        words = shlex.split(_EXIT.sub("", line)[2:])
        code, text = _clew(words[1:])
        wanted = int(expected[1]) if expected else 0
        assert code == wanted, f"`{line}` ends with {code}, not {wanted}:\n{text}"
        printed += text
    return printed


def _clew(arguments: list[str]) -> tuple[int, str]:
    """The command line in this process: exit code, and what went to stdout, then to stderr."""
    from clew.cli.app import app

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    wanted = {"PATH": path, "COLUMNS": "80", "CLEW_STORE": None}
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app(arguments)
    except SystemExit as end:
        code = end.code
    finally:
        _set(before)
    return int(str(code or 0)), out.getvalue() + err.getvalue()


def _set(environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def update(document: Path) -> int:
    """Write what a document's blocks print into its output blocks; how many have changed."""
    text, edits = document.read_text(), []
    with tempfile.TemporaryDirectory() as folder:
        for ran in run(document, Path(folder)):
            if ran.expected is not None and not ran.expected.says(ran.printed):
                edits.append((ran.expected.span, ran.printed.strip("\n") + "\n"))
    for (start, end), new in reversed(edits):
        text = text[:start] + new + text[end:]
    document.write_text(text)
    return len(edits)


if __name__ == "__main__":
    from clew.engine.spark_session import local_session

    local_session(cores=2, memory="2g")
    for given in map(Path, sys.argv[1:]):
        print(f"{given}: {update(given.resolve())} output blocks written", file=sys.stderr)
