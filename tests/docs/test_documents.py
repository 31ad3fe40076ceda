"""The tool that runs documents finds what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.documents import Ran, blocks, run, update

DOCUMENT = """
```csv rows.csv
t,x
1,5
```

```python
# program.py
from pathlib import Path
import clew

net = clew.Network("n")
hot = net.stream("rows", "t LONG, x LONG", order="t", key="t").filter("x > 1")
print(net.box("hot").at, Path("rows.csv").read_text()[:3])
```
```text output
program.py:6 t,x
```

```console
$ clew check program.py
$ clew check rows.csv  # exit 1
```

```python
print("took 12 ms, 7 rows")
```
```text output, numbers vary
took 40 ms, 8 rows
```
"""


def ran(folder: Path, text: str) -> list[Ran]:
    (folder / "document.md").write_text(text)
    place = folder / "empty"
    place.mkdir(exist_ok=True)
    return list(run(folder / "document.md", place))


def test_blocks_run_in_one_folder_and_are_compared(tmp_path: Path) -> None:
    done = ran(tmp_path, DOCUMENT)
    assert [r.block.language for r in done] == ["python", "console", "python"]
    assert [r.expected.says(r.printed) for r in done if r.expected is not None] == [True, True]
    wrong = ran(tmp_path, DOCUMENT.replace("program.py:6", "program.py:9").replace("8 rows", "8 lines"))
    assert [r.expected.says(r.printed) for r in wrong if r.expected is not None] == [False, False]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"x > 1"', '"y > 1"', "document.md:7 fails: UnknownColumn: box 'n.hot' (filter)"),
        ("  # exit 1", "", "`$ clew check rows.csv` ends with 1, not 0"),
        ("check program.py", "check program.py  # exit 2", "ends with 0, not 2"),
    ],
)
def test_a_block_that_fails_is_named(tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(AssertionError) as caught:
        ran(tmp_path, DOCUMENT.replace(old, new))
    assert text in str(caught.value)


def test_outputs_are_written_where_they_differ(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(DOCUMENT.replace("program.py:6 t,x\n", ""))
    assert update(document) == 1
    assert document.read_text() == DOCUMENT
    assert update(document) == 0


def test_output_blocks_and_others_are_told_apart() -> None:
    found = blocks("```text output\n1\n```\n```text\n2\n```\n```py typo.py\n3\n```\n")
    assert [(b.is_output, b.is_file, b.line) for b in found] == [(True, False, 1), (False, False, 4), (False, True, 7)]
