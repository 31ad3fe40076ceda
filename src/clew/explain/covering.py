"""All the way back at once: which rows of a stream any of many rows are made of, and no more than which.

These are the covering intervals of Glavic et al., "Efficient Stream Provenance", §4.3 and §5, with two differences.
Intervals are taken group by group, so that a group that pauses covers none of the others' rows. And where the rows
of an input are at hand, an interval holds those alone, so that of a filter's input only what went through counts.
Where they would have to be made again (lineage='interval'), all between the ends counts, for that is what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from clew.engine.evaluate import BoxStates
from clew.engine.lineage import Input, chain_to, is_stored, stored_as
from clew.engine.plan import KernelStep
from clew.explain.back import leading
from clew.explain.horizon import leading_to_stored
from clew.explain.index import Range, near, without
from clew.explain.trace import Tracer
from clew.model.places import Places
from clew.model.rows import POS, STAMP
from clew.operators.base import State
from clew.operators.lineage import Asked, Known, covering
from clew.operators.windows.panes import FIRST_STAMP

AT_ONCE = 500_000  # output tuples that are traced at a time


class Walk:
    """From rows of any steps back to those of some target steps, all at once.

    What it finds are the rows of each step that they are made of, and perhaps some between them.
    """

    def __init__(self, tracer: Tracer, targets: Sequence[str]) -> None:
        self.tracer, self.plan, self.targets = tracer, tracer.plan, targets
        self.on_path = leading(self.plan, targets) & leading_to_stored(self.plan)

    def made(self, since: int) -> dict[str, Places]:
        """What outputs and kept streams behind a stamp are made of, by step."""
        return _joined([self._nothing(), *(self.back(start) for start in self._outputs(since))])

    def held(self, boxes: BoxStates) -> dict[str, Places]:
        """What rows that boxes hold are made of, by step."""
        start: dict[str, list[Places]] = {}
        for name, step in self.plan.kernels.items():
            state = boxes.kernels.get(name)
            if state and name in self.on_path:
                for port, parent in enumerate(step.inputs):
                    base, places = self._held(step, port, state)
                    start.setdefault(base or parent, []).append(places)
        return self.back(start)

    def back(self, start: Mapping[str, Sequence[Places]]) -> dict[str, Places]:
        """The rows of each step on the way, each once, ascending."""
        found = self._nothing()
        waiting = {name: list(parts) for name, parts in start.items()}
        for name in reversed(list(self.plan.steps)):
            if name not in waiting or name not in self.on_path:
                continue
            places = found[name] = Places.concat(waiting.pop(name)).distinct()[0]
            step = self.plan.steps[name]
            if name in self.targets:
                continue
            if isinstance(step, KernelStep) and len(places):
                for parent, part in self._through(step, places):
                    waiting.setdefault(parent, []).append(part)
            elif step.inputs:
                waiting.setdefault(step.inputs[0], []).append(places)
        return found

    def _nothing(self) -> dict[str, Places]:
        return {name: Places.none() for name in self.targets}

    # --- one step back ---

    def _through(self, step: KernelStep, places: Places) -> Iterator[tuple[str, Places]]:
        origin = self.tracer.index.origins(step.name, places)
        asks, kernel = step.kernel.asks(), step.kernel
        ranges = [
            [] if asked is None else [r for r in covering(kernel.spans(port, origin)) if r[1] >= 0]
            for port, asked in enumerate(asks)
        ]
        known = [
            Known.none() if asked is None else self._known((step.name, port), asked, ranges[port])
            for port, asked in enumerate(asks)
        ]
        if any(k is None for k in known):
            for port, asked in enumerate(asks):
                assert asked is not None
                base = chain_to(self.plan, step.inputs[port]).base
                yield base, self._all(base, ranges[port])
            return
        yield from zip(step.inputs, kernel.covers(origin, [k for k in known if k is not None]), strict=True)

    def _known(self, of: Input, asked: Asked, ranges: Sequence[Range]) -> Known | None:
        """What is known of an input's rows; None if they would have to be made again, of all that lies between."""
        chain, tracer = chain_to(self.plan, self.plan.steps[of[0]].inputs[of[1]]), self.tracer
        if is_stored(self.plan, chain.base):
            at_hand = all(s.on_arrow for s in chain.steps)
        else:
            logged = tracer.index.logged(of)
            at_hand = not any(without(logged, *part) for part in ranges)
        return tracer.known(of, asked, ranges) if at_hand or not ranges else None

    def _all(self, base: str, ranges: Sequence[Range]) -> Places:
        """All rows of a step within stamps."""
        if not ranges:
            return Places.none()
        if not is_stored(self.plan, base):
            return self.tracer.index.between(base, ranges).places
        stream = stored_as(self.plan, base)
        assert stream is not None, base
        return Places.concat([self.tracer.stored_places(stream, *part)[0] for part in near(ranges)])

    # --- where it begins ---

    def _outputs(self, since: int) -> Iterator[dict[str, list[Places]]]:
        for stream, step in self.plan.stored.items():
            if stream in self.plan.sources or step not in self.on_path:
                continue
            if stream in self.tracer.store.state.streams:
                places, _ = self.tracer.stored_places(stream, since + 1, None)
                for low in range(0, len(places), AT_ONCE):
                    yield {step: [Places(places.stamp[low : low + AT_ONCE], places.pos[low : low + AT_ONCE])]}

    def _held(self, step: KernelStep, port: int, state: State) -> tuple[str | None, Places]:
        """The rows that a box holds of an input; or, of the step it names, all that they can be of."""
        name = step.kernel.holding[port] if step.kernel.holding else None
        if name is None or not len(state[name]):
            return None, Places.none()
        table = state[name]
        stamp, pos = (np.asarray(table.column(c)) for c in (STAMP, POS))
        if FIRST_STAMP not in table.column_names:
            return None, Places(stamp, pos)
        # a pane stands for all rows from its first to its last
        span = (int(np.asarray(table.column(FIRST_STAMP)).min()), int(stamp.max()))
        asked = step.kernel.asks()[port]
        assert asked is not None
        known = self._known((step.name, port), asked, [span])
        if known is None:
            base = chain_to(self.plan, step.inputs[port]).base
            return base, self._all(base, [span])
        holds = step.kernel.holds(state, port, known)
        return None, Places(known.stamp[holds], known.pos[holds])


def _joined(parts: Sequence[Mapping[str, Places]]) -> dict[str, Places]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {n: Places.concat([part[n] for part in parts if n in part]).distinct()[0] for n in names}
