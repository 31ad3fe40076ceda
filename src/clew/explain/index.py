"""The lineage that a store holds: origins of what boxes emitted, and logs of what they took in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from clew.archive.store import Store
from clew.engine import stored
from clew.engine.lineage import Input, log_mark
from clew.engine.marks import step_mark
from clew.engine.plan import Plan
from clew.errors import Untraced
from clew.model.groups import sort_by
from clew.model.places import Places
from clew.model.rows import NEVER, POS, STAMP, Ints
from clew.operators.base import Origin
from clew.operators.lineage import Known

Range = tuple[int, int]  # of stamps, ends included

NEAR = 20_000  # stamps between two ranges that are read as one: a row group holds more
MOST_READS = 64


@dataclass(frozen=True, eq=False)
class Emitted:
    """Rows of a box in place order: where they stand, and their origins."""

    places: Places
    origin: Origin

    def take(self, index: Ints) -> Emitted:
        return Emitted(self.places.take(index), self.origin.take(index))

    @staticmethod
    def of(table: pa.Table) -> Emitted:
        stamp, pos, *origin, _ = stored.origins_from(table)
        return Emitted(Places(stamp, pos), Origin(*origin))


class Index:
    """Reads no more of the lineage than the places asked for lie in."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store

    def origins(self, step: str, places: Places) -> Origin:
        """The origins of the rows at these places, one each; `Untraced` if one was not noted."""
        mark = step_mark(self._plan, step)
        found = Emitted.of(self._read(mark, near(runs_of(places.stamp))))
        at = found.places.find(places)
        if (at < 0).any():
            raise self._untraced(step, mark, int(places.stamp[at < 0][0]))
        return found.origin.take(at)

    def between(self, step: str, ranges: Sequence[Range]) -> Emitted:
        """All that a box emitted within these stamps (ascending ranges); `Untraced` if some of it was not noted."""
        mark = step_mark(self._plan, step)
        for low, high in ranges:
            gaps = without(self.covered(mark), low, min(high, self._store.state.stamp))
            if gaps:
                raise self._untraced(step, mark, gaps[0][0])
        found = Emitted.of(self._read(mark, near(ranges)))
        lows, highs = (np.array(ends, np.int64) for ends in zip(*ranges, strict=True))
        at = np.searchsorted(lows, found.places.stamp, side="right") - 1
        return found.take(np.flatnonzero((at >= 0) & (found.places.stamp <= highs[at])))

    def around(self, step: str, ends: tuple[str, str], places: Places) -> Emitted:
        """All that a box emitted that reaches over the stamps of these places; `ends` are the columns that tell.

        `Untraced` if something that it emitted since then was not noted: it may.
        """
        low, high = int(places.stamp.min()), int(places.stamp.max())
        mark = step_mark(self._plan, step)
        if gaps := without(self.covered(mark), low, self._store.state.stamp):
            raise self._untraced(step, mark, gaps[0][0])
        first, last = ends
        reaching: dict[str, tuple[int | None, int | None]] = {last: (low, None)}
        reaching[first] = (low if first == last else None, high)
        found = Emitted.of(self._read(mark, [(low, None)], reaching))
        begin, end = (getattr(found.origin, name) for name in ends)
        return found.take(np.flatnonzero((begin <= high) & (end >= low)))

    def log(self, of: Input, low: int, high: int) -> Known:
        """What was logged of an input within these stamps."""
        stamp, pos, *_, on, _, group = stored.origins_from(self._read(log_mark(self._plan, of), [(low, high)]))
        return Known(stamp, pos, group, on)

    def logged(self, of: Input) -> list[Range]:
        """The stamps of which there is a log."""
        return self.covered(log_mark(self._plan, of))

    def covered(self, mark: str) -> list[Range]:
        """The stamps of which lineage was written under a mark."""
        return [(low, high) for low, high in self._store.state.lineage.get("covers", {}).get(mark, [])]

    def _read(
        self,
        mark: str,
        ranges: Sequence[tuple[int, int | None]],
        more: Mapping[str, tuple[int | None, int | None]] | None = None,
    ) -> pa.Table:
        columns = stored.OWN_ORIGINS_SCHEMA.names
        parts = [stored.OWN_ORIGINS_SCHEMA.empty_table()]
        tables = [(stored.ORIGINS, {"of": mark}), (stored.own_origins(mark), None)]
        for found in ranges:
            within = {STAMP: found, **(more or {})}
            for name, equals in tables:
                if name in self._store.state.tables:
                    parts.append(
                        self._store.read_table(
                            name, columns, within, equals=equals, or_null=stored.AS_STAMP, kind="tables"
                        )
                    )
        table = pa.concat_tables([*parts, *self._held(mark, ranges)])
        stamp, pos = (np.asarray(table.column(c).fill_null(0)) for c in (STAMP, POS))
        order = sort_by(stamp, pos)  # a box that was new wrote its past in a later epoch
        return table if (np.diff(order) > 0).all() else table.take(pa.array(order))

    def _held(self, mark: str, ranges: Sequence[tuple[int, int | None]]) -> list[pa.Table]:
        """What of it the epoch records still hold; narrowed down to the stamps only."""
        found = []
        ends = [(low, NEVER if high is None else high) for low, high in ranges]
        held = [
            part
            for part in self._store.state.lineage.get("rows", [])
            if part[0] == mark and any(part[1][STAMP][0] <= high and part[1][STAMP][-1] >= low for low, high in ends)
        ]
        for _, table in stored.index_from_json(held):
            stamp = np.asarray(table.column(STAMP))
            within = np.logical_or.reduce([(stamp >= low) & (stamp <= high) for low, high in ends])
            rows = stored.index_rows(table.filter(pa.array(within)), mark)
            found.append(rows.select(stored.OWN_ORIGINS_SCHEMA.names))
        return found

    def _untraced(self, step: str, mark: str, stamp: int) -> Untraced:
        box = self._plan.steps[step].box
        gap = next((g for g in without(self.covered(mark), 1, self._store.state.stamp) if g[0] <= stamp <= g[1]), None)
        modes = [f"from epoch {e} on: {m.get(box, m['*'])}" for e, m in self._store.state.lineage.get("modes", [])]
        details = [] if gap is None else [f"nothing was noted from stamp {gap[0]} to {gap[1]}"]
        return Untraced(
            f"box '{box}' has no lineage of what it made at stamp {stamp}",
            details=[*details, f"its modes: {'; '.join(modes) or 'none'}"],
            hint="open the store with lineage='exact' or 'interval': what comes then can be explained",
        )


