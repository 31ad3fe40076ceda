"""All the way back: from rows of a stream to those of other streams that they are made of.

The part of the network that `Instrumented` tells of, walked from the output's step back along all paths that lead to a
stream asked about, and no further, with the index in place of annotations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from clew.engine.plan import KernelStep, Plan, Step
from clew.errors import TooMuchAsked
from clew.explain.trace import Tracer
from clew.model.places import Places
from clew.model.ranges import spread
from clew.model.rows import Ints
from clew.operators.lineage import MOST_LINKS, Links


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of one step, and of which answers they are: pairs of an answer's number and an index in `places`."""

    places: Places
    owner: Ints
    row: Ints

    @staticmethod
    def none() -> Layer:
        return Layer(Places.none(), np.empty(0, np.int64), np.empty(0, np.int64))

    @staticmethod
    def of_links(links: Links) -> Layer:
        """Each place once, and each pair."""
        places, row = links.places.distinct()
        width = max(len(places), 1)
        pairs = np.sort(links.owner * width + row)  # np.unique would hash them, a hundred times slower
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
        return Layer(places, pairs // width, pairs % width)

    def of(self, answer: int) -> Places:
        """The rows that one answer is made of."""
        return self.places.take(self.row[slice(*np.searchsorted(self.owner, [answer, answer + 1]))])


@dataclass(frozen=True, eq=False)
class Traced:
    """What the walk has passed: rows of each step, and the steps at which it ended without being asked about them."""

    layers: dict[str, Layer]
    outside: tuple[str, ...]
    replayed: dict[str, int]  # rows made again on the way, by box


def leading(plan: Plan, targets: Collection[str]) -> set[str]:
    """The steps that are asked about, and all that they lead to."""
    found = set(targets)
    for step in plan.steps.values():
        if any(i in found for i in step.inputs):
            found.add(step.name)
    return found


def trace_back(tracer: Tracer, step: str, places: Places, targets: Collection[str]) -> Traced:
    """From rows of a step (each place once, ascending) to what they are made of in the target steps."""
    plan = tracer.plan
    on_path = leading(plan, targets)
    waiting: dict[str, list[Links]] = {step: [Links.one_each(places.stamp, places.pos)]}
    layers: dict[str, Layer] = {}
    outside: set[str] = set()
    before = dict(tracer.replayed)
    for name in reversed(list(plan.steps)):
        if name not in waiting:
            continue
        layer = layers[name] = Layer.of_links(Links.concat(waiting.pop(name)))
        found = plan.steps[name]
        if name in targets:
            continue
        for parent in found.inputs:
            if parent not in on_path:
                outside |= _boxes_at(plan, parent, found.box)
        if on_path.isdisjoint(found.inputs):
            continue
        for parent, links in zip(found.inputs, _inputs(tracer, found, layer), strict=True):
            if parent in on_path:
                waiting.setdefault(parent, []).append(links)
    return Traced(layers, tuple(sorted(outside)), {b: n - before.get(b, 0) for b, n in tracer.replayed.items()})


def _inputs(tracer: Tracer, step: Step, layer: Layer) -> list[Links]:
    """For each input the rows that each answer is made of there."""
    if not isinstance(step, KernelStep):  # what passes keeps its place
        return [Links(layer.owner, layer.places.take(layer.row))]
    origin = tracer.index.origins(step.name, layer.places)
    return [_joined(step, layer, links) for links in tracer.links(step, origin)]


def _joined(step: KernelStep, layer: Layer, links: Links) -> Links:
    bounds = np.searchsorted(links.owner, np.arange(len(layer.places) + 1))
    counts = np.diff(bounds)[layer.row]
    total = int(counts.sum())
    if total > MOST_LINKS:
        raise TooMuchAsked(
            f"these answers are made of {total:,} rows in front of box '{step.box}', more than can be held at once",
            hint="ask for fewer outputs at a time",
        )
    at, pair = spread(bounds[layer.row], counts)
    return Links(layer.owner[pair], links.places.take(at))


def _boxes_at(plan: Plan, step: str, inside: str) -> set[str]:
    """The box of a step; where that is a box we stand in, those that feed it."""
    found = plan.steps[step]
    if found.box != inside:
        return {found.box}
    return set[str]().union(*(_boxes_at(plan, name, inside) for name in found.inputs))


def ancestors(plan: Plan, steps: Collection[str]) -> set[str]:
    """Some steps and all that lead to them."""
    found, stack = set[str](), [*steps]
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += plan.steps[name].inputs
    return found
