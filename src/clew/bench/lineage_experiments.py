"""The experiments of Glavic et al., "Efficient Stream Provenance", §6, one function for each of their figures.

Each leaves facts: `figure`, `x`, `mode`, `round`, then seconds, their ratio to the run of the same round without
lineage, and what is held and stored.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from clew.bench.core import Progress, Samples
from clew.bench.lineage_completion import (
    FIRST,
    Run,
    completion,
    feed,
    in_turn,
    opened,
    store_bytes,
    timed,
)  # fmt: skip
from clew.bench.lineage_modes import JOINS, OPENERS, held_bytes
from clew.bench.lineage_networks import Tuples, basic, complex_network, nested
from clew.bench.lineage_rewrite import rewrite_seconds
from clew.network.network import Network

SINGLE_MOST = 5_000  # rows of a window: there all plain lists together are 800 MB, and the paper's went no further
CRASHED = (3, 4)  # aggregations at which the paper's rewrite ran out of memory


@dataclass(frozen=True)
class Scale:
    """What is varied, and how often and over how many tuples each is measured."""

    rounds: int
    tuples: int
    joined_tuples: int  # where all lineage is retrieved
    provenance: Sequence[int]  # Fig. 13: rows of the window
    rewritten: Sequence[int]  # and those at which rewrite takes part
    depths: Sequence[int]
    rewritten_depths: Sequence[int]
    rewrite_tuples: int
    rewrite_most: float  # seconds
    windows: Sequence[int]
    slides: Sequence[int]
    kept: Sequence[int]  # percent
    loads: Sequence[int]  # tuples of a batch
    epochs: int
    fronts: Sequence[int]
    frequencies: Sequence[float]  # percent
    nested_tuples: int


FULL = Scale(
    rounds=5, tuples=100_000, joined_tuples=100_000, provenance=(10, 25, 50, 75, 100), rewritten=(10, 100),
    depths=(1, 2, 3, 4), rewritten_depths=(1, 2), rewrite_tuples=100_000, rewrite_most=240,
    windows=(50, 100, 500, 1_000, 5_000, 20_000), slides=(1, 2, 5, 10, 25, 50, 100), kept=(5, 25, 50, 75, 100),
    loads=(10, 25, 50, 75, 100), epochs=30, fronts=(2, 10, 50, 100),
    frequencies=(0.05, 0.5, 1, 10, 50, 100), nested_tuples=2_000_000,
)  # fmt: skip
QUICK = Scale(
    rounds=1, tuples=100_000, joined_tuples=10_000, provenance=(10, 100), rewritten=(10,),
    depths=(1, 2, 3, 4), rewritten_depths=(1,), rewrite_tuples=10_000, rewrite_most=15,
    windows=(50, 1_000, 20_000), slides=(1, 10, 100), kept=(5, 50, 100),
    loads=(10, 100), epochs=10, fronts=(2, 100),
    frequencies=(1, 10, 100), nested_tuples=200_000,
)  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """The runs of one scale, and where their facts go."""

    scale: Scale
    samples: Samples
    progress: Progress

    def add(self, figure: int, x: float, number: int, runs: dict[str, Run]) -> None:
        for mode, run in runs.items():
            self.samples.measured(figure=figure, x=x, mode=mode, round=number, **run.facts(runs["off"]))

    def vary(self, figure: int, what: str, xs: Sequence[int], network: Callable[[int], Network], **how: Any) -> None:
        """Completion time of a batch in each mode, over networks that differ in one number."""
        tuples = how.pop("tuples", self.scale.tuples)
        for x in xs:
            for number in range(self.scale.rounds):
                self.progress(f"figure {figure}, {what} {x}, round {number + 1} of {self.scale.rounds}")
                wanted = [mode for mode in OPENERS if mode != "single" or figure != 15 or x <= SINGLE_MOST]
                self.add(figure, x, number, completion(network(x), wanted, tuples, turn=number, **how))

    def rewrite(self, figure: int, x: int, depth: int, size: int) -> None:
        """Query rewrite once, beside a run without lineage over as many tuples; or why it was not run."""
        tuples = self.scale.rewrite_tuples
        where = f"figure {figure}, rewrite of {depth} aggregations over {size}"
        self.progress(where)
        found = rewrite_seconds(depth, size, tuples, self.scale.rewrite_most)
        if found is None:
            self.samples.notes["not_run"].append(f"{where}: given up after {self.scale.rewrite_most:g} s")
            return
        off = completion(nested(depth, size), ["off"], tuples)["off"]
        run = Run(found[0], off.outputs, off.held_bytes, off.store_bytes, 0.0, found[1])
        self.samples.measured(figure=figure, x=x, mode="rewrite", round=0, tuples=tuples, **run.facts(off))


def figure_13(to: Experiment) -> None:
    """End to end: the amount of provenance, by the rows of the window."""
    to.vary(13, "window of", to.scale.provenance, basic, tuples=to.scale.joined_tuples, retrieved=True)
    for size in to.scale.rewritten:
        to.rewrite(13, size, 1, size)


def figure_14(to: Experiment) -> None:
    """Nested aggregations over 10 rows each."""
    to.vary(14, "aggregations:", to.scale.depths, nested, tuples=to.scale.joined_tuples, retrieved=True)
    same = [r for r in to.samples.raw if r["figure"] == 13 and r["x"] == 10 and r["mode"] == "rewrite"]
    to.samples.raw += [{**r, "figure": 14, "x": 1} for r in same]
    for depth in to.scale.rewritten_depths:
        if depth > 1 or not same:
            to.rewrite(14, depth, depth, 10)
    left = ", ".join(str(depth) for depth in CRASHED)
    to.samples.notes["not_run"].append(f"figure 14, rewrite of {left} aggregations: there the paper's crashed")


def figure_15(to: Experiment) -> None:
    to.vary(15, "window of", to.scale.windows, basic)


def figure_16(to: Experiment) -> None:
    to.vary(16, "slide of", to.scale.slides, lambda slide: basic(100, slide))


def figure_17(to: Experiment) -> None:
    to.vary(17, "percent kept:", to.scale.kept, lambda kept: basic(100, 1, kept))


def figure_18(to: Experiment) -> None:
    """Latency of a small batch, and of asking why its newest output is as it is."""
    for load in to.scale.loads:
        for number in range(to.scale.rounds):
            to.progress(f"figure 18, batches of {load}, round {number + 1} of {to.scale.rounds}")
            found = latencies(load, to.scale.epochs)
            off = found["off"][0]
            for mode, (fed, why) in found.items():
                facts = {"feed_s": fed, "feed_over_off": fed / off}
                if why is not None:
                    facts |= {"why_s": why, "answered_over_off": (fed + why) / off}
                to.samples.measured(figure=18, x=load, mode=mode, round=number, **facts)


def latencies(load: int, epochs: int) -> dict[str, tuple[float, float | None]]:
    """In each mode the median seconds of feeding a batch, and of the p-join of the newest output after it."""
    network = basic(100)
    source, modes = Tuples.of(network), list(OPENERS)
    feeds: dict[str, list[float]] = {mode: [] for mode in modes}
    whys: dict[str, list[float]] = {mode: [] for mode in modes}
    with ExitStack() as stack:
        engines = {m: stack.enter_context(opened(network, OPENERS[m]))[0] for m in modes}
        fill = source.batch(1_000)
        outputs = {mode: feed(engine, fill) for mode, engine in engines.items()}
        for number in range(-5, epochs):  # the first ones warm up
            batch = source.batch(load)
            for mode in in_turn(modes, number):
                fed, more = timed(feed, engines[mode], batch)
                outputs[mode] += more
                why = timed(JOINS[mode], engines[mode], [outputs[mode]])[0] if mode in JOINS else None
                if number >= 0:
                    feeds[mode].append(fed)
                    whys[mode] += [] if why is None else [why]
    return {m: (statistics.median(feeds[m]), statistics.median(whys[m]) if whys[m] else None) for m in modes}


def figure_19(to: Experiment) -> None:
    """The running example, by the rows of its front windows."""
    to.vary(19, "front windows of", to.scale.fronts, complex_network)


def figure_20(to: Experiment) -> None:
    """How often lineage is asked for: four nested aggregations, 10 rows each, slide 3."""
    frequencies(to.scale.nested_tuples, (), 0)  # warms up: the first batch of its size waits for memory
    for number in range(to.scale.rounds):
        to.progress(f"figure 20, round {number + 1} of {to.scale.rounds}")
        for rate, runs in frequencies(to.scale.nested_tuples, to.scale.frequencies, number).items():
            to.add(20, rate, number, runs)


def frequencies(tuples: int, rates: Sequence[float], turn: int) -> dict[float, dict[str, Run]]:
    """By rate and mode: one batch, then the p-join of so many percent of the outputs, picked by a selection."""
    network = nested(4, 10, 3)
    source = Tuples.of(network)
    first, batch = source.batch(FIRST), source.batch(tuples)
    found: dict[float, dict[str, Run]] = {rate: {} for rate in rates}
    for mode in in_turn(["off", "exact", "interval"], turn):
        with opened(network, OPENERS[mode]) as (engine, place):
            outputs = feed(engine, first)
            seconds, more = timed(feed, engine, batch)
            outputs += more
            held, stored = held_bytes(engine), store_bytes(place)
            for rate in rates:
                run = found[rate][mode] = Run(seconds, outputs, held, stored)
                if mode in JOINS:
                    run.retrieval_s, run.joined = timed(JOINS[mode], engine, picked(rate))
    return found


def picked(rate: float) -> str | None:
    """A condition on outputs that about `rate` percent of them meet, scattered; None if all do."""
    return None if rate >= 100 else f"ts * 7919 % 100000 < {round(rate * 1000)}"


FIGURES: dict[int, Callable[[Experiment], None]] = {
    13: figure_13, 14: figure_14, 15: figure_15, 16: figure_16, 17: figure_17, 18: figure_18, 19: figure_19,
    20: figure_20,
}  # fmt: skip
