"""Provenance by query rewrite, as in Perm: the baseline that Ariadne was compared with.

Glavic et al., "Efficient Stream Provenance via Operator Instrumentation", §6.1 and Figure 11. clew's own lineage does
not work this way; this is here to be measured against it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from clew.errors import NotRewritable, told_of
from clew.model.axis import INFINITE, Span, is_float_axis, opposite, span_of
from clew.model.types import type_name
from clew.network.ascending import Known, is_by_value, known_of
from clew.network.boxes import (
    Box,
    CountWindow,
    Filter,
    Join,
    Map,
    Source,
    Union,
    ValueWindow,
    Window,
    WindowKind,
    joined_columns,
)
from clew.network.columns import quoted
from clew.network.naming import check_length
from clew.network.network import Network
from clew.network.stream import Stream

OUTPUT = "_provenance"  # behind the name of an output
_HINT = 'open the network itself with lineage="exact", which holds for every box'
_WHY = {
    "sort": "it holds a number of rows, and its rewritten input repeats rows",
    "drop": "it leaves rows out by their places, and its rewritten input repeats rows",
    "resample": "its windows lie around rows of another stream, and overlap without an order of their own",
    "apply": "no condition of a join says which rows user code makes a row of",
    "landmark": "all its windows begin at one value, so that each holds the rows of those before it",
    "latch": "its aggregates run over all rows so far, not over those of a window",
}


def rewritten(network: Network) -> Network:
    """The network, and for each output `X` an output `X_provenance`, which standard operators compute.

    It holds X's columns, then for each source stream S that X comes from the columns of S as `S_column`: one row for
    each row of X and each tuple that it is made of, the other sources' columns null; behind a join one for each
    combination, the columns of both sides filled. The boxes of the network keep their names and results; those that
    are added are named after the box that they stand for.

    Filters and maps carry the columns along; a union pads them with nulls; a join has those of both sides. A window is
    made a second time, over the same input, with the least and greatest value of a column that ascends, and joined
    with its rewritten input: equal groups, and a value between the two. The column is an order column of a source, or
    what `max` or `min` of one becomes; a value window must go by it, a count window needs it to be unique in its group.

    The join of a value window keeps rows for the span of the window. That of a count window knows no bound: it keeps
    every row of the rewritten input for good, and compares each window with all rows of its groups that came before,
    so that state grows without bound and time with its square. Each aggregation on the way multiplies the rows that
    the next one joins with. (The paper's ran out of memory at three.)

    Raises `NotRewritable` for what has no such form: sorts, drops, resamples, user code, landmarks, latches, outer
    joins, joins of a stream with itself, windows without such a column, names that would clash.
    """
    return _Rewriter(network).network()


@dataclass(frozen=True)
class _Annotated:
    """The rewritten stream of a box: its columns, then those of its sources, in the order of the network."""

    stream: Stream
    sources: tuple[Source, ...]


class _Rewriter:
    def __init__(self, network: Network) -> None:
        self.given, self.made = network, Network(network.name)
        self.boxes = {b.name: b for b in network.boxes}
        self.names = _Names(self.boxes)
        self.known: dict[str, Known] = {}
        self.plain: dict[str, Stream] = {}  # the boxes of the network, as they were
        self.annotated: dict[str, _Annotated] = {}

    def network(self) -> Network:
        for box in self.boxes.values():
            with told_of(self.what(box), box.at):
                self.known[box.name] = known_of(box, [self.known[i] for i in box.inputs])
            inputs = [self.plain[i] for i in box.inputs]
            columns, order = self.known[box.name].columns, box.order if isinstance(box, Source) else None
            self.plain[box.name] = self.made._add(box, columns, order, box.name, inputs)
        for stream, name in self.given.kept.items():
            self.plain[name].keep(stream)
        for stream, name in self.given.outputs.items():
            self.plain[name].output(stream)
        taken = {stream.lower() for stream in self.given.stored}
        for stream, name in self.given.outputs.items():
            if (clash := stream + OUTPUT).lower() in taken:
                why = f"its provenance would be stream '{clash}', and there is one so named"
                raise self.refusal(self.boxes[name], why)
            self.rewrite(name).stream.output(clash)
        return self.made

    # --- boxes ---

    def rewrite(self, name: str) -> _Annotated:
        """The annotated stream of a box; made once, however many boxes it feeds."""
        if name not in self.annotated:
            box = self.boxes[name]
            self.annotated[name] = found = self._rewrite(box)
            self.check_names(box, found.sources)
        return self.annotated[name]

    def _rewrite(self, box: Box) -> _Annotated:
        match box:
            case Source():
                items = {**_same(box.schema.names), **{out: quoted(c) for c, out in provenance(box).items()}}
                return _Annotated(self.map(box, "rewrite", self.plain[box.name], items), (box,))
            case Filter():
                below = self.rewrite(box.inputs[0])
                return _Annotated(self.add(box, "rewrite", box, below.stream.columns, below.stream), below.sources)
            case Map():
                below = self.rewrite(box.inputs[0])
                items = {**dict(box.columns), **_same(_carried(below.sources))}
                return _Annotated(self.map(box, "rewrite", below.stream, items), below.sources)
            case Union():
                return self._union(box)
            case Join():
                return self._join(box)
            case Window(window=CountWindow() | ValueWindow()):
                return self._window(box)
            case _:
                word = type(box.window).__name__.lower() if isinstance(box, Window) else box.kind
                raise self.refusal(box, _WHY[word])

    def _union(self, box: Union) -> _Annotated:
        parts = [self.rewrite(name) for name in box.inputs]
        sources = self.ordered(source for part in parts for source in part.sources)
        types = {out: s.schema.field(c).type for s in sources for c, out in provenance(s).items()}
        padded = []
        for name, part in zip(box.inputs, parts, strict=True):
            nulls = {out: f"CAST(NULL AS {type_name(kind)})" for out, kind in types.items()}
            items = {**_same(self.known[name].columns), **nulls, **_same(_carried(part.sources))}
            padded.append(self.map(box, "rewrite_padded", part.stream, items))
        return _Annotated(self.add(box, "rewrite", box, padded[0].columns, *padded), sources)

    def _join(self, box: Join) -> _Annotated:
        if box.how != "inner":
            raise self.refusal(box, "it is an outer join")
        for name, column in zip(box.inputs, box.on, strict=True):
            ascent = self.known[name].ascents.get(column)
            if ascent is None or not ascent.in_time:
                raise self.refusal(box, f"rows of its input '{name}' may come late by '{column}', which it joins on")
        left, right = (self.rewrite(name) for name in box.inputs)
        if both := [s.name for s in left.sources if s in right.sources]:
            raise self.refusal(
                box, f"both its inputs come from stream '{both[0]}', whose columns would stand there twice"
            )
        sources = self.ordered((*left.sources, *right.sources))
        names = joined_columns(left.stream.columns, right.stream.columns, box.keys, box.suffix)
        joined = self.add(box, "rewrite_join", box, (*left.stream.columns, *names.values()), left.stream, right.stream)
        items = _same([*self.known[box.name].columns, *_carried(sources)])
        return _Annotated(self.map(box, "rewrite", joined, items), sources)

    def _window(self, box: Window) -> _Annotated:
        """The windows once more, with their least and greatest values, joined with the rewritten input by these."""
        below, known = self.rewrite(box.inputs[0]), self.known[box.inputs[0]]
        column, columns = self.telling_column(box, known), self.known[box.name].columns
        carried = _carried(below.sources)
        free = _Names((*known.columns, *columns, *carried))
        least, most, at = free.name("rewrite_min"), free.name("rewrite_max"), free.name("rewrite_at")
        groups = _Groups.of(box.by, known, free)
        extremes = ((least, f"min({quoted(column)})"), (most, f"max({quoted(column)})"))
        windows = self.add(
            box, "rewrite_window", replace(box, aggregations=(*box.aggregations, *extremes)),
            (*columns, least, most), self.plain[box.inputs[0]],
        )  # fmt: skip
        if groups.keys:
            windows = self.map(box, "rewrite_groups", windows, {**_same(windows.columns), **groups.keys})
        theirs = {at: quoted(column), **groups.keys, **groups.right, **_same(carried)}
        rows = self.map(box, "rewrite_input", below.stream, theirs)
        keys = tuple((key, key) for key in groups.keys)
        where = " AND ".join([f"{least} <= {at}", *groups.conditions])
        with told_of(self.what(box), box.at):
            low = reach_back(box.window, known.types[column])
        join = Join("", (), (most, at), low, 0, keys, where, "inner", at=box.at)
        names = joined_columns(windows.columns, rows.columns, keys, join.suffix)
        joined = self.add(box, "rewrite_join", join, (*windows.columns, *names.values()), windows, rows)
        return _Annotated(self.map(box, "rewrite", joined, _same([*columns, *carried])), below.sources)

    def telling_column(self, box: Window, known: Known) -> str:
        """The column by whose least and greatest value the rows of a window are told."""
        name, window = box.inputs[0], box.window
        if isinstance(window, ValueWindow):
            ascent = known.ascents.get(window.on)
            if ascent is None or not ascent.in_time:
                raise self.refusal(box, f"rows of its input '{name}' may come late by '{window.on}', which it goes by")
            if not is_by_value(window, ascent, box.by):
                raise self.refusal(
                    box, f"its windows begin at a first tuple, and '{window.on}' does not ascend in '{name}'"
                )
            return window.on
        if (column := known.told_apart_by(box.by)) is None:
            where = f"within groups by {', '.join(box.by)}" if box.by else "over all rows"
            raise self.refusal(
                box, f"no column of its input '{name}' is known to ascend and to be unique {where}: a join could not "
                "tell its windows' rows",
            )  # fmt: skip
        return column

    # --- parts ---

    def add(self, of: Box, what: str, box: Box, columns: Sequence[str], *inputs: Stream) -> Stream:
        """A box of the rewriting of box `of`, named after it."""
        name = self.names.name(f"{of.name}.{what}")
        check_length(name, "a box", of.at)
        return self.made._add(replace(box, at=of.at), columns, None, name, inputs)

    def map(self, of: Box, what: str, stream: Stream, items: Mapping[str, str]) -> Stream:
        return self.add(of, what, Map("", (), tuple(items.items())), tuple(items), stream)

    def ordered(self, sources: Iterable[Source]) -> tuple[Source, ...]:
        """Each source once, in the order of the network."""
        found = {source.name for source in sources}
        return tuple(box for box in self.boxes.values() if isinstance(box, Source) and box.name in found)

    def check_names(self, box: Box, sources: Sequence[Source]) -> None:
        seen = {column.lower() for column in self.known[box.name].columns}
        for source in sources:
            for column, out in provenance(source).items():
                if out.lower() in seen:
                    why = (
                        f"column '{column}' of stream '{source.name}' would be '{out}', and there is a column so named"
                    )
                    raise self.refusal(box, why)
                seen.add(out.lower())

    def refusal(self, box: Box, why: str) -> NotRewritable:
        return NotRewritable(f"{self.what(box)} cannot be rewritten: {why}", hint=_HINT, at=box.at or None)

    def what(self, box: Box) -> str:
        return f"box '{self.given.name}.{box.name}' ({box.kind})"


class _Names:
    """Names that are taken, without regard to case."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {name.lower() for name in taken}

    def name(self, wish: str) -> str:
        """The name, or one that begins with it, if it is taken; it is taken from now on."""
        tries = (f"{wish}_{number}" if number > 1 else wish for number in itertools.count(1))
        found = next(name for name in tries if name.lower() not in self.taken)
        self.taken.add(found.lower())
        return found


@dataclass(frozen=True)
class _Groups:
    """How a join tells that groups are equal, nulls too, which its own keys would never match.

    `keys` are columns of both sides, never null; `right` ones of the right side, for the conditions. A column whose
    type is not known has no value to stand for null, and is compared pair by pair.
    """

    keys: Mapping[str, str]
    right: Mapping[str, str]
    conditions: Sequence[str]

    @staticmethod
    def of(by: Sequence[str], known: Known, free: _Names) -> _Groups:
        keys, right, conditions = {}, {}, []
        for column in by:
            plain, key = quoted(column), free.name("rewrite_key")
            keys[free.name("rewrite_null")] = f"{plain} IS NULL"
            instead = _some_value(known.types.get(column))
            if instead is not None:
                keys[key] = f"coalesce({plain}, {instead})"
            else:
                right[key] = plain
                conditions.append(f"({plain} = {key} OR {plain} IS NULL)")
        return _Groups(keys, right, conditions)


def _some_value(kind: pa.DataType | None) -> str | None:
    if kind is None:
        return None
    if pa.types.is_integer(kind):
        return "0"
    if pa.types.is_string(kind):
        return "''"
    return "false" if pa.types.is_boolean(kind) else None


def reach_back(window: WindowKind, kind: pa.DataType) -> Span:
    """How far behind the greatest value of a window its rows may lie; of a count window: as far as spans go."""
    floats = is_float_axis(kind)
    if isinstance(window, ValueWindow):
        # Rounded, the greatest value can lie a little further from the head than the span.
        return max(-2 * span_of(window.span, kind, "span"), -sys.float_info.max) if floats else opposite(window.span)
    if floats:
        return -sys.float_info.max
    if pa.types.is_timestamp(kind):
        return f"-{INFINITE - 1} us"
    return -((INFINITE - 1) // 10 ** (kind.scale if pa.types.is_decimal(kind) else 0))


def provenance(source: Source) -> dict[str, str]:
    """The columns of a source, and their names in an annotated stream.

    >>> net = Network("n")
    >>> _ = net.stream("s", "t LONG, x INT", order="t", key="t")
    >>> provenance(net.sources["s"])
    {'t': 's_t', 'x': 's_x'}
    """
    return {column: f"{source.name}_{column}" for column in source.schema.names}


def _carried(sources: Iterable[Source]) -> list[str]:
    return [out for source in sources for out in provenance(source).values()]


def _same(columns: Iterable[str]) -> dict[str, str]:
    return {column: quoted(column) for column in columns}
