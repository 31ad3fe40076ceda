"""Aggregates over contiguous ranges of rows: exact, vectorised, a function of each range alone."""

from clew.operators.aggregation.functions import aggregate
from clew.operators.aggregation.partials import final, is_bounded, merge, partial
from clew.operators.aggregation.results import Aggregated, call_text, result_type

__all__ = ["Aggregated", "aggregate", "call_text", "final", "is_bounded", "merge", "partial", "result_type"]
