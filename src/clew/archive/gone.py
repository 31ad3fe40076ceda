"""What has gone from a stream: the old end by its age, or here and there what no explanation needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.archive.record import FileEntry, Json, Pruned

MOST_HOLES = 256


@dataclass(frozen=True)
class Hole:
    """Between which seqs and stamps tuples went with one epoch, ends included; some that stay can lie between.

    `since` and `until`: of many epochs that left holes, the oldest are told as one.
    """

    seq: tuple[int, int]
    stamp: tuple[int, int]
    since: int
    until: int

    def to_json(self) -> list[int]:
        return [*self.seq, *self.stamp, self.since, self.until]

    @staticmethod
    def from_json(data: list[int]) -> Hole:
        return Hole((data[0], data[1]), (data[2], data[3]), data[4], data[5])

    def joined(self, other: Hole) -> Hole:
        seq, stamp = ((min(a[0], b[0]), max(a[1], b[1])) for a, b in ((self.seq, other.seq), (self.stamp, other.stamp)))
        return Hole(seq, stamp, min(self.since, other.since), max(self.until, other.until))

    def told(self, stream: str) -> str:
        """Which tuples are gone and since when, in words."""
        between = f"between {stream}:{self.seq[0]} and {stream}:{self.seq[1]}"
        return f"tuples of stream '{stream}' {between} are gone since epoch {self.when}"

    @property
    def when(self) -> str:
        return f"{self.since}" if self.since == self.until else f"{self.since} to {self.until}"


@dataclass
class Gone:
    """What has gone from a stream: seqs, stamps and orders up to these, the last of it in `epoch`.

    `first` is the epoch in which the oldest of it came in; an earlier clew did not note it. `holes`: between which
    tuples some are gone; empty if they are all up to `seq`. What aged out is an unbroken run from the beginning.
    """

    rows: int
    seq: int | None
    stamp: int | None
    order: float | int | None
    epoch: int
    first: int | None = None
    holes: list[Hole] = field(default_factory=list)

    @property
    def went(self) -> str:
        """What has become of it."""
        return "been pruned" if self.holes else "aged out"

    @property
    def told(self) -> str:
        """How far, in words."""
        return f"has {self.went} up to seq {self.seq} in epoch {self.epoch}"

    def all_holes(self) -> list[Hole]:
        """What is gone as holes."""
        whole = Hole((1, self.seq or 0), (0, self.stamp or 0), self.epoch, self.epoch)
        return self.holes or [whole]

    def holes_at(self, low: int, high: int) -> list[Hole]:
        """The holes between two stamps, ends included."""
        return [h for h in self.all_holes() if h.stamp[0] <= high and h.stamp[1] >= low]

    def tells_of(self, stream: str, seqs: Iterable[int]) -> list[str]:
        """In words, of some numbers that are no more, since when; nothing of those that never were."""
        told = []
        for seq in seqs:
            found = [h for h in self.all_holes() if h.seq[0] <= seq <= h.seq[1]]
            if found:
                told.append(f"{stream}:{seq} is gone since epoch {' or '.join(h.when for h in found)}")
        return told

    def to_json(self) -> Json:
        return {**vars(self), "holes": [hole.to_json() for hole in self.holes]}

    @staticmethod
    def from_json(data: Json) -> Gone:
        return Gone(**{**data, "holes": [Hole.from_json(hole) for hole in data.get("holes", ())]})


def aged(old: Gone | None, entries: Sequence[FileEntry], order: str | None, epoch: int) -> Gone:
    """What is gone once these buckets at the old end are too."""

    def greatest(column: str | None, before: float | int | None) -> Any:
        bounds = [entry.stats[column][1] for entry in entries if column is not None and column in entry.stats]
        known = [value for value in (*bounds, before) if value is not None]
        return max(known, default=None)

    lows = [int(low) for entry in entries if (low := entry.stats.get("_epoch", (None,))[0]) is not None]
    holes = list(old.holes) if old else []
    if holes:  # all up to the newest that goes is gone now
        seq, stamp = (greatest(name, None) or 0 for name in ("_seq", "_stamp"))
        holes = _few([Hole((1, int(seq)), (0, int(stamp)), epoch, epoch), *holes])
    return Gone(
        rows=sum(entry.rows for entry in entries) + (old.rows if old else 0),
        seq=greatest("_seq", old.seq if old else None),
        stamp=greatest("_stamp", old.stamp if old else None),
        order=greatest(order, old.order if old else None),
        epoch=epoch,
        first=old.first if old else min(lows, default=None),
        holes=holes,
    )


def pruned(old: Gone | None, parts: Sequence[Pruned], epoch: int) -> Gone:
    """What is gone once these parts are too."""
    bounds = [((p.seq[0], p.seq[1]), (p.stamp[0], p.stamp[1])) for p in parts]
    hole = Hole(
        (min(s[0] for s, _ in bounds), max(s[1] for s, _ in bounds)),
        (min(s[0] for _, s in bounds), max(s[1] for _, s in bounds)),
        epoch,
        epoch,
    )
    before = old.all_holes() if old else []
    came = min(p.epoch for p in parts)
    return Gone(
        rows=sum(p.rows for p in parts) + (old.rows if old else 0),
        seq=max(hole.seq[1], (old.seq or 0) if old else 0),
        stamp=max(hole.stamp[1], (old.stamp or 0) if old else 0),
        order=max([p.order[1] for p in parts] + ([old.order] if old and old.order is not None else [])),
        epoch=epoch,
        first=min(came, old.first or 1) if old else came,
        holes=_few([*before, hole]),
    )


def _few(holes: list[Hole]) -> list[Hole]:
    """The oldest told as one where there are too many."""
    while len(holes) > MOST_HOLES:
        holes = [holes[0].joined(holes[1]), *holes[2:]]
    return holes
