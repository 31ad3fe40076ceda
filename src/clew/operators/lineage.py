"""What rows are made of: which input rows an origin stands for.

An origin names rows (one, or a pair) or the ends of a window. Which rows between the ends are in it follows from
little: the place of each input row, its group, and where it stands on the window's axis (`Known`). That is the
provenance set of Glavic et al., "Efficient Stream Provenance", §3.2, with the window's tuple list shared by all
windows of a box instead of copied into each (§5, §6.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clew.model.axis import Axis, axis_of
from clew.model.groups import group_hash
from clew.model.places import Places, place_codes
from clew.model.ranges import spread
from clew.model.rows import Bools, Ints, Rows

MOST_LINKS = 100_000_000  # in memory at once; each takes some 24 bytes


@dataclass(frozen=True)
class Asked:
    """The columns of an input that tell which windows a row stands in: those that group it, and the axis."""

    by: tuple[str, ...] = ()
    on: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.by, *(() if self.on is None else (self.on,)))))


@dataclass(frozen=True, eq=False)
class Known:
    """Rows of one input in place order, each with the hash of its group, and the bits of where it stands (else 0)."""

    stamp: Ints
    pos: Ints
    group: Ints
    on: Ints

    def __len__(self) -> int:
        return len(self.stamp)

    @staticmethod
    def of(rows: Rows, asked: Asked) -> Known:
        """What is known of rows that hold the columns asked for; without those that stand nowhere on the axis."""
        on = np.zeros(len(rows), np.int64)
        if asked.on is not None:
            axis, stands = axis_of(rows.table.column(asked.on))
            if not stands.all():
                rows, axis = rows.filter(stands), axis[stands]
            on = axis.view(np.int64)
        group = group_hash(rows.table, asked.by) if asked.by else np.zeros(len(rows), np.int64)
        return Known(rows.stamp, rows.pos, group, on)

    @staticmethod
    def of_places(rows: Rows | Places) -> Known:
        """Rows of an input of which nothing is asked."""
        nothing = np.zeros(len(rows), np.int64)
        return Known(rows.stamp, rows.pos, nothing, nothing)

    @property
    def places(self) -> Places:
        return Places(self.stamp, self.pos)

    @staticmethod
    def none() -> Known:
        return Known(*(np.empty(0, np.int64) for _ in range(4)))

    @staticmethod
    def concat(parts: Sequence[Known]) -> Known:
        """Parts that follow each other in place order."""
        if len(parts) == 1:
            return parts[0]
        arrays = zip(*((p.stamp, p.pos, p.group, p.on) for p in parts), strict=True)
        return Known(*(np.concatenate(a) for a in arrays)) if parts else Known.none()

    def filter(self, keep: Bools) -> Known:
        return Known(self.stamp[keep], self.pos[keep], self.group[keep], self.on[keep])

    def take(self, index: Ints) -> Known:
        return Known(self.stamp[index], self.pos[index], self.group[index], self.on[index])


@dataclass(frozen=True, eq=False)
class Links:
    """Which input rows which emitted rows are made of: number of the emitted row, and place of the input row."""

    owner: Ints
    places: Places

    def __len__(self) -> int:
        return len(self.owner)

    @staticmethod
    def none() -> Links:
        return Links(np.empty(0, np.int64), Places.none())

    @staticmethod
    def one_each(stamp: Ints, pos: Ints) -> Links:
        return Links(np.arange(len(stamp)), Places(stamp, pos))

    def take(self, index: Ints | Bools) -> Links:
        return Links(self.owner[index], self.places.take(index))

    @staticmethod
    def concat(parts: Sequence[Links]) -> Links:
        if not parts:
            return Links.none()
        return Links(np.concatenate([p.owner for p in parts]), Places.concat([p.places for p in parts]))


@dataclass(frozen=True, eq=False)
class Picked:
    """As `Links`, over rows at hand: number of the emitted row, ascending, and index of the input row."""

    owner: Ints
    row: Ints

    def ranges(self, owners: int) -> tuple[Ints, Ints]:
        """From where to where the rows of each emitted row stand."""
        bounds = np.searchsorted(self.owner, np.arange(owners + 1))
        return bounds[:-1], bounds[1:]

    def ordered(self, *keys: Axis) -> Picked:
        """The rows of each emitted row by keys, the first one deciding."""
        order = np.lexsort((*reversed(keys), self.owner))
        return Picked(self.owner[order], self.row[order])


@dataclass(frozen=True, eq=False)
class Span:
    """From which place to which the input rows of each emitted row lie, ends included."""

    first: Places
    last: Places

    def take(self, index: Ints | Bools) -> Span:
        return Span(self.first.take(index), self.last.take(index))


class MissingRows(LookupError):
    """Rows that origins name are not among those that are known."""

    def __init__(self, places: Places) -> None:
        super().__init__(f"{len(places)} rows are missing")
        self.places = places


class TooManyLinks(ValueError):
    """More links than can be held at once."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count:,} links")
        self.count = count


