"""Aggregates over contiguous ranges of rows: exact, vectorised, a function of each range alone.

A DOUBLE sum is `math.fsum` of the values, NaN and infinities counted beside; a finite sum beyond the
doubles is an infinity of its sign. An average is that sum, rounded, over the count. A zero that min,
max or median finds is 0.0, never -0.0; first, last and collect give values as they stand.
"""

from clew.operators.aggregation.functions import aggregate
from clew.operators.aggregation.partials import final, is_bounded, merge, partial
from clew.operators.aggregation.results import Aggregated, result_type

__all__ = ["Aggregated", "aggregate", "final", "is_bounded", "merge", "partial", "result_type"]
