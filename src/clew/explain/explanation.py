"""An explanation: the tuples that answers are made of, box by box."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clew.engine.instrument import Instrumented
from clew.engine.lineage import stored_as
from clew.engine.plan import Plan
from clew.engine.stored import SEQ
from clew.errors import NotReplayed, UnknownStream, nearest
from clew.explain.answers import Answers
from clew.explain.back import Layer, Traced, trace_back
from clew.explain.trace import Tracer
from clew.model.places import Places
from clew.model.rows import STAMP, Rows
from clew.model.values import python_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from clew.explain.proof import Counterfactual, Proof


@dataclass(eq=False)
class Explanation:
    """What some tuples of an output are made of, in terms of sources or of any inner streams.

    Printed it is a tree along the network; `frame()` are the input tuples as a DataFrame, `tids` their names,
    `to_json()` all of it. `verify()` proves it by replaying; `counterfactual()` replays without the input tuples.
    """

    answers: Answers
    targets: Mapping[str, str]  # stream or box asked about -> step
    tracer: Tracer = field(repr=False)
    session: Callable[[], SparkSession] = field(repr=False)

    @property
    def plan(self) -> Plan:
        """The network's plan."""
        return self.tracer.plan

    @property
    def output(self) -> str:
        """The stream whose tuples are explained."""
        return self.answers.stream

    @cached_property
    def traced(self) -> Traced:
        """The walk back; made when something of it is first asked for."""
        places, _ = self.answers.places.distinct()
        return trace_back(self.tracer, self.plan.stored[self.output], places, set(self.targets.values()))

    @property
    def outside(self) -> tuple[str, ...]:
        """Boxes and streams on whose way nothing was asked about: they contribute nothing here."""
        return self.traced.outside

    @property
    def roles(self) -> dict[str, str]:
        """The part of each box in it, as the paper has them: "PG" generates, "PP" propagates, "PD" drops."""
        return Instrumented(self.plan, self.targets, {self.output: self.plan.stored[self.output]}).roles

    @property
    def replayed(self) -> dict[str, int]:
        """How many rows were made again to find it, by box: none where all of it was exact."""
        return self.traced.replayed

    def layer(self, name: str) -> Layer:
        """The rows of a stream or box asked about."""
        return self.traced.layers.get(self._step(name)) or Layer.none()

    def inputs(self, name: str | None = None) -> Rows:
        """The input tuples themselves, each once, in place order; made again where the stream is not stored."""
        name = self._one(name)
        return self.tracer.rows(self.targets[name], self.layer(name).places)

    @cached_property
    def tids(self) -> dict[str, dict[str, list[str]]]:
        """For each output tuple the tids of its input tuples, by stream; of a stream without tids their places."""
        found: dict[str, dict[str, list[str]]] = {self.answers.tid(i): {} for i in range(len(self.answers))}
        for name in self.targets:
            layer, names = self.layer(name), self._names(name)
            bounds = np.searchsorted(layer.owner, np.arange(len(self.answers) + 1)).tolist()
            for i, (tid, low) in enumerate(zip(found, bounds, strict=False)):
                found[tid][name] = [names[row] for row in layer.row[low : bounds[i + 1]].tolist()]
        return found

    def frame(self, stream: str | None = None) -> DataFrame:
        """The p-join: for each output tuple and each input tuple of it a row; output columns, then input columns.

        Input columns bear the name of their stream in front: `readings_celsius`. Of several streams, the rows of all
        one behind the other, `input` says of which. What a filter on it asks for reaches the scan of the archive.
        """
        from clew.explain.frames import joined

        names = list(self.targets) if stream is None else [self._one(stream)]
        return joined(self, names)

    def verify(self) -> Proof:
        """Replay, and check Definition 3.1 of Glavic et al.: both conditions, for each output tuple."""
        from clew.explain.proof import verify

        return verify(self)

    def counterfactual(self) -> Counterfactual:
        """Replay without the input tuples: is the output gone, changed, or do equal tuples stand in?"""
        from clew.explain.proof import counterfactual

        return counterfactual(self)

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        from clew.explain.telling import as_json

        return as_json(self)

    def text(self, answers: int = 5, rows: int = 6) -> str:
        """It as a tree: the first so many tuples, of each box so many rows."""
        from clew.explain.telling import as_text

        return as_text(self, answers, rows)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from clew.explain.telling import as_html

        return as_html(self)

    # --- parts ---

    def stored_as(self, name: str) -> str | None:
        """The stream under which the rows of a stream or box asked about are stored, if they are."""
        return stored_as(self.plan, self._step(name), name)

    def trigger(self, stamp: int) -> str:
        """The source tuple of a stamp: its tid; or what else moved the progress."""
        for stream in self.plan.sources:
            if stream in self.tracer.store.state.streams:
                table = self.tracer.store.read_table(stream, [SEQ], {STAMP: (stamp, stamp)})
                if len(table):
                    return f"{stream}:{table.column(SEQ)[0].as_py()}"
        moves = [] if "moves" not in self.tracer.store.state.tables else self._moves(stamp)
        if not moves:
            return "a tuple that has aged out"
        return "the end of the sources" if any(moves) else "progress without a tuple"

    def values(self, step: str, places: Places) -> list[dict[str, Any]] | None:
        """The rows of a step as dicts; None if they are not stored and cannot be made again."""
        try:
            return python_rows(self.tracer.rows(step, places).table)
        except NotReplayed:
            return None

    def _moves(self, stamp: int) -> list[bool]:
        """The moves of progress without a tuple at a stamp: for each whether it was the end."""
        table: pa.Table = self.tracer.store.read_table("moves", ["finish"], {STAMP: (stamp, stamp)}, kind="tables")
        return [bool(finish) for finish in table.column("finish").to_pylist()]

    def _names(self, name: str) -> list[str]:
        layer, stream = self.layer(name), self.stored_as(name)
        if stream is not None:
            return [f"{stream}:{seq}" for seq in self.tracer.seqs(stream, layer.places).tolist()]
        return [f"{name}@{s}.{p}" for s, p in zip(layer.places.stamp.tolist(), layer.places.pos.tolist(), strict=True)]

    def _step(self, name: str) -> str:
        if name not in self.targets:
            raise UnknownStream(
                f"the explanation does not tell of '{name}'",
                details=[f"it was asked about {', '.join(self.targets)}"],
                hint=nearest(name, self.targets) or f"ask for it: of='{name}'",
            )
        return self.targets[name]

    def _one(self, name: str | None) -> str:
        if name is None and len(self.targets) == 1:
            return next(iter(self.targets))
        if name is None:
            raise UnknownStream(
                "the explanation tells of several streams, say of which",
                details=[f"streams: {', '.join(self.targets)}"],
            )
        self._step(name)
        return name
