"""What a revision asks of a box: how far a change of its inputs reaches, and how the box resumes in the middle.

A replay resumes at the first changed place (`first_change`), before which the box did what it would do
again; it feeds the changed rows from there on and may stop behind the last reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from clew.model.groups import group_hash
from clew.model.places import place_codes
from clew.model.rows import NEVER, Bools, Ints, Rows
from clew.model.steps import Steps
from clew.operators.base import Kernel, Origin, State
from clew.operators.progress import differing

_ALL = 0  # stands for the group where no group is told from another


@dataclass(frozen=True, eq=False)
class Change:
    """What happens to one input: the rows that go and the rows that come, both in place order.

    A replaced row is in both, at one place. No other row has changed or stands elsewhere than before.
    """

    gone: Rows
    come: Rows

    @staticmethod
    def none(schema: pa.Schema) -> Change:
        return Change(Rows.empty(schema), Rows.empty(schema))

    def equal(self, gone: Ints, come: Ints) -> tuple[Bools, Bools]:
        """Which rows that go are replaced in place by one with the same number, and which rows replace such a one."""
        left, right = place_codes((self.gone.stamp, self.gone.pos), (self.come.stamp, self.come.pos))
        _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        same = gone[i] == come[j]
        masks = np.zeros(len(gone), np.bool_), np.zeros(len(come), np.bool_)
        masks[0][i[same]], masks[1][j[same]] = True, True
        return masks

    def net(self) -> tuple[Ints, Ints, Ints]:
        """Stamp and position of each changed place, ascending, and how many more rows come than go there."""
        stamp = np.concatenate([self.gone.stamp, self.come.stamp])
        pos = np.concatenate([self.gone.pos, self.come.pos])
        more = np.repeat([-1, 1], [len(self.gone), len(self.come)])
        _, first, where = np.unique(place_codes((stamp, pos))[0], return_index=True, return_inverse=True)
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, where, more)
        return stamp[first], pos[first], sums


@dataclass(frozen=True)
class Reach:
    """Rows a box emits that may differ: those of `groups` (hashes; None: of all) with `low <= stamp <= high`.

    NEVER is the stamp of what has not been emitted yet: where `high` is NEVER, the state may differ too.
    `moves` says that rows of the reach may appear or vanish. Then rows of any group that are emitted in the
    same steps may stand at other positions in them, and are otherwise the same.
    """

    low: int
    high: int
    groups: frozenset[int] | None = None
    moves: bool = False

    def holds(self, stamp: int, group: int) -> bool:
        return self.low <= stamp <= self.high and (self.groups is None or group in self.groups)


@dataclass(frozen=True, eq=False)
class History:
    """What a box has done: its origin index, the rows it refused as late, and the state it is in now.

    `group` is the hash of each emitted row's group (`Kernel.group_of`). `late` holds such rows of each input;
    their positions are not read. `leading` says of each input whether progress is at least the value of each
    row once the row's step is in: that of a source, sort or window is, that of a union or join need not be.
    """

    stamp: Ints
    origin: Origin
    group: Ints
    late: tuple[Rows, ...]
    leading: tuple[bool, ...]
    state: State

    def only(self, kernel: Kernel, groups: frozenset[int]) -> History:
        """The history of some groups."""
        wanted = np.array(sorted(groups), np.int64)

        def of(table: pa.Table, keys: Sequence[str]) -> Bools:
            return np.isin(group_hash(table, keys), wanted)

        keep = np.isin(self.group, wanted)
        late = tuple(r.filter(of(r.table, keys)) for r, keys in zip(self.late, kernel.keys, strict=True))
        state = {n: t.filter(pa.array(of(t, kernel.state_keys[n]))) for n, t in self.state.items()}
        index = np.flatnonzero(keep)
        return History(self.stamp[index], self.origin.take(index), self.group[index], late, self.leading, state)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A kernel's state behind the step `stamp`."""

    stamp: int
    state: State


def first_change(changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps]) -> int:
    """The first stamp at which rows or progress differ; NEVER if nothing does."""
    stamps = [r.stamp for c in changes for r in (c.gone, c.come)]
    stamps += [differing(b, a)[0] for b, a in zip(before, after, strict=True)]
    return int(np.concatenate([np.array([NEVER]), *stamps]).min())


class Reaches:
    """Collects intervals of stamps, and makes of them as few as say the same."""

    def __init__(self, grouped: bool) -> None:
        self._grouped = grouped
        self._parts: list[tuple[Ints, Ints, Ints, Bools, Bools]] = []  # low, high, group, of all groups, moves

    def add(
        self, low: Ints | int, high: Ints | int, group: Ints | int | None = None, moves: Bools | bool = True
    ) -> None:
        """Intervals of the groups given; of all groups if None."""
        everywhere = group is None or not self._grouped
        arrays = np.broadcast_arrays(
            np.atleast_1d(low), high, _ALL if everywhere or group is None else group, everywhere, moves
        )
        self._parts.append((arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]))

    def done(self) -> tuple[Reach, ...]:
        low, high, group, everywhere, moves = (
            np.concatenate([np.empty(0, kind), *(part[i] for part in self._parts)])
            for i, kind in enumerate((np.int64, np.int64, np.int64, np.bool_, np.bool_))
        )
        emits = high >= 0  # what came out before all that is remembered is not asked for
        order = np.lexsort((low, moves, group, everywhere))
        order = order[emits[order]]
        low, high, group, everywhere, moves = (a[order] for a in (low, high, group, everywhere, moves))
        start = np.ones(len(low), np.bool_)
        start[1:] = (group[1:] != group[:-1]) | (everywhere[1:] != everywhere[:-1]) | (moves[1:] != moves[:-1])
        found: dict[tuple[int, int, bool, bool], set[int]] = {}
        bounds = np.append(np.flatnonzero(start), len(low)).tolist()
        for first, stop in pairwise(bounds):
            peak = np.maximum.accumulate(high[first:stop])
            cut = np.append(True, low[first + 1 : stop] - 1 > peak[:-1])
            ends = np.append(np.flatnonzero(cut)[1:], stop - first) - 1
            for a, b in zip(low[first:stop][cut].tolist(), peak[ends].tolist(), strict=True):
                key = (a, b, bool(everywhere[first]), bool(moves[first]))
                found.setdefault(key, set()).add(int(group[first]))
        return tuple(
            Reach(a, b, None if whole else frozenset(groups), moving)
            for (a, b, whole, moving), groups in sorted(found.items(), key=lambda item: item[0])
        )


def steps_of(change: Change) -> tuple[Reach, ...]:
    """The reach of a box that makes of each row what it makes, whatever the others are: the steps that changed."""
    found = Reaches(grouped=False)
    stamps = np.concatenate([change.gone.stamp, change.come.stamp])
    found.add(stamps, stamps)
    return found.done()


class ByGroup:
    """Rows by group: `of(group)` are their indices, ascending."""

    def __init__(self, group: Ints) -> None:
        self._order = np.argsort(group, kind="stable")
        self._group = group[self._order]

    def of(self, group: int) -> Ints:
        return self._order[slice(*np.searchsorted(self._group, [group, group + 1]))]
