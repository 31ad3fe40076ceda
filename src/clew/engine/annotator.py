"""Provenance annotated streams, P(O, I): annotations carried from box to box while epochs run.

The steps between the streams of I and O are annotated (`instrument`), by the wrapper in `annotating`. What a box may
still make rows of keeps its annotations in memory between epochs, each row's once, whatever windows share it, and goes
as soon as the box holds it no more. That is a cache: after a restart what rows are made of is looked up, when rows made
of it first come, in the lineage that is stored (`Past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from clew.engine.annotating import Taken, annotated, locate, nothing, of_sets, singles, stack, take, trimmed
from clew.engine.evaluate import BoxStates, Lane, Pass
from clew.engine.instrument import Instrumented, key_of
from clew.engine.lineage import Input, stored_as
from clew.engine.plan import KernelStep, SourceStep, Stateless
from clew.errors import LineageError, TooOld
from clew.model.axis import is_float_axis
from clew.model.encodings import Encoding
from clew.model.places import Places
from clew.model.rows import POS, STAMP, Bools, Ints, Stamps
from clew.model.tid_sets import Ranges, TidSets
from clew.operators.lineage import Asked, Known, MissingRows

POS_BITS = 23  # of a place as one number; 40 are left for stamps

Columns = dict[str, Ranges]


class Past(Protocol):
    """What was before the engine was opened."""

    def known(self, of: Input, asked: Asked, low: int, high: int) -> Known:
        """What is known of the rows that a kernel took at an input from one stamp to another."""

    def annotations(self, step: str, places: Places, targets: Mapping[str, str]) -> dict[str, TidSets]:
        """By stream asked about what rows of a step are made of there; the places ascend."""


@dataclass(frozen=True, eq=False)
class Line:
    """Numbers at equal distances."""

    first: int
    step: int
    count: int


def packed(values: Ints) -> Ints | Line:
    """Numbers as they are kept: no room for those at equal distances, and none for a list they are a part of."""
    steps = np.diff(values)
    if not len(steps) or (steps == steps[0]).all():
        first, step = (int(values[0]) if len(values) else 0), (int(steps[0]) if len(steps) else 0)
        return Line(first, step, len(values))
    return values if values.base is None else values.copy()


def unpacked(values: Ints | Line) -> Ints:
    """The inverse of `packed`."""
    return values.first + values.step * np.arange(values.count) if isinstance(values, Line) else values


@dataclass(frozen=True, eq=False)
class Held:
    """Rows of an input that rows to come may be made of, each with its annotations.

    All there are that stand at or behind the stamp `since`; of those before it some or none.
    """

    since: int
    rows: tuple[Ints | Line, ...]
    lists: Mapping[str, tuple[Ints | Line, ...]]

    @staticmethod
    def of(since: int, known: Known, columns: Columns) -> Held:
        rows = tuple(packed(a) for a in (known.stamp, known.pos, known.group, known.on))
        tight = {name: trimmed(column) for name, column in columns.items()}
        return Held(since, rows, {n: tuple(packed(a) for a in (c.base, c.lo, c.hi)) for n, c in tight.items()})

    @property
    def known(self) -> Known:
        return Known(*map(unpacked, self.rows))

    @property
    def columns(self) -> Columns:
        return {name: Ranges(*map(unpacked, arrays)) for name, arrays in self.lists.items()}

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        arrays = [*self.rows, *(a for arrays in self.lists.values() for a in arrays)]
        return sum(a.nbytes for a in arrays if not isinstance(a, Line))


@dataclass(frozen=True, eq=False)
class Ran:
    """An epoch that has run and is not committed: what boxes made, held before, and how tuples are numbered."""

    result: Pass[Any]
    lane: Lane[Any]
    before: BoxStates
    stamp: int  # the last before the epoch
    stamps: Mapping[str, Stamps]  # of the sources
    first_seq: Mapping[str, int]  # of the stored streams


Helds = Mapping[tuple[int, Input], Held]


class Annotator:
    """Carries the annotations of all outputs that shall have them; `held` is what it has between epochs."""

    def __init__(self, networks: Sequence[Instrumented], encoding: Encoding, past: Past, stamp: int) -> None:
        self.networks, self.encoding, self.past, self._opened = networks, encoding, past, stamp
        self.held: Helds = {}

    @property
    def logged(self) -> frozenset[Input]:
        return frozenset(of for network in self.networks for of in network.logged)

    def inputs_of(self, stream: str) -> dict[str, str]:
        """The streams by which an output is annotated, each with its key in the store; none if it is not."""
        found = (network for network in self.networks if stream in network.outputs)
        return {name: key_of(n.plan, step) for n in found for name, step in n.targets.items()}

    @property
    def held_bytes(self) -> int:
        """The memory that it takes between epochs."""
        return sum(held.nbytes for held in self.held.values())

    def run(self, ran: Ran) -> tuple[dict[str, Columns], Helds]:
        """By output and stream in I the annotations of an epoch's rows; and what to hold once it is committed."""
        made: dict[str, Columns] = {}
        held: dict[tuple[int, Input], Held] = {}
        for number, network in enumerate(self.networks):
            mine = {of: h for (n, of), h in self.held.items() if n == number}
            carried = _Carried(network, ran, mine, self.past, self._opened)
            for step in network.kernels:
                carried.kernel(step)
            for stream, step_name in network.outputs.items():
                made[stream] = carried.output(step_name)
            held |= {(number, of): h for of, h in carried.held.items()}
        return made, held


