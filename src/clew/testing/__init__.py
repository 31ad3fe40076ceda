"""The public test kit: text tables as batches, the laws as checks, a reference of whole networks."""

from __future__ import annotations

from clew.testing.laws import (
    FINISH,
    Advance,
    LawError,
    check_arrival,
    check_reference,
    check_restart,
    check_split_invariance,
    without_cache,
)
from clew.testing.lineage import reference_lineage
from clew.testing.lineage_laws import check_lineage
from clew.testing.reference import Admitted, interpret
from clew.testing.tables import batches, table, text

__all__ = [
    "FINISH", "Admitted", "Advance", "LawError", "batches", "check_arrival", "check_lineage", "check_reference",
    "check_restart", "check_split_invariance", "interpret", "reference_lineage", "table", "text", "without_cache",
]  # fmt: skip
