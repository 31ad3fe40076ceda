"""What Glavic et al., "Efficient Stream Provenance", §6, report: the figures that their text and table give as numbers.

The plots themselves are not read off. Their machine had four processors of 2.26 GHz and 24 GB; ratios to a run
without provenance can be compared, seconds cannot.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NONE = (3.1, 3.9, 4.8, 5.7)  # Fig. 14, seconds by number of aggregations
EXACT, EXACT_RETRIEVAL = (3.9, 7.4, 14.7, 48.6), (3.0, 12.9, 103.0, 2047.0)
INTERVAL, INTERVAL_RETRIEVAL = (3.1, 4.4, 5.2, 6.3), (5.2, 14.7, 91.1, 2224.0)
REWRITE = (7.2, 625.0)  # with three and more it crashed


@dataclass(frozen=True)
class Reported:
    """One number of the paper, and the measurement here that it can be compared with."""

    figure: int
    x: float
    mode: str
    field: str
    value: float
    told: str = ""  # how the paper tells it, where that is not the same number

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _table() -> list[Reported]:
    """Fig. 14 as ratios to no provenance."""
    found = []
    for i, none in enumerate(NONE):
        modes = (("exact", EXACT, EXACT_RETRIEVAL), ("interval", INTERVAL, INTERVAL_RETRIEVAL))
        for mode, made, retrieved in modes:
            both = made[i] + retrieved[i]
            found.append(Reported(14, i + 1, mode, "over_off", made[i] / none, f"{made[i]} s of {none} s"))
            found.append(Reported(14, i + 1, mode, "retrieved_over_off", both / none, f"{both:.1f} s of {none} s"))
    told = [
        Reported(14, i + 1, "rewrite", "over_off", s / NONE[i], f"{s} s of {NONE[i]} s") for i, s in enumerate(REWRITE)
    ]
    return [*found, *told]


PAPER: tuple[Reported, ...] = (
    Reported(13, 10, "exact", "over_off", 1.20, "20 % overhead of generation"),
    Reported(13, 100, "exact", "over_off", 2.13, "113 %"),
    Reported(13, 10, "interval", "over_off", 1.03, "3 %"),
    Reported(13, 100, "interval", "over_off", 1.16, "16 %"),
    Reported(13, 10, "exact", "retrieved_over_off", 2.0, "roughly doubles the cost"),
    Reported(13, 100, "exact", "retrieved_over_off", 5.0, "an increase by a factor 5"),
    Reported(13, 100, "rewrite", "over_off", 12.0, "12"),
    *_table(),
    Reported(15, 100, "single", "over_off", 1.75, "75 % overhead"),
    Reported(15, 5_000, "single", "over_off", 6.5, "around 550 %; not stable beyond"),
    Reported(15, 100, "adaptive", "over_off", 1.5, "50 %"),
    Reported(15, 5_000, "adaptive", "over_off", 2.3, "130 %"),
    Reported(15, 100, "single", "held_for_lineage", 35e3, "35 KB in the window operator"),
    Reported(15, 5_000, "single", "held_for_lineage", 163e6, "163 MB"),
    Reported(15, 5_000, "adaptive", "held_for_lineage", 114e3, "114 KB"),
    Reported(15, 20_000, "adaptive", "held_for_lineage", 384e3, "384 KB"),
    Reported(18, 100, "single", "feed_over_off", 1.75, "about 75 % additional latency, at every load"),
    Reported(18, 100, "adaptive", "feed_over_off", 1.6, "around 60 %"),
    Reported(18, 100, "interval", "feed_over_off", 1.2, "around 20 %"),
    Reported(19, 2, "adaptive", "over_off", 2.0, "100 % overhead"),
    Reported(19, 2, "interval", "over_off", 1.4, "40 %, whatever the window"),
    Reported(19, 100, "interval", "over_off", 1.4, "40 %, whatever the window"),
    Reported(20, 0.05, "interval", "over_off", 1.13, "about 13 %, at every frequency"),
)  # fmt: skip
