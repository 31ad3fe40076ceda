"""Networks: boxes joined by streams, checked while they are built, before Spark starts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from clew.errors import (
    DuplicateName,
    NetworkError,
    SchemaError,
    UnknownColumn,
    UnknownStream,
    nearest,
    told_of,
)
from clew.model.axis import Span, is_orderable, span_of
from clew.model.schema import parse_schema
from clew.model.types import type_name
from clew.network import drawing
from clew.network.boxes import LINEAGE, Box, Source
from clew.network.naming import Spot, calling_spot, check_length, shown
from clew.network.stream import Stream


class Network:
    """A directed acyclic graph of boxes, built from its sources forward.

    >>> net = Network("overheating")
    >>> readings = net.stream("readings", "ts LONG, sensor INT, celsius DOUBLE", order="ts", key=["ts", "sensor"])
    >>> hot = readings.filter("celsius > 90").output("hot")
    >>> net
    Network 'overheating'
      readings  source  ts LONG?...
    """

    def __init__(self, name: str) -> None:
        if not name or not isinstance(name, str):
            raise NetworkError("a network needs a name")
        self.name = name
        self._boxes: list[Box] = []  # named provisionally, by their number
        self._written: list[_Written] = []
        self._outputs: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def stream(
        self,
        name: str,
        schema: str,
        *,
        order: str,
        key: str | Sequence[str],
        key_span: Span | None = None,
        lateness: Span = 0,
        retention: Span | None = None,
        max_ahead: Span | None = None,
    ) -> Stream:
        """A source stream: its schema, the column that orders it, and the columns that identify a tuple.

        The key holds the order column, or `key_span` says within what span of it a key is unique.
        Tuples newer than the newest minus `lateness` wait for their elders; older ones count as late.
        `retention` bounds the archive: to a span of the order, or with `"lineage"` to what explanations can need.
        A tuple further ahead than `max_ahead` waits until time comes near.
        """
        at = calling_spot().text
        _check_name(name, at)
        what = f"stream '{self.name}.{name}'"
        with told_of(what, at):
            columns = parse_schema(schema)
        keys = _key_columns(columns, order, key, key_span is not None, what, at)
        kind = columns.field(order).type
        bound = None if retention == LINEAGE else retention
        spans: dict[str, Span | None] = {"retention": bound, "max_ahead": max_ahead, "key_span": key_span}
        given: dict[str, Span] = {"lateness": lateness} | {w: span for w, span in spans.items() if span is not None}
        for word, span in given.items():
            with told_of(what, at):
                if span_of(span, kind, word) < 0:
                    raise SchemaError(f"{what} has a negative {word}: {span!r}", at=at)
        source = Source(name, (), columns, order, keys, key_span, lateness, retention, max_ahead, at=at)
        self._claim_stream(name, at)
        return self._add(source, columns.names, order, name)

    @staticmethod
    def of(name: str, boxes: Iterable[Box], outputs: Mapping[str, str], kept: Mapping[str, str]) -> Network:
        """A network of boxes under their final names, inputs before those that they feed: as `boxes` gives them."""
        network, numbers = Network(name), dict[str, int]()
        for number, box in enumerate(boxes):
            numbers[box.name] = number
            inputs = tuple(str(numbers[parent]) for parent in box.inputs)
            network._boxes.append(dataclasses.replace(box, inputs=inputs))
            network._written.append(_Written(Spot("<unknown>", 0, (0, 0), None), box.name))
        network._outputs = {stream: numbers[box] for stream, box in outputs.items()}
        network._kept = {stream: numbers[box] for stream, box in kept.items()}
        return network

    # --- what stands in it ---

    @property
    def boxes(self) -> tuple[Box, ...]:
        """All boxes under their final names, inputs before those that they feed."""
        names = self._names()
        return tuple(
            dataclasses.replace(box, name=names[i], inputs=tuple(names[int(n)] for n in box.inputs))
            for i, box in enumerate(self._boxes)
        )

    @property
    def sources(self) -> dict[str, Source]:
        """The source streams' boxes by name."""
        return {b.name: b for b in self.boxes if isinstance(b, Source)}

    @property
    def outputs(self) -> dict[str, str]:
        """Output streams, and the box that feeds each."""
        names = self._names()
        return {output: names[i] for output, i in self._outputs.items()}

    @property
    def kept(self) -> dict[str, str]:
        """Inner streams that are stored, and the box that feeds each."""
        names = self._names()
        return {stream: names[i] for stream, i in self._kept.items()}

    @property
    def stored(self) -> dict[str, str]:
        """All streams that get tids: sources, outputs and kept ones, with the box that feeds each."""
        return {**{name: name for name in self.sources}, **self.outputs, **self.kept}

    def box(self, name: str) -> Box:
        """The box of that name; `UnknownStream` names those there are."""
        found = {b.name: b for b in self.boxes}
        if name not in found:
            raise UnknownStream(
                f"network '{self.name}' has no box '{name}'",
                details=[f"boxes: {', '.join(found)}"],
                hint=nearest(str(name), found),
            )
        return found[name]

    def __repr__(self) -> str:
        return drawing.as_text(self)

    def graph(self, form: str = "mermaid") -> str | dict[str, Any]:
        """The network as Mermaid text (`"mermaid"`), as a JSON-ready dict (`"json"`), or as SVG (`"svg"`)."""
        forms: dict[str, Callable[[Network], Any]]
        forms = {"mermaid": drawing.as_mermaid, "json": drawing.as_json, "svg": drawing.as_svg}
        if form not in forms:
            raise NetworkError(f"no form '{form}' of a graph", details=[f"forms: {', '.join(forms)}"])
        drawn: str | dict[str, Any] = forms[form](self)
        return drawn

    def _repr_html_(self) -> str:
        return drawing.as_svg(self)

    # --- how it grows; called by Stream ---

    def _add(
        self, box: Box, columns: Sequence[str], order: str | None, name: str | None, inputs: Sequence[Stream] = ()
    ) -> Stream:
        for stream in inputs:
            if stream._network is not self:
                raise NetworkError(
                    f"network '{self.name}' cannot use a stream of network '{stream._network.name}'", at=box.at or None
                )
        number = len(self._boxes)
        self._boxes.append(dataclasses.replace(box, name=name or "", inputs=tuple(str(s._number) for s in inputs)))
        if name is not None and any(w.given == name for w in self._written):
            self._boxes.pop()
            raise DuplicateName(f"network '{self.name}' has two boxes named '{name}'", at=box.at or None)
        self._written.append(_Written(calling_spot(), name))
        return Stream(self, number, tuple(columns), order)

    def _provisional_name(self, kind: str, name: str | None) -> str:
        """What a box that fails its checks is called in the error."""
        return f"{self.name}.{name or calling_spot().target or kind}"

    def _claim_stream(self, name: str, at: str) -> None:
        taken = [*self._outputs, *self._kept, *(b.name for b in self._boxes if isinstance(b, Source))]
        if any(name.lower() == t.lower() for t in taken):
            raise DuplicateName(f"network '{self.name}' already has a stream named '{name}'", at=at)

    def _mark(self, table: str, stream: Stream, name: str) -> None:
        at = calling_spot().text
        _check_name(name, at)
        self._claim_stream(name, at)
        (self._outputs if table == "output" else self._kept)[name] = stream._number

    def _names(self) -> list[str]:
        """Given names; else the last box of a statement takes the variable's name, those before it `variable.kind`."""
        taken = {w.given for w in self._written if w.given}
        inner: set[int] = set()
        for written, box in zip(self._written, self._boxes, strict=True):
            inner |= {i for i in map(int, box.inputs) if self._written[i].spot.written_with(written.spot)}
        names: list[str] = []
        for number, (written, box) in enumerate(zip(self._written, self._boxes, strict=True)):
            wish = written.given
            if wish is None:
                target = written.spot.target
                wish = f"{target}.{box.kind}" if target and number in inner else target or box.kind
                wish = _free(wish, taken)
                taken.add(wish)
            names.append(wish)
        return names


