"""Every code block of the README and the documents runs, and prints what the document says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tools.documents import ROOT, blocks, documents, run


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_document_run_and_print_what_it_says(
    document: Path, spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.getActiveSession() is not None
    wrong = [
        f"line {ran.block.line} prints\n{ran.printed}\nand not\n{ran.expected.text}"
        for ran in run(document, tmp_path)
        if ran.expected is not None and not ran.expected.says(ran.printed)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_output_block_stands_behind_the_block_that_prints_it(document: Path) -> None:
    found = blocks(document.read_text())
    for before, block in zip([None, *found], found, strict=False):
        if block.is_output:
            assert before is not None
            assert before.language in ("python", "console"), f"{document.name}:{block.line}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
