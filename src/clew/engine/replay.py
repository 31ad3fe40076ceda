"""The admitted sequence run again over the archive, from the beginning or from a checkpoint."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from clew.archive.store import Store
from clew.engine import stored
from clew.engine.admission import source_steps
from clew.engine.evaluate import BoxStates, Pass, Sources, evaluate
from clew.engine.lanes.driver import DriverLane
from clew.engine.plan import Plan
from clew.model.axis import Number, axis_of
from clew.model.rows import STAMP, Ints, Rows
from clew.network.boxes import Source

CHUNK = 1_000_000  # stamps, and so about rows, that are read at a time
WATCHED = 50_000  # stamps of a pass, if somebody is told how far it is

Watch = Callable[[float], None]  # is told how much of something is done, from 0 to 1


@dataclass(frozen=True, eq=False)
class Start:
    """Where a replay begins: what boxes and sources held after an epoch. Without a checkpoint, before the first."""

    epoch: int = 0
    stamp: int = 0
    states: BoxStates = field(default_factory=BoxStates)
    progress: Mapping[str, Number | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Replayed:
    """One pass of a replay: from which stamp on, what boxes made, and whether it is the last one of a chunk."""

    first: int
    rows: int
    result: Pass[Rows]
    ends_chunk: bool


@dataclass(frozen=True, eq=False)
class Replay:
    """What is run again: from a start up to a stamp, without some source tuples if so wished."""

    plan: Plan
    store: Store
    lane: DriverLane
    start: Start = field(default_factory=Start)
    until: int | None = None  # the last stamp; None: to the end
    cuts: Collection[int] = ()  # stamps with which a pass shall begin
    logged: Collection[tuple[str, int]] = ()
    without: Mapping[str, Ints] = field(default_factory=dict)  # stamps of source tuples that never came
    watch: Watch | None = None

    def __iter__(self) -> Iterator[Replayed]:
        """Pass after pass, `CHUNK` stamps at a time; of a pass with a move of progress that is at its end."""
        moves = stored.moves_since(self.store, self.start.epoch)
        moved_at = [m.stamp for m in moves]
        last = self.store.state.stamp if self.until is None else self.until
        told = () if self.watch is None else range(self.start.stamp + 1, last, WATCHED)
        cuts = sorted({stamp + 1 for stamp in moved_at} | {*self.cuts, *told})
        states = self.start.states
        progress = {name: self.start.progress.get(name) for name in self.plan.sources}
        for begin in range(self.start.stamp + 1, last + 1, CHUNK):
            until = min(begin + CHUNK, last + 1)
            archive = {name: self._archived(step.source, begin, until) for name, step in self.plan.sources.items()}
            for low, high in pairwise([begin, *(c for c in cuts if begin < c < until), until]):
                rows, steps = {}, {}
                moved = moves[bisect_left(moved_at, low) : bisect_left(moved_at, high)]
                finish = next((m.stamp for m in moved if m.finish), None)
                for name, step in self.plan.sources.items():
                    cut = np.searchsorted(archive[name].stamp, [low, high], side="left")
                    rows[name] = archive[name].slice(int(cut[0]), int(cut[1]))
                    order = axis_of(rows[name].table.column(step.source.order))[0]
                    move = next(((m.stamp, m.to) for m in moved if m.stream == name), None)
                    steps[name] = source_steps(progress[name], rows[name].stamp, order, move)
                    progress[name] = steps[name].end
                result = evaluate(self.plan, self.lane, Sources(rows, steps, finish), states, self.logged)
                states = result.states
                yield Replayed(low, sum(len(r) for r in rows.values()), result, high == until)
                if self.watch is not None:
                    self.watch((high - 1 - self.start.stamp) / (last - self.start.stamp))

    def _archived(self, source: Source, begin: int, until: int) -> Rows:
        """The rows of a source with stamps from `begin` to before `until`."""
        if source.name not in self.store.state.streams:
            return Rows.empty(source.schema)
        table = self.store.read_table(source.name, ranges={STAMP: (begin, until - 1)})
        rows = stored.archived_rows(source.name, table.combine_chunks())
        gone = self.without.get(source.name)
        return rows if gone is None else rows.filter(~np.isin(rows.stamp, gone))
