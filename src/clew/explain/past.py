"""What annotations start from after a restart: looked up in the lineage that is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from clew.engine.annotator import place_tids
from clew.engine.lineage import Input, stored_as
from clew.explain.back import Layer, trace_back
from clew.explain.trace import Tracer
from clew.model.places import Places
from clew.model.ranges import running
from clew.model.rows import Ints
from clew.model.tid_sets import TidSets
from clew.operators.lineage import Asked, Known


@dataclass(frozen=True)
class TracedPast:
    """`Past` of the annotator, by the walk back that explains answers too."""

    tracer: Callable[[], Tracer]

    def known(self, of: Input, asked: Asked, low: int, high: int) -> Known:
        """What is known of the rows that a kernel took at an input from one stamp to another."""
        found = self.tracer().known(of, asked, [(low, high)])
        return found.filter((found.stamp >= low) & (found.stamp <= high))

    def annotations(self, step: str, places: Places, targets: Mapping[str, str]) -> dict[str, TidSets]:
        """By stream asked about what rows of a step are made of there; the places ascend."""
        tracer = self.tracer()
        layers = trace_back(tracer, step, places, set(targets.values())).layers
        found = {}
        for name, target in targets.items():
            layer = layers.get(target) or Layer.none()
            bounds = running(np.bincount(layer.owner, minlength=len(places)))
            found[name] = TidSets(bounds, _tids(tracer, target, layer.places)[layer.row])
        return found


def _tids(tracer: Tracer, step: str, places: Places) -> Ints:
    stream = stored_as(tracer.plan, step)
    if stream is None:
        return place_tids(places, tracer.plan.steps[step].box)
    return tracer.seqs(stream, places)
