"""What an ordered operator must answer, and what it answers with.

A kernel is a pure function over Arrow and NumPy: `run(state, inputs, progress) -> Emission`. It has no
Spark in it, sees all groups of a partition at once, and gives the same rows, order and origins however
its inputs are cut into calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from clew.model.groups import codes_of, group_hash, sort_by
from clew.model.places import Places, among_places
from clew.model.rows import NEVER, POS, STAMP, Bools, Ints, Rows
from clew.model.steps import Steps
from clew.operators.lineage import Asked, Known, Links, Picked, Ranged, Span
from clew.operators.progress import between

if TYPE_CHECKING:
    from clew.operators.replay import Change, Checkpoint, History, Reach

NO_FLOOR = int(np.iinfo(np.int64).min)  # never the bits of a floor: as a float it is -0.0
CALL_ROWS = 1_000_000  # that a call of a kernel takes in, or few more

State = Mapping[str, pa.Table]
"""What a kernel keeps between calls: named Arrow tables, nothing pickled."""


@dataclass(frozen=True, eq=False)
class Origin:
    """For each emitted row, what it is made of in the kernel's own input; its trigger is its stamp.

    First and last row within the group (windows), the row twice (sort, union, one-to-one), or the pair
    (join; `last_stamp` is -1 in an outer row). `tag` is where a value window or the row of a sort stands on
    its axis (the bits of it on a float axis), the number of a landmark's or latch's window, the input of a
    union, else 0. `floor`, where there is one: rows between first and last that had come and stand below it (in a
    window anchored at a tuple: not above it) are none of the row's; the bits of it on a float axis.
    """

    first_stamp: Ints
    first_pos: Ints
    last_stamp: Ints
    last_pos: Ints
    tag: Ints
    floor: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # none given: there are none

    def __post_init__(self) -> None:
        if len(self.floor) != len(self.tag):
            object.__setattr__(self, "floor", np.full(len(self.tag), NO_FLOOR))

    def __len__(self) -> int:
        return len(self.tag)

    @staticmethod
    def of_rows(rows: Rows, tag: Ints | int = 0) -> Origin:
        """Each row is made of one input row."""
        tags = np.full(len(rows), tag, np.int64) if isinstance(tag, int) else tag
        return Origin(rows.stamp, rows.pos, rows.stamp, rows.pos, tags)

    def take(self, index: Ints) -> Origin:
        return Origin(*(a[index] for a in self.arrays()))

    def arrays(self) -> tuple[Ints, ...]:
        return self.first_stamp, self.first_pos, self.last_stamp, self.last_pos, self.tag, self.floor

    @property
    def first(self) -> Places:
        return Places(self.first_stamp, self.first_pos)

    @property
    def last(self) -> Places:
        return Places(self.last_stamp, self.last_pos)

    def to_table(self) -> pa.Table:
        return pa.table([pa.array(a) for a in self.arrays()], names=list(ORIGIN_COLUMNS))

    @staticmethod
    def from_table(table: pa.Table) -> Origin:
        return Origin(*(np.asarray(table.column(c)) for c in ORIGIN_COLUMNS))

    @staticmethod
    def concat(parts: Sequence[Origin]) -> Origin:
        return Origin(*(np.concatenate(arrays) for arrays in zip(*(p.arrays() for p in parts), strict=True)))


ORIGIN_COLUMNS = ("first_stamp", "first_pos", "last_stamp", "last_pos", "tag", "floor")


@dataclass(frozen=True, eq=False)
class Refused:
    """Rows that a kernel does not take: late ones, or ones on which it failed, each with its reason."""

    rows: Rows
    reasons: tuple[str, ...]
    port: int = 0


@dataclass(frozen=True, eq=False)
class Emission:
    """What a kernel gives back.

    `rows` are sorted by stamp, then by the `tie` columns; `pos` counts them within their stamp. The ties
    put the rows of several partitions into the one order of the algebra (`merge`).
    """

    rows: Rows
    tie: tuple[pa.Array, ...]
    origin: Origin
    state: State
    late: tuple[Refused, ...] = field(default=())
    rejected: tuple[Refused, ...] = field(default=())


class Kernel(ABC):
    """One ordered operator over given input schemas."""

    #: the columns each input is partitioned by; () means that one partition must see all of it
    keys: tuple[tuple[str, ...], ...]
    #: the column of each input whose progress the kernel asks for; None where it needs none
    progress_on: tuple[str | None, ...]
    #: what it emits, visible columns only
    schema: pa.Schema
    #: the columns by which each table of the state is partitioned, in the order of `keys`
    state_keys: Mapping[str, tuple[str, ...]]
    #: the emitted columns that tell groups apart; () where all rows are one group
    grouped_by: tuple[str, ...] = ()
    #: for each input the table of the state that holds its rows which rows to come can be made of
    holding: tuple[str | None, ...] = ()
    #: whether its rows can be made again from what they are made of, and nothing else
    remakes: bool = True

    @abstractmethod
    def empty(self) -> State:
        """The state before the first row."""

    @abstractmethod
    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        """Take the rows of one call in, close what progress passes, emit."""

    def group_of(self, emitted: pa.Table) -> Ints:
        """The hash of each emitted row's group, as `owners` has it of the inputs."""
        return group_hash(emitted, self.grouped_by)

    # --- what explanations ask (the values are in `lineage`) ---

    def asks(self) -> tuple[Asked | None, ...]:
        """What must be known of the rows of each input to say which an emitted row is made of.

        None where an origin names the row, or there is none.
        """
        return (None,) * len(self.keys)

    def spans(self, port: int, origin: Origin) -> Span:  # noqa: ARG002
        """Between which places the rows lie that rows are made of, at an input that is asked about."""
        return Span(origin.first, origin.last)

    def ends(self, port: int) -> tuple[str, str]:  # noqa: ARG002
        """The columns of origins that bound, as stamps, which rows of an input an emitted row can be made of."""
        return "first_stamp", "first_stamp" if self.asks()[0] is None else "last_stamp"

    def links(
        self,
        origin: Origin,
        known: Sequence[Known],  # noqa: ARG002
        wanted: Sequence[Known] | None = None,  # noqa: ARG002
    ) -> tuple[Links, ...]:
        """For each input which of its rows the emitted rows of these origins are made of.

        `known` are, where asked for, all rows that the kernel took within the spans. `wanted`: there only these rows
        are told of.
        """
        return (Links.one_each(origin.first_stamp, origin.first_pos),)

    def covers(self, origin: Origin, known: Sequence[Known]) -> tuple[Places, ...]:
        """For each input the rows that any of these origins' rows are made of, and perhaps some between them."""
        return tuple(links.places for links in self.links(origin, known))

    def ranged(
        self, port: int, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None
    ) -> Ranged:
        """As `links` of an input that is asked about, but as ranges: as long as the rows, whatever windows hold."""
        rows = (wanted or known)[port]
        links = self.links(origin, known, wanted)[port]
        bounds = np.searchsorted(links.owner, np.arange(len(origin) + 1))
        return Ranged(Places(rows.stamp, rows.pos).find(links.places), bounds[:-1], bounds[1:])

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:  # noqa: ARG002
        """The visible columns of the rows of these origins, made of the input rows that `links` names."""
        return inputs[0].table.take(pa.array(picked[0].row)).select(self.schema.names).cast(self.schema)

    def holds(self, state: State, port: int, known: Known) -> Bools:
        """Which of these rows of an input can still become part of rows to come."""
        name = self.holding[port] if self.holding else None
        if name is None:
            return np.zeros(len(known), np.bool_)
        held = state[name]
        places = (np.asarray(held.column(STAMP)), np.asarray(held.column(POS)))
        return among_places((known.stamp, known.pos), places)

    # --- what revisions ask (the values are in `replay`) ---

    @abstractmethod
    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """Which rows it emitted, or would emit, can differ.

        `changes` says for each input which rows go and come; `before` and `after` are all of the inputs'
        progress without and with the change. Rows it refuses differ at the changed places or within the reach.
        """

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...] | None:  # noqa: ARG002
        """For each input the stamp from which on its rows are needed to `resume` at `stamp`.

        `stamp` itself: none are. None: only the nearest checkpoint will do, and the rows behind it.
        """
        return None

    def resume(
        self,
        stamp: int,
        past: Sequence[Rows],
        progress: Sequence[Steps],
        history: History,  # noqa: ARG002
        checkpoint: Checkpoint | None = None,
    ) -> State:
        """The state just before the step `stamp`, such that what it emits from there on are the rows it did emit.

        `past` are the rows before it, from where `needs` says on; with a checkpoint, those behind that. `progress`
        is all of it. By itself a kernel runs from the checkpoint, or from the beginning, over the rows between.
        """
        state, last = (self.empty(), -1) if checkpoint is None else (checkpoint.state, checkpoint.stamp)
        return self.run(state, past, [between(steps, last, stamp) for steps in progress]).state