def near(ranges: Iterable[Range], gap: int = NEAR) -> list[Range]:
    """Ranges as few reads: those that overlap or lie near each other as one."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + gap + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    if len(found) <= MOST_READS:
        return found
    gaps = np.array([b[0] - a[1] for a, b in pairwise(found)])
    keep = np.sort(np.argsort(-gaps, kind="stable")[: MOST_READS - 1]).tolist()
    bounds = [0, *(k + 1 for k in keep), len(found)]
    return [(found[a][0], max(f[1] for f in found[a:b])) for a, b in pairwise(bounds)]


def runs_of(stamps: Ints, gap: int = NEAR) -> list[Range]:
    """Stamps as few ranges, which lie further apart than a gap."""
    if not len(stamps):
        return []
    stamps = np.unique(stamps)
    cuts = np.flatnonzero(np.diff(stamps) > gap + 1)
    lows, highs = stamps[np.append(0, cuts + 1)], stamps[np.append(cuts, len(stamps) - 1)]
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def without(covered: Sequence[Range], low: int, high: int) -> list[Range]:
    """What of a range none of the others covers."""
    gaps: list[Range] = []
    for first, last in sorted(covered):
        if first > low:
            gaps.append((low, min(first - 1, high)))
        low = max(low, last + 1)
        if low > high:
            break
    if low <= high:
        gaps.append((low, high))
    return [(a, b) for a, b in gaps if a <= b]