def heads(known: Known, places: Places) -> Ints:
    """Where these places are among the rows known; `MissingRows` if some are not."""
    found = known.places.find(places)
    if (found < 0).any():
        raise MissingRows(places.take(found < 0))
    return found


@dataclass(frozen=True, eq=False)
class Ranged:
    """The rows that emitted rows are made of as ranges: of row i they are among `order[lo[i]:hi[i]]`.

    `order` are indices of known rows, those of a group together in place order, so that windows share it. `inside`
    says of pairs (emitted row, known row) which count; none, or none told: all do.
    """

    order: Ints
    lo: Ints
    hi: Ints
    inside: Callable[[Ints, Ints], Bools | None] | None = None

    def pairs(self, some: Ints | slice = slice(None)) -> tuple[Ints, Ints]:
        """All (number of the emitted row, index of the known row) that count; of some emitted rows only."""
        lo, hi = self.lo[some], self.hi[some]
        if int((hi - lo).sum()) > MOST_LINKS:
            raise TooManyLinks(int((hi - lo).sum()))
        at, place = spread(lo, hi - lo)
        row, owner = self.order[at], np.arange(len(self.lo))[some][place]
        keep = None if self.inside is None else self.inside(owner, row)
        return (owner, row) if keep is None or keep.all() else (owner[keep], row[keep])


def covered(span: Span, group: Ints, known: Known) -> Places:
    """The rows that lie in some span of their group: the covering intervals of §4.3, group by group.

    However many spans hold a row, it costs no more than one.
    """
    ranges = within(span, group, known)
    begun, ended = (np.bincount(ends, minlength=len(ranges.order) + 1) for ends in (ranges.lo, ranges.hi))
    found = ranges.order[np.cumsum(begun - ended)[:-1] > 0]
    return Places(known.stamp[found], known.pos[found])


def within(span: Span, group: Ints, known: Known) -> Ranged:
    """The known rows of its group within each span."""
    codes, first, last = place_codes(
        (known.stamp, known.pos), (span.first.stamp, span.first.pos), (span.last.stamp, span.last.pos)
    )
    rank = np.unique(np.concatenate([known.group, group]), return_inverse=True)[1]
    order = np.argsort(rank[: len(known)], kind="stable")
    width = int(max(codes.max(initial=0), first.max(initial=0), last.max(initial=0))) + 1
    keys = rank[: len(known)][order] * width + codes[order]
    mine = rank[len(known) :] * width
    lo = np.searchsorted(keys, mine + first, side="left")
    return Ranged(order, lo, np.maximum(np.searchsorted(keys, mine + last, side="right"), lo))


def covering(span: Span) -> list[tuple[int, int]]:
    """The spans merged where they touch or overlap, as ranges of stamps."""
    order = np.argsort(span.first.stamp, kind="stable")
    low, high = span.first.stamp[order], span.last.stamp[order]
    peak = np.maximum.accumulate(high) if len(high) else high
    starts = np.append(True, low[1:] > peak[:-1] + 1)[: len(low)]
    ends = np.append(np.flatnonzero(starts)[1:], len(low))[: int(starts.sum())]
    return list(zip(low[starts].tolist(), peak[ends - 1].tolist(), strict=True))
