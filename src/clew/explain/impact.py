"""What depends on input tuples: outputs and inner rows made of them, and what may still be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.engine.lineage import stored_as
from clew.engine.plan import Plan
from clew.engine.stored import SEQ
from clew.errors import NetworkError, UnknownStream
from clew.explain.answers import Answers, answers, is_one, step_of, stored_stream
from clew.explain.back import Layer, trace_back
from clew.explain.explanation import Explanation
from clew.explain.forward import Forward, Held
from clew.explain.frames import Header
from clew.explain.telling import values_text
from clew.explain.trace import Tracer
from clew.model.rows import STAMP
from clew.model.values import python_rows
from clew.network.drawing import plain
from clew.network.naming import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 12
MOST_CHECKED = 10_000


@dataclass(eq=False)
class Impact:
    """What depends on some tuples of a stream.

    `tids`: the tuples of each output, by input tuple; `boxes`: how many rows each box made of them; `open`: the boxes
    that still hold some of them, or rows made of them, and can make further rows of these. Both tell of the boxes on
    the way to what was asked on.
    """

    answers: Answers  # the tuples asked about
    targets: Mapping[str, str]
    forward: Forward = field(repr=False)
    tracer: Tracer = field(repr=False)
    session: Callable[[], SparkSession] = field(repr=False)

    @property
    def boxes(self) -> dict[str, int]:
        """How many rows each box made of them; of boxes in `at_most` it is known only that they are no more."""
        ends = self.tracer.plan.ends
        made = {box: self.forward.layers[end] for box, end in ends.items() if end in self.forward.layers}
        return {box: len(layer.places) for box, layer in made.items() if box != self.answers.stream}

    @property
    def at_most(self) -> frozenset[str]:
        """Boxes that dropped rows, of which it cannot be told any more which; all that is stored is exact."""
        return frozenset(self.forward.at_most)

    @property
    def open(self) -> dict[str, int]:
        """The boxes that can still make rows of them, and of how many rows that they hold."""
        return dict(self.forward.open_)

    @cached_property
    def tids(self) -> dict[str, dict[str, list[str]]]:
        """For each tuple asked about the tids that depend on it, by stream; of a box without tids the places."""
        found: dict[str, dict[str, list[str]]] = {self.answers.tid(i): {} for i in range(len(self.answers))}
        for name in self.targets:
            layer, names = self._layer(name), self._names(name)
            for i, tid in enumerate(found):
                low, high = np.searchsorted(layer.owner, [i, i + 1]).tolist()
                found[tid][name] = [names[row] for row in layer.row[low:high].tolist()]
        return found

    def tuples(self, output: str) -> Answers:
        """The tuples of one output that depend on any of those asked about."""
        if output not in self.targets:
            raise UnknownStream(
                f"the impact does not tell of {shown(output)}",
                details=[f"it was asked on {', '.join(self.targets)}"],
                hint="ask for it: on=...",
            )
        stream = stored_stream(self.tracer.plan, self._stream(output) or output)
        return answers(self.tracer, stream, self._names(output))

    def frame(self, output: str | None = None) -> DataFrame:
        """The dependent tuples of an output, joined with the input tuples that they depend on: as `why` gives them."""
        if output is None and len(self.targets) != 1:
            raise UnknownStream(
                "the impact tells of several streams, say of which", details=[f"streams: {', '.join(self.targets)}"]
            )
        name = next(iter(self.targets)) if output is None else output
        found = Explanation(self.tuples(name), {self.answers.stream: self._start}, self.tracer, self.session)
        column = Header.of_names(found, [self.answers.stream]).of[self.answers.stream][0]
        frame = found.frame()
        return frame.where(frame[f"`{column}`"].isin([self.answers.tid(i) for i in range(len(self.answers))]))

    def verify(self) -> ImpactProof:
        """Explain the outputs behind these tuples, and see that exactly those found are made of them."""
        if not len(self.answers):
            return ImpactProof(0, ())
        wrong: list[str] = []
        checked = 0
        for name, step in self.targets.items():
            stream = self._stream(name)
            if stream is None or stream not in self.tracer.store.state.streams:
                continue
            first = int(self.answers.places.stamp.min())
            table = self.tracer.store.read_table(stream, [SEQ, STAMP], {STAMP: (first, None)})
            later = Answers.of(stream, self.tracer.store.read_table(stream, ranges=_first_of(table)))
            checked += len(later)
            if len(later):
                found = trace_back(self.tracer, step, later.places, {self._start}).layers.get(self._start)
                wrong += self._differences(name, later, found)
        return ImpactProof(checked, tuple(wrong))

    def to_json(self) -> dict[str, Any]:
        rows = python_rows(self.answers.table)
        tuples = []
        for i, (tid, found) in enumerate(self.tids.items()):
            tuples.append({"tid": tid, "row": plain(rows[i]), "outputs": found})
        known = {"boxes": self.boxes, "at_most": sorted(self.at_most), "open": self.open}
        return {"stream": self.answers.stream, "tuples": tuples, **known}

    def __str__(self) -> str:
        lines = []
        rows = python_rows(self.answers.table)
        for i, (tid, found) in enumerate(self.tids.items()):
            lines.append(f"{tid}  {values_text(rows[i])}")
            for name, tids in found.items():
                more = f", … {len(tids) - SHOWN:,} more" if len(tids) > SHOWN else ""
                lines.append(f"  {name}: {', '.join(tids[:SHOWN]) + more if tids else 'nothing'}")
        made = ", ".join(
            f"{box} {'at most ' if box in self.at_most else ''}{count:,}" for box, count in self.boxes.items() if count
        )
        lines.append(f"rows made of it, by box: {made or 'none'}")
        held = ", ".join(f"{box} (holds {count:,})" for box, count in self.open.items())
        lines.append(f"can still become part of rows of: {held}" if held else "nothing to come can depend on it")
        return "\n".join(lines)

    __repr__ = __str__

    # --- parts ---

    @property
    def _start(self) -> str:
        return self.tracer.plan.stored[self.answers.stream]

    def _layer(self, name: str) -> Layer:
        return self.forward.layers.get(self.targets[name]) or Layer.none()

    def _stream(self, name: str) -> str | None:
        return stored_as(self.tracer.plan, self.targets[name], name)

    def _names(self, name: str) -> list[str]:
        places, stream = self._layer(name).places, self._stream(name)
        if stream is None:
            return [f"{name}@{s}.{p}" for s, p in zip(places.stamp.tolist(), places.pos.tolist(), strict=True)]
        return [f"{stream}:{seq}" for seq in self.tracer.seqs(stream, places).tolist()]

    def _differences(self, name: str, later: Answers, found: Layer | None) -> list[str]:
        asked = self.answers.places
        own: set[str] = set()
        if found is not None:
            hit = asked.find(found.places)[found.row] >= 0
            own = {later.tid(i) for i in np.unique(found.owner[hit]).tolist()}
        told = {tid for tids in self.tids.values() for tid in tids[name]}
        told &= {later.tid(i) for i in range(len(later))}
        return [f"{tid} is made of it, and was not found" for tid in sorted(own - told)] + [
            f"{tid} is not made of it" for tid in sorted(told - own)
        ]


@dataclass(frozen=True)
class ImpactProof:
    """The outcome of `Impact.verify()`: how many outputs were explained, and what was wrong."""

    checked: int
    wrong: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.wrong

    def to_json(self) -> dict[str, Any]:
        return {"holds": bool(self), "checked": self.checked, "wrong": list(self.wrong)}

    def __str__(self) -> str:
        told = f"explained {self.checked:,} tuples that came from there on"
        return "\n".join([f"{'holds' if self else 'FAILS'}  {told}", *self.wrong])

    __repr__ = __str__


def impact(
    tracer: Tracer, found: Answers, targets: Mapping[str, str], held: Held, session: Callable[[], SparkSession]
) -> Impact:
    """Walk forward from some tuples of a stream."""
    step = tracer.plan.stored[found.stream]
    forward = Forward(tracer, step, found.places, set(targets.values()), held)
    return Impact(found, targets, forward, tracer, session)


def reached_by(plan: Plan, on: Any) -> dict[str, str]:
    """The streams or boxes whose rows are asked for; all outputs and kept streams if none are named."""
    if on is None:
        return {name: step for name, step in plan.stored.items() if name not in plan.sources}
    names: Iterable[Any] = [on] if is_one(on) else list(on)
    if not names:
        raise NetworkError("on=[] names no stream", hint="leave it out: then it is all outputs")
    return {str(name): step_of(plan, name) for name in names}


def _first_of(table: Any) -> dict[str, tuple[int, int]]:
    """The range of the first numbers, no more than are checked."""
    seqs = np.asarray(table.column(SEQ))
    return {SEQ: (int(seqs[0]), int(seqs[:MOST_CHECKED][-1]))} if len(seqs) else {SEQ: (0, 0)}


__all__ = ["Impact", "ImpactProof", "impact", "reached_by"]
