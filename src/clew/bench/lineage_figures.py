"""Lineage as the provenance paper measured it: Figures 13 to 20 of Glavic et al., "Efficient Stream Provenance", §6.

The networks are theirs (Basic, nested aggregations, Complex), the tuples of 36 bytes of numbers, 100,000 in one batch
unless a figure says otherwise. Modes take turns, and a ratio is one to the run of the same round that writes no
lineage. `exact` and `interval` are the index of origins, which the paper's reduced-eager and replay-lazy are compared
with; `single` and `adaptive` are streams that carry annotations as the paper's do. `rewrite` is a network that
computes the p-join itself, once and with a limit in time. Retrieval is the p-join of all outputs as Arrow tables.
Provenance is a set: nested windows overlap, so that four of 10 rows make an output of 37 tuples, with slide 3 of 361;
`rewrite` joins an input once for each way that leads to it, 100 times an output for two aggregations of 10 rows.
What is stored is what the files of a store, compressed as they are, grow by. Stores do not wait for the disk.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from clew.bench.core import Bench, Progress, Samples
from clew.bench.figures import Case
from clew.bench.lineage_completion import completion
from clew.bench.lineage_experiments import FIGURES, FULL, QUICK, Experiment, Scale
from clew.bench.lineage_modes import OPENERS
from clew.bench.lineage_networks import basic
from clew.bench.lineage_paper import PAPER

PICKED: Mapping[str, tuple[int, float, str, str]] = {
    "fig13_exact_ws100": (13, 100, "exact", "over_off"),
    "fig13_exact_retrieved_ws100": (13, 100, "exact", "retrieved_over_off"),
    "fig13_interval_retrieved_ws100": (13, 100, "interval", "retrieved_over_off"),
    "fig14_exact_4": (14, 4, "exact", "over_off"),
    "fig14_interval_4": (14, 4, "interval", "over_off"),
    "fig15_exact_ws20000": (15, 20_000, "exact", "over_off"),
    "fig15_adaptive_ws20000": (15, 20_000, "adaptive", "over_off"),
    "fig17_exact_100": (17, 100, "exact", "over_off"),
    "fig18_exact_100": (18, 100, "exact", "feed_over_off"),
    "fig19_exact_ws100": (19, 100, "exact", "over_off"),
    "fig20_exact_1": (20, 1, "exact", "retrieved_over_off"),
    "fig20_interval_1": (20, 1, "interval", "retrieved_over_off"),
}
WHAT = {
    "fig13_exact_ws100": "Basic, window of 100, exact: generation over no lineage (paper 2.13)",
    "fig13_exact_retrieved_ws100": "the same, all of it retrieved (paper about 5)",
    "fig13_interval_retrieved_ws100": "interval, all of it retrieved",
    "fig14_exact_4": "four nested aggregations, exact: generation (paper 8.5)",
    "fig14_interval_4": "the same, interval (paper 1.11)",
    "fig15_exact_ws20000": "window of 20,000 rows, exact: generation",
    "fig15_adaptive_ws20000": "the same, annotated with adaptive compression",
    "fig17_exact_100": "window of 100, the selection keeps all, exact: generation",
    "fig18_exact_100": "latency of batches of 100, exact: feeding (paper, single: 1.75)",
    "fig19_exact_ws100": "Complex, front windows of 100, exact: generation",
    "fig20_exact_1": "four nested, slide 3, 1 % of the outputs retrieved, exact",
    "fig20_interval_1": "the same, interval",
}
CASES = tuple(Case(name, WHAT[name], "ratio", "lower") for name in PICKED)

Facts = Sequence[Mapping[str, Any]]


def run(quick: bool, progress: Progress) -> Samples:
    return experiments(QUICK if quick else FULL, progress)


def experiments(scale: Scale, progress: Progress) -> Samples:
    """All figures at one scale."""
    samples = Samples(notes={
        "rounds": scale.rounds, "tuples": scale.tuples, "joined_tuples": scale.joined_tuples,
        "nested_tuples": scale.nested_tuples, "rewrite_tuples": scale.rewrite_tuples, "lane": "driver",
        "durable": False, "not_run": [], "paper": [reported.to_json() for reported in PAPER],
    })  # fmt: skip
    to = Experiment(scale, samples, progress)
    completion(basic(10), list(OPENERS), scale.tuples)  # warms up
    for figure, measure in FIGURES.items():
        measure(to)
        for line in compared(samples.raw, figure):
            progress(line)
    for name, at in PICKED.items():
        for value in found(samples.raw, *at):
            samples.add(name, value)
    return samples


def found(raw: Facts, figure: int, x: float, mode: str, field: str) -> list[float]:
    """What the rounds measured there."""
    there = (figure, x, mode)
    return [r[field] for r in raw if (r["figure"], r["x"], r["mode"]) == there and r.get(field) is not None]


def compared(raw: Facts, figure: int) -> list[str]:
    """A line for each number that the paper gives of a figure and that was measured here."""
    lines = []
    for paper in PAPER:
        here = found(raw, paper.figure, paper.x, paper.mode, paper.field) if paper.figure == figure else []
        if here:
            told = f"figure {figure}, {paper.x:g}, {paper.mode}, {paper.field}"
            lines.append(f"{told}: {statistics.median(here):.4g}, in the paper {paper.value:.4g} ({paper.told})")
    return lines


BENCH = Bench("lineage-figures", "Lineage as the provenance paper measured it", CASES, run)