@dataclasses.dataclass(frozen=True)
class _Written:
    """Where a box was written, and the name that it was given there."""

    spot: Spot
    given: str | None


def _check_name(name: object, at: str) -> None:
    """A stream's name is that of a folder, too."""
    if isinstance(name, str) and name[:1].isalpha() and re.sub(r"[-_.]", "", name).isalnum():
        check_length(name, "a stream", at)
        return
    shown_name = f"'{name}'" if isinstance(name, str) else shown(name)
    raise NetworkError(
        f"{shown_name} cannot name a stream", hint="use letters, digits, '_', '-' and '.', a letter first", at=at
    )


def _key_columns(schema: pa.Schema, order: object, key: object, spanned: bool, what: str, at: str) -> tuple[str, ...]:
    """The columns of a source's key, checked as its order is; `spanned`: it has a `key_span`."""
    if not isinstance(order, str):
        raise NetworkError(f"{what} has order={shown(order)}", hint="the name of a column", at=at)
    keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else (None,)
    if not keys or not all(isinstance(column, str) for column in keys):
        raise NetworkError(f"{what} has key={shown(key)}", hint="the name of a column, or a list of them", at=at)
    for column in (order, *keys):
        if column not in schema.names:
            raise UnknownColumn(
                f"{what} has no column '{column}'",
                details=[f"columns: {', '.join(schema.names)}"],
                hint=nearest(column, schema.names),
                at=at,
            )
    kind = schema.field(order).type
    if not is_orderable(kind):
        raise SchemaError(
            f"{what} cannot be ordered by '{order}', which is {type_name(kind).upper()}",
            hint="an order is a number, a date, a timestamp, or a decimal of at most 18 digits",
            at=at,
        )
    for column in keys:
        if pa.types.is_nested(schema.field(column).type):
            kind_text = type_name(schema.field(column).type).upper()
            raise SchemaError(f"{what} cannot have '{column}' in its key, which is {kind_text}", at=at)
    if order not in keys and not spanned:
        raise SchemaError(
            f"{what} has a key without its order column '{order}'",
            hint=f"add '{order}' to the key, or say within what span of it a key is unique: key_span=...",
            at=at,
        )
    return keys


def _free(name: str, taken: Iterable[str]) -> str:
    count, candidate = 1, name
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
