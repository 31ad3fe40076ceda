"""Retention by lineage: of a source stays what an explanation can still ask for.

That is what outputs and kept streams are made of, for they stay for good, and what boxes hold, for rows to come can be
made of it. All else goes. Glavic et al., "Efficient Stream Provenance", §4.3 prune what no covering interval covers,
where a static analysis bounds how far later intervals reach back (`horizon`), and name a dynamic expiration by the
provenance itself as future work: this is one. It needs no bound, for a box's state is exactly what can still be used,
also the buffer of a b-sort. Intervals are taken group by group, so that a group that pauses holds back itself alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from clew.archive.record import EpochRecord
from clew.engine.plan import Plan
from clew.engine.runtime import Memory
from clew.errors import ClewError, StoreFull
from clew.explain.covering import Walk
from clew.explain.horizon import retention_plan
from clew.explain.trace import Tracer
from clew.model.axis import axis_end, axis_of, span_of
from clew.model.rows import STAMP, Bools, Ints

LOOK_ROWS = 20_000  # a source is looked at again once so many of its tuples are new
SHARE = 8  # and they are an eighth of its archive, and a quarter of what boxes hold: a look writes a checkpoint
LEFT = 64  # for so many tuples that go, one that was held at a look and at the next may stay for good

log = logging.getLogger("clew")


class Pruner:
    """Says with an epoch now and then which tuples of the sources go.

    A source's `settled` stamp: of the tuples up to there it is decided for good. Those behind it are looked at again,
    by the outputs behind it: an output is made of nothing newer than itself. It stands in front of the oldest tuple
    that boxes hold; a few that they hold for long, of groups that pause, do not keep it back. `looked` is how far the
    sequence had come at the last look, as seq and stamp. What came since stays: should the checkpoint that is written
    with a look be damaged, that of the last look still has all rows behind it.
    """

    def __init__(self, plan: Plan, tracer: Callable[[], Tracer]) -> None:
        known = retention_plan(plan).sources
        self.plan, self._tracer = plan, tracer
        self.sources = [s.stream for s in known if s.asked and not (s.reach and s.reach.forever)]

    def __call__(self, memory: Memory, record: EpochRecord) -> bool:
        """Write into the record what goes; whether it looked. `memory` is that of the epoch before it."""
        tracer = self._tracer()
        streams = tracer.store.state.streams
        due = [name for name in self.sources if name in streams and self._due(tracer, name, memory)]
        if not due:
            return False
        try:
            since = min(_settled(tracer, name) for name in due)
            walk = Walk(tracer, due)
            made, held = walk.made(since), walk.held(memory.boxes)
            for name in due:
                self._prune(tracer, name, record, memory, (made[name].stamp, held[name].stamp))
        except StoreFull:
            raise
        except (ClewError, pa.ArrowException) as error:
            log.warning("nothing more of %s was pruned: %s", ", ".join(due), error)
        for name in due:
            record.folder("streams", name).meta |= {"looked": [streams[name].seq, tracer.store.state.stamp]}
        return True

    def _due(self, tracer: Tracer, name: str, memory: Memory) -> bool:
        folder, progress = tracer.store.state.streams[name], memory.streams[name].progress
        source = self.plan.sources[name].source
        ended = progress is None or progress >= axis_end(source.schema.field(source.order).type)
        new = folder.seq - _looked(tracer, name)[0]
        held = sum(len(table) for state in memory.boxes.kernels.values() for table in state.values())
        return not ended and new >= LOOK_ROWS and new * SHARE >= max(folder.rows, 2 * held)

    def _prune(self, tracer: Tracer, name: str, record: EpochRecord, memory: Memory, needed: tuple[Ints, Ints]) -> None:
        made, held = needed
        store, source, settled = tracer.store, self.plan.sources[name].source, _settled(tracer, name)
        looked = _looked(tracer, name)[1]
        kind, progress = source.schema.field(source.order).type, memory.streams[name].progress
        assert progress is not None
        # keys that may be repeated are looked for in the archive
        floor = progress - span_of(source.key_span or 0, kind, "key_span")
        stays = np.union1d(made, held)

        def goes(columns: pa.Table) -> Bools:
            stamp, order = np.asarray(columns.column(STAMP)), axis_of(columns.column(source.order))[0]
            mask: Bools = (stamp > settled) & (stamp <= looked) & (order < floor) & ~np.isin(stamp, stays)
            return mask

        gone = store.prune(name, record, settled, goes)
        recent = np.asarray(store.read_table(name, [STAMP], {source.order: (floor, None)}).column(STAMP))
        open_ = np.sort(held[held > settled])
        passed = gone // LEFT
        upto = min([looked, *(open_[passed : passed + 1] - 1).tolist(), *(recent[:1] - 1).tolist()])
        pruned = {part.remove for part in record.folder("streams", name).prune}
        stamps = (e.stats[STAMP] for e in store.state.streams[name].files.values() if e.path not in pruned)
        # of a bucket that reaches beyond, more may go later, and then enough to write it again
        upto = min([upto, *(int(low or 0) - 1 for low, high, _ in stamps if (low or 0) <= upto < (high or 0))])
        record.folder("streams", name).meta |= {"settled": max(upto, settled)}


def _looked(tracer: Tracer, name: str) -> tuple[int, int]:
    seq, stamp = tracer.store.state.streams[name].meta.get("looked", (0, 0))
    return int(seq), int(stamp)


def _settled(tracer: Tracer, name: str) -> int:
    return int(tracer.store.state.streams[name].meta.get("settled", 0))
