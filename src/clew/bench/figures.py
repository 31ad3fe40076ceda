"""Samples and what they say: a median with the interval that holds it in nine runs of ten."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Better = Literal["higher", "lower"]
FEWEST = 5  # samples whose least and greatest hold the median in nine runs of ten


@dataclass(frozen=True)
class Case:
    """One figure of a benchmark: what is compared, and what it should reach (None: it is reported only).

    The figure of a `worst` case is the worst sample, not the median: a tuple lost in one round of twenty is lost.
    """

    name: str
    what: str
    unit: str
    better: Better
    aim: float | None = None
    worst: bool = False

    def aim_text(self) -> str:
        """
        >>> Case("q2", "", "ratio", "higher", 2.0).aim_text()
        '>= 2'
        """
        return "" if self.aim is None else f"{'>=' if self.better == 'higher' else '<='} {self.aim:g}"


@dataclass(frozen=True)
class Figure:
    """A measured case. An aim is met only if the unfavourable end of the interval meets it.

    `met` is None where no aim is, and where samples are too few to tell.
    """

    case: str
    value: float
    low: float
    high: float
    unit: str
    better: Better
    aim: float | None
    met: bool | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def figure(case: Case, samples: Sequence[float]) -> Figure:
    """The figure of a case from its samples, one per round."""
    low, high = (min(samples), max(samples)) if case.worst else interval(samples)
    worst = high if case.better == "lower" else low
    value = worst if case.worst else statistics.median(samples)
    met = None
    if case.aim is not None:
        met = worst >= case.aim if case.better == "higher" else worst <= case.aim
        if len(samples) < FEWEST and (met or not case.worst):
            met = None
    return Figure(case.name, value, low, high, case.unit, case.better, case.aim, met)


def interval(samples: Sequence[float], share: float = 0.9) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median with probability `share`; else least and greatest.

    >>> interval([5, 1, 3, 2, 4])
    (1, 5)
    """
    ordered, n = sorted(samples), len(samples)
    for drop in range((n - 1) // 2, -1, -1):
        outside = 2 * sum(math.comb(n, k) for k in range(drop + 1)) / 2**n
        if 1 - outside >= share:
            return ordered[drop], ordered[n - 1 - drop]
    return ordered[0], ordered[-1]


def slope(small: float, large: float, small_size: int, large_size: int) -> float:
    """Seconds per tuple: what grows with the size, the fixed cost left out."""
    return max(large - small, 1e-9) / (large_size - small_size)
