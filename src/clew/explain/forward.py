"""All the way forward: from rows of a stream to all rows that are made of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from clew.engine.evaluate import BoxStates
from clew.engine.lineage import Input, is_stored
from clew.engine.plan import KernelStep, Stateless, plain_name
from clew.errors import CodeMissing, NotReplayed
from clew.explain.back import Layer, ancestors
from clew.explain.covering import Walk
from clew.explain.index import near, runs_of
from clew.explain.trace import Tracer
from clew.model.places import Places
from clew.model.ranges import spread
from clew.model.rows import Ints
from clew.operators.lineage import Known, Links


@dataclass(frozen=True, eq=False)
class Held:
    """What boxes hold, and whether the sources have ended, so that nothing can come of it any more."""

    states: BoxStates
    finished: bool = False


class Forward:
    """The walk from rows of one step along all that it feeds and that leads to some steps.

    `layers`: the rows of each step that are made of them; `open_`: how many rows each box still holds of those that
    reached it, and can make further rows of. `at_most`: boxes that drop rows of which it cannot be told any more
    which: they are neither stored nor can they be made again. What is made of such rows is told exactly all the same.
    Where sources were pruned, rows count that outputs are made of or that boxes hold; of others it is no longer known
    what they were made of.
    """

    def __init__(self, tracer: Tracer, step: str, places: Places, to: Collection[str], held: Held) -> None:
        self.tracer, self.plan, self.held = tracer, tracer.plan, held
        self.complete = _complete(tracer, step, int(places.stamp.min(initial=0)), held.states)
        self.layers: dict[str, Layer] = {}
        self.open_: dict[str, int] = {}
        self.at_most: set[str] = set()
        waiting: dict[str, list[Links]] = {step: [Links.one_each(places.stamp, places.pos)]}
        leading = ancestors(self.plan, {step, *to})
        for name, found in self.plan.steps.items():
            if name not in leading:
                continue
            if name != step:
                links = self._reached(found) if any(i in self.layers for i in found.inputs) else []
                waiting[name] = links
            if waiting.get(name):
                self.layers[name] = Layer.of_links(Links.concat(waiting[name]))

    def _reached(self, step: object) -> list[Links]:
        if isinstance(step, Stateless):
            return [self._passing(step, self.layers[step.inputs[0]])]
        assert isinstance(step, KernelStep)
        ports = [port for port, name in enumerate(step.inputs) if name in self.layers]
        return [self._through(step, port, self.layers[step.inputs[port]]) for port in ports]

    def _passing(self, step: Stateless, layer: Layer) -> Links:
        """The rows that a stateless step lets through; all that may be, if that cannot be told."""
        try:
            passes = self._passed(step, layer.places).find(layer.places) >= 0
        except CodeMissing:
            raise
        except NotReplayed:
            self.at_most.add(step.box)
            passes = np.ones(len(layer.places), np.bool_)
        keep = passes[layer.row]
        return Links(layer.owner[keep], layer.places.take(layer.row[keep]))

    def _passed(self, step: Stateless, places: Places) -> Places:
        if is_stored(self.plan, step.name):
            return self.tracer.stored_among(step.name, places)
        names = step.input_schema.names
        if step.condition is None and all(plain_name(sql) in names for _, sql in step.columns or ()):
            return places
        rows = self.tracer.through(step, self.tracer.rows(step.inputs[0], places))
        return Places(rows.stamp, rows.pos)

    def _through(self, step: KernelStep, port: int, layer: Layer) -> Links:
        """The rows of a kernel that are made of those at one of its inputs."""
        if not len(layer.places):
            return Links.none()
        asked = step.kernel.asks()[port]
        known = self._known((step.name, port), layer.places)
        self._note_open(step, port, known)
        emitted = self.tracer.index.around(step.name, step.kernel.ends(port), layer.places)
        if self.complete is not None:
            within = self.complete.get(step.name, Places.none())
            emitted = emitted.take(np.flatnonzero(within.find(emitted.places) >= 0))
        if not len(emitted.places) or not len(known):
            return Links.none()
        among = None if asked is None else (port, known)
        links = self.tracer.links(step, emitted.origin, among)[port]
        at = layer.places.find(links.places)
        owner, row = links.owner[at >= 0], at[at >= 0]
        return _pairs(layer, row, emitted.places.take(owner))

    def _known(self, of: Input, places: Places) -> Known:
        """What is known of rows at an input, of those that the kernel took."""
        asked = self.plan.kernels[of[0]].kernel.asks()[of[1]]
        if asked is None:
            return Known.of_places(places)
        known = self.tracer.known(of, asked, near(runs_of(places.stamp, 0), 0))
        return known.filter(places.find(known.places) >= 0)

    def _note_open(self, step: KernelStep, port: int, known: Known) -> None:
        if self.held.finished or not len(known):
            return
        state = self.held.states.kernels.get(step.name) or step.kernel.empty()
        held = int(step.kernel.holds(state, port, known).sum())
        if held:
            self.open_[step.box] = self.open_.get(step.box, 0) + held


def _complete(tracer: Tracer, step: str, since: int, states: BoxStates) -> dict[str, Places] | None:
    """Where sources were pruned: the rows of each step of which all that they are made of is still there.

    None where all are as good. They are those that outputs and kept streams are made of, and those that boxes hold.
    """
    streams = (tracer.store.state.streams.get(name) for name in tracer.plan.sources)
    if not any(s is not None and s.gone is not None and s.gone.holes for s in streams):
        return None
    walk = Walk(tracer, [step])
    made, held = walk.made(since - 1), walk.held(states)
    return {n: Places.concat([p[n] for p in (made, held) if n in p]).distinct()[0] for n in (*made, *held)}


def _pairs(layer: Layer, row: Ints, places: Places) -> Links:
    """Links from the questions behind rows of a layer to places made of these rows."""
    order = np.argsort(layer.row, kind="stable")
    rows = layer.row[order]
    lo, hi = np.searchsorted(rows, row, side="left"), np.searchsorted(rows, row, side="right")
    at, pair = spread(lo, hi - lo)
    return Links(layer.owner[order[at]], places.take(pair))