@runtime_checkable
class Combining(Protocol):
    """A kernel that can take its rows summed up: in any process, slice by slice, before they are kept or moved."""

    #: columns that `combine` only tells groups by: it takes them as Arrow dictionaries too
    encoded: tuple[str, ...]

    def combine(self, rows: Rows, progress: Steps) -> Rows | None:
        """Rows in place order summed up, one or none for many; None if the kernel must see them one by one."""

    def run_combined(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        """As `run`, over what `combine` made of consecutive slices of its one input."""


def positions(stamp: Ints) -> Ints:
    """0, 1, 2, ... within each run of equal stamps.

    >>> positions(np.array([4, 4, 7])).tolist()
    [0, 1, 0]
    """
    if not len(stamp):
        return stamp
    starts = np.flatnonzero(np.append(True, stamp[1:] != stamp[:-1]))
    return np.arange(len(stamp)) - np.repeat(starts, np.diff(np.append(starts, len(stamp))))


def merge(parts: Sequence[Emission]) -> tuple[Rows, Origin]:
    """The rows of all partitions in the order of the algebra, their positions counted anew."""
    if len(parts) == 1:
        return parts[0].rows, parts[0].origin
    rows = Rows.concat([p.rows for p in parts])
    ties = [codes_of(pa.chunked_array(columns)) for columns in zip(*(p.tie for p in parts), strict=True)]
    order = sort_by(rows.stamp, *ties)
    rows = rows.take(order)
    merged = Rows(rows.table, rows.stamp, positions(rows.stamp), rows.ident)
    return merged, Origin.concat([p.origin for p in parts]).take(order)


def join_emissions(parts: Sequence[Emission]) -> Emission:
    """The emissions of consecutive calls as that of one."""
    if len(parts) == 1:
        return parts[0]
    full = [p for p in parts if len(p.rows)] or parts[-1:]
    return Emission(
        Rows.concat([p.rows for p in full]),
        tuple(pa.concat_arrays(columns) for columns in zip(*(p.tie for p in full), strict=True)),
        Origin.concat([p.origin for p in full]),
        parts[-1].state,
        tuple(r for p in parts for r in p.late),
        tuple(r for p in parts for r in p.rejected),
    )


def run_in_parts(kernel: Kernel, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
    """As `run`, in calls of about `CALL_ROWS` rows each, so that what a call needs beside them is bounded.

    Rows of one stamp stay together.
    """
    if sum(len(rows) for rows in inputs) <= CALL_ROWS:
        return kernel.run(state, inputs, progress)
    stamps = np.sort(np.concatenate([rows.stamp for rows in inputs]))
    lasts = np.unique(stamps[CALL_ROWS - 1 : -1 : CALL_ROWS]).tolist()  # of each part but the last
    made: list[Emission] = []
    for low, high in pairwise([-1, *lasts, NEVER - 1]):
        bounds = [np.searchsorted(rows.stamp, [low, high], side="right").tolist() for rows in inputs]
        part = [rows.slice(*b) for rows, b in zip(inputs, bounds, strict=True)]
        made.append(kernel.run(state, part, [between(steps, low, high + 1) for steps in progress]))
        state = made[-1].state
    return join_emissions(made)


def split_state(kernel: Kernel, state: State, count: int) -> list[State]:
    """The state as `count` partitions hold it."""
    parts: list[dict[str, pa.Table]] = [{} for _ in range(count)]
    for name, table in state.items():
        owner = owners(table, kernel.state_keys[name], count)
        for i, part in enumerate(parts):
            part[name] = table.filter(pa.array(owner == i))
    return list(parts)


def join_state(parts: Sequence[State]) -> State:
    """The inverse of `split_state`."""
    return {name: pa.concat_tables([p[name] for p in parts]).combine_chunks() for name in parts[0]}


def owners(table: pa.Table, keys: Sequence[str], count: int) -> Ints:
    """Which of `count` partitions each row belongs to."""
    if not keys or count == 1:
        return np.zeros(len(table), np.int64)
    return (group_hash(table, keys).astype(np.uint64) % np.uint64(count)).astype(np.int64)