class _Carried:
    """One epoch of one instrumented network."""

    def __init__(self, network: Instrumented, ran: Ran, held: Mapping[Input, Held], past: Past, opened: int) -> None:
        self.network, self.plan, self.ran, self.past = network, network.plan, ran, past
        self.before, self.opened = held, opened
        self.held: dict[Input, Held] = {}
        self.made: dict[str, Columns] = {}  # by kernel step, of the rows it emitted in this epoch

    def output(self, step: str) -> Columns:
        """The annotations of all rows that a step emitted, in their order."""
        places = self._emitted(step)
        found = self.at(step, places)
        return {name: found.get(name) or nothing(len(places)) for name in self.network.targets}

    def kernel(self, step: KernelStep) -> None:
        origin = self.ran.result.named[step.name].origin
        taken = []
        for port, asked in enumerate(step.kernel.asks()):
            taken.append(self._linked(step, port) if asked is None else self._asked(step, port, asked))
        if len(origin):
            try:
                self.made[step.name] = annotated(step.kernel, origin, taken)
            except MissingRows as error:
                raise _gone(step.box, error) from error
        else:
            self.made[step.name] = {name: nothing(0) for name in self.network.leads[step.name]}
        for port, asked in enumerate(step.kernel.asks()):
            self._hold(step, port, taken[port], linked=asked is None)

    # --- rows of this epoch ---

    def at(self, step: str, places: Places) -> Columns:
        """The annotations of some of the rows that a step emitted in this epoch, by the streams that lead to it."""
        names = self.network.leads[step]
        while isinstance(self.plan.steps[step], Stateless) and step not in self.network.targets.values():
            (step,) = self.plan.steps[step].inputs  # what passes keeps its place, and with it its annotations
        if step in self.network.targets.values():
            return dict.fromkeys(names, singles(self._tids(step, places)))
        if not names:
            return {}
        index = locate(self._emitted(step), places)
        return {name: take(column, index) for name, column in self.made[step].items()}

    def _emitted(self, step: str) -> Places:
        """The places of the rows that a step emitted in this epoch."""
        if step in self.ran.result.named:
            named = self.ran.result.named[step]
            return Places(named.stamp, named.pos)
        if isinstance(self.plan.steps[step], SourceStep):
            stamps = self.ran.stamps[step].array()
            return Places(stamps, np.zeros(len(stamps), np.int64))
        rows = self.ran.lane.rows_of(self.ran.result.flows[step], ())
        return Places(rows.stamp, rows.pos)

    def _tids(self, step: str, places: Places) -> Ints:
        """The tuples' seqs where the stream is stored; else their places as numbers."""
        stream = stored_as(self.plan, step)
        if stream is None:
            return place_tids(places, self.plan.steps[step].box)
        return self.ran.first_seq[stream] + locate(self._emitted(step), places)

    # --- what kernels took ---

    def _asked(self, step: KernelStep, port: int, asked: Asked) -> Taken:
        """All rows of an input that emitted rows may be made of: those held, and those of this epoch."""
        of, parent = (step.name, port), step.inputs[port]
        held = self._reaching(step, port, asked)
        new = self.ran.result.logs[of]
        old, mine = held.columns, self.at(parent, Places(new.stamp, new.pos))
        columns = {n: stack([old[n], c]) if n in old else c for n, c in mine.items()}
        real = asked.on is not None and is_float_axis(self.plan.steps[parent].schema.field(asked.on).type)
        return Taken(Known.concat([held.known, new]), columns, real)

    def _reaching(self, step: KernelStep, port: int, asked: Asked) -> Held:
        """What is held of an input, as far back as the emitted rows reach."""
        of = (step.name, port)
        held = self.before.get(of) or Held.of(self.opened + 1, Known.none(), {})
        span = step.kernel.spans(port, self.ran.result.named[step.name].origin)
        low = int(span.first.stamp[span.last.stamp >= 0].min(initial=held.since))
        if low >= held.since:
            return held
        known = self.past.known(of, asked, low, held.since - 1)
        known = known.filter(step.kernel.holds(self._state(step, before=True), port, known))
        columns = self._past(step.inputs[port], Places(known.stamp, known.pos))
        both = {n: stack([c, held.columns[n]]) if n in held.lists else c for n, c in columns.items()}
        return Held.of(low, Known.concat([known, held.known]), both)

    def _linked(self, step: KernelStep, port: int) -> Taken:
        """The rows that origins name: of this epoch, held, or of before."""
        if not self.network.leads[step.inputs[port]]:
            return Taken(Known.none(), {})
        origin = self.ran.result.named[step.name].origin
        links = step.kernel.links(origin, [Known.none()] * len(step.inputs))[port]
        places, _ = links.places.distinct()
        old = places.stamp <= self.ran.stamp
        parts = [self._of_before(step, port, places.take(old)), self.at(step.inputs[port], places.take(~old))]
        return Taken(Known.of_places(places), {name: stack([p[name] for p in parts]) for name in parts[1]})

    def _of_before(self, step: KernelStep, port: int, places: Places) -> Columns:
        """The annotations of rows that came in earlier epochs."""
        held = self.before.get((step.name, port))
        names = self.network.leads[step.inputs[port]]
        index = np.full(len(places), -1)
        if held is not None:
            known = held.known
            index = locate(Places(known.stamp, known.pos), places)
        missing = index < 0
        if not missing.any():
            return (
                dict.fromkeys(names, nothing(0)) if held is None else {n: take(held.columns[n], index) for n in names}
            )
        found = self._past(step.inputs[port], places.take(missing))
        if held is None or missing.all():
            return found
        first, mine = len(held.known), held.columns
        index[missing] = first + np.arange(int(missing.sum()))
        return {n: take(stack([mine[n], found[n]]), index) for n in names}

    def _past(self, step: str, places: Places) -> Columns:
        names = self.network.leads[step]
        if not names or not len(places):
            return dict.fromkeys(names, nothing(0))
        found = self.past.annotations(step, places, self.network.targets)
        return {name: of_sets(found[name]) for name in names}

    # --- what is held ---

    def _hold(self, step: KernelStep, port: int, taken: Taken, *, linked: bool) -> None:
        """Keep the annotations of the rows that the kernel can still make rows of."""
        of, state = (step.name, port), self._state(step)
        if linked:
            name = step.kernel.holding[port] if step.kernel.holding else None
            if name is None or not self.network.leads[step.inputs[port]]:
                return
            self._hold_places(step, port, Places(*(np.asarray(state[name].column(c)) for c in (STAMP, POS))))
            return
        keep: Bools = step.kernel.holds(state, port, taken.known)
        index = np.flatnonzero(keep)
        before = self.before.get(of)
        since = self.opened + 1 if before is None else before.since
        if len(taken.known):
            since = min(since, int(taken.known.stamp[0]))
        self.held[of] = Held.of(since, taken.known.take(index), {n: take(c, index) for n, c in taken.columns.items()})

    def _hold_places(self, step: KernelStep, port: int, places: Places) -> None:
        """Of rows that a state names: those of this epoch, and those that were held; others wait to be looked up."""
        of, (places, _) = (step.name, port), places.distinct()
        new = places.take(places.stamp > self.ran.stamp)
        held, columns = self.before.get(of), self.at(step.inputs[port], new)
        if held is not None:
            known, old = held.known, places.take(places.stamp <= self.ran.stamp)
            index = locate(Places(known.stamp, known.pos), old)
            there = index[index >= 0]
            columns = {n: stack([take(held.columns[n], there), c]) for n, c in columns.items()}
            new = Places.concat([old.take(index >= 0), new])
        self.held[of] = Held.of(0, Known.of_places(new), columns)

    def _state(self, step: KernelStep, *, before: bool = False) -> Any:
        states = self.ran.before if before else self.ran.result.states
        return states.kernels.get(step.name) or step.kernel.empty()


def _gone(box: str, error: MissingRows) -> TooOld:
    return TooOld(
        f"box '{box}' still held tuples when the store was opened that have aged out: its rows cannot be annotated",
        details=[f"{len(error.places)} are gone, the first of stamp {int(error.places.stamp.min())}"],
        hint="open it without annotate until these windows have closed; or with a longer retention from the start",
    )


def place_tids(places: Places, box: str) -> Ints:
    """Places of a box's rows as tids: the stamp, then the position.

    >>> place_tids(Places(np.array([1, 2]), np.array([0, 3])), "box").tolist()
    [8388608, 16777219]
    """
    if (places.pos >> POS_BITS).any() or (places.stamp >> (63 - POS_BITS)).any():
        raise LineageError(
            f"box '{box}' made more rows in one step than can be told apart without tids",
            details=[f"it made more than {1 << POS_BITS:,}"],
            hint=f"give box '{box}' a .keep(): then its tuples have tids",
        )
    return (places.stamp << POS_BITS) | places.pos


def places_of_tids(tids: Ints) -> Places:
    """The inverse of `place_tids`."""
    return Places(tids >> POS_BITS, tids & ((1 << POS_BITS) - 1))
