"""What sections of the page of benchmarks are made of: numbers, tables, plots, medians."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
Plots = dict[str, str]


def shown(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]
    return "\n".join(lines) + "\n"


def plot(plots: Plots, name: str, what: str, svg: str) -> str:
    plots[f"{name}.svg"] = svg
    return f"![{what}](benchmarks/{name}.svg)\n"


def medians(samples: Sequence[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """The median of each key's values, keys as they first came."""
    found: dict[Any, list[float]] = {}
    for key, value in samples:
        found.setdefault(key, []).append(value)
    return [(key, statistics.median(values)) for key, values in found.items()]
