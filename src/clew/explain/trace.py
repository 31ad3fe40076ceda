"""One step back: what the rows of a box are made of, and the rows themselves, made again where they are not stored.

This is the wrapper of Glavic et al., "Efficient Stream Provenance", §4.2, in one place for all boxes: a kernel says
what its origins stand for (`links`), and where a window's rows lie between two ends, it is told of the rows there.
They come from the archive where the input is stored, from the log that an exact run wrote, or are made again, box by
box, from what their origins name: boxes are resumed with the windows they had and never invent one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clew.archive.store import Store
from clew.engine import asides
from clew.engine.lanes.driver import DriverLane
from clew.engine.lineage import Chain, Input, chain_to, is_stored, stored_as
from clew.engine.plan import KernelStep, Plan, Stateless, Step
from clew.engine.replay import Watch
from clew.engine.stored import SEQ
from clew.errors import NotReplayed, TooMuchAsked, TooOld
from clew.explain.index import Index, Range, near, runs_of, without
from clew.model.groups import sort_by
from clew.model.places import Places, among
from clew.model.rows import HIDDEN, IDENT, POS, STAMP, Ints, Rows
from clew.operators.base import Origin
from clew.operators.lineage import Asked, Known, Links, MissingRows, Picked, TooManyLinks, covering

TOLD = 5  # holes that an error names


class Tracer:
    """Reads the lineage and the archive of a store; `replayed` counts the rows that were made again, by box."""

    def __init__(self, plan: Plan, store: Store, lane: DriverLane, watch: Watch | None = None) -> None:
        self.plan, self.store, self.watch = plan, store, watch
        self.index = Index(plan, store)
        self.replayed: dict[str, int] = {}
        self.lane = lane

    @property
    def zone(self) -> str:
        """The time zone that expressions are evaluated in."""
        return str(self.store.settings["time_zone"])

    # --- what rows are made of ---

    def links(self, step: KernelStep, origin: Origin, among: tuple[int, Known] | None = None) -> tuple[Links, ...]:
        """For each input of a kernel which rows there the rows of these origins are made of.

        `among`: of an input that is asked about, by its number, only these rows count.
        """
        known = []
        for port, asked in enumerate(step.kernel.asks()):
            if asked is None:
                known.append(Known.none())
                continue
            within = [(low, high) for low, high in covering(step.kernel.spans(port, origin)) if high >= 0]
            known.append(self.known((step.name, port), asked, within, whole=among is None))
        wanted = None if among is None else [among[1] if port == among[0] else k for port, k in enumerate(known)]
        try:
            return step.kernel.links(origin, known, wanted)
        except MissingRows as error:
            raise self._gone(step, error.places) from error
        except TooManyLinks as error:
            raise TooMuchAsked(
                f"box '{step.box}' made these rows of {error.count:,} rows, more than can be held at once",
                hint="ask for fewer outputs at a time",
            ) from error

    def known(self, of: Input, asked: Asked, ranges: Sequence[Range], *, whole: bool = False) -> Known:
        """What is known of the rows that a kernel took at an input within these stamps.

        `whole`: a range begins with a row that it took; `TooOld` if that is in the archive no more.
        """
        chain = chain_to(self.plan, self.plan.steps[of[0]].inputs[of[1]])
        logged = [] if is_stored(self.plan, chain.base) else self.index.logged(of)
        gaps = [gap for low, high in ranges for gap in without(logged, low, high)]
        noted = [part for low, high in ranges for part in without(gaps, low, high)]
        parts = [self.index.log(of, *part) for part in near(noted)]
        if gaps:
            if whole:
                self._check_there(of, chain.base, gaps[0][0])
            parts.append(self._known_anew(of, chain, asked, gaps))
        known = Known.concat(parts)
        order = sort_by(known.stamp, known.pos)
        return known if (np.diff(order) > 0).all() else known.take(order)

    def _known_anew(self, of: Input, chain: Chain, asked: Asked, ranges: Sequence[Range]) -> Known:
        """From the archive, or made again: the rows within these stamps, but for those that came too late."""
        stored, late = is_stored(self.plan, chain.base), self._late(of)
        if not stored and late is None and not asked.columns and all(s.condition is None for s in chain.steps):
            return Known.of_places(self.index.between(chain.base, ranges).places)
        if stored:
            rows = self._stored(chain.base, near(ranges))
        else:
            rows = self._made_again(self.plan.kernels[chain.base], self.index.between(chain.base, ranges).places)
        rows = self._through(chain, rows)
        if late is not None and len(rows):
            ends = (ranges[0][0], ranges[-1][1])
            table = self.store.read_table(late, [STAMP, POS], {STAMP: ends}, kind="tables")
            rows = rows.filter(~among(rows, *(np.asarray(table.column(c)) for c in (STAMP, POS))))
        return Known.of(rows, asked)

    def _late(self, of: Input) -> str | None:
        return asides.late_table(self.store.state, self.plan.prints, self.plan.steps[of[0]].box, of[1])

    # --- rows ---

    def made_again(self, name: str, places: Places) -> Rows | None:
        """Rows of a step made again even if they are stored; None if a box cannot. Sources are what they are."""
        chain = chain_to(self.plan, name, through_stored=True)
        step = self.plan.steps[chain.base]
        try:
            made = self._made_again(step, places) if isinstance(step, KernelStep) else self._at(chain.base, places)
        except NotReplayed:
            return None
        return self._through(chain, made)

    def rows(self, name: str, places: Places) -> Rows:
        """The rows of a step at these places (ascending, each once), made again where they are not stored."""
        if not len(places):
            return Rows.empty(self.plan.steps[name].schema)
        chain = chain_to(self.plan, name)
        return self._through(chain, self._at(chain.base, places))

    def seqs(self, stream: str, places: Places) -> Ints:
        """The numbers of tuples of a stored stream; `TooOld` if some are there no more."""
        if not len(places):
            return np.empty(0, np.int64)
        found, seqs = self._numbered(stream, places)
        if (found < 0).any():
            raise self._gone(self.plan.steps[self.plan.stored[stream]], places.take(found < 0))
        return seqs[found]

    def _numbered(self, stream: str, places: Places) -> tuple[Ints, Ints]:
        """Where places are among the tuples of a stored stream, -1 if they are not; and the numbers of these."""
        there, seqs = self.stored_places(stream, int(places.stamp.min()), int(places.stamp.max()))
        return there.find(places), seqs

    def stored_places(self, stream: str, low: int, high: int | None) -> tuple[Places, Ints]:
        """The places and the numbers of all tuples that a stored stream has within these stamps."""
        columns = [SEQ, STAMP] + ([] if stream in self.plan.sources else [POS])
        table = self.store.read_table(stream, columns, {STAMP: (low, high)})
        stamp = np.asarray(table.column(STAMP))
        pos = np.asarray(table.column(POS)) if POS in columns else np.zeros(len(stamp), np.int64)
        return Places(stamp, pos), np.asarray(table.column(SEQ))

    def _through(self, chain: Chain, rows: Rows) -> Rows:
        for step in chain.steps:
            rows = self.through(step, rows)
        return rows

    def through(self, step: Stateless, rows: Rows) -> Rows:
        """What a stateless step makes of rows."""
        return self.lane.stateless(step, rows, False)[0]

    def _at(self, base: str, places: Places) -> Rows:
        step = self.plan.steps[base]
        if is_stored(self.plan, base):
            rows = self._stored(base, near(runs_of(places.stamp)))
            found = Places(rows.stamp, rows.pos).find(places)
            if (found < 0).any():
                raise self._gone(step, places.take(found < 0))
            return rows.take(found)
        assert isinstance(step, KernelStep)
        return self._made_again(step, places)

    def _made_again(self, step: KernelStep, places: Places) -> Rows:
        if not step.kernel.remakes:
            raise NotReplayed(
                f"rows of box '{step.box}' are not stored and cannot be made again",
                hint=f"keep them: give box '{step.box}' a .keep()",
            )
        if not len(places):
            return Rows.empty(step.schema)
        origin = self.index.origins(step.name, places)
        inputs, picked = [], []
        for name, links in zip(step.inputs, self.links(step, origin), strict=True):
            distinct, number = links.places.distinct()
            inputs.append(self.rows(name, distinct))
            if len(inputs[-1]) != len(distinct):
                raise NotReplayed(f"rows that box '{step.box}' took do not come out of '{name}' again")
            picked.append(Picked(links.owner, number))
        self.replayed[step.box] = self.replayed.get(step.box, 0) + sum(len(rows) for rows in inputs)
        table = step.kernel.remake(origin, inputs, picked)
        return Rows(table, places.stamp, places.pos, np.zeros(len(places), np.int64))

    def stored_among(self, step: str, places: Places) -> Places:
        """Which rows at these places a stored step has."""
        stream = self._stream(step)
        if not len(places) or stream not in self.store.state.streams:
            return Places.none()
        return places.take(self._numbered(stream, places)[0] >= 0)

    def _stored(self, step: str, ranges: Sequence[Range]) -> Rows:
        stream = self._stream(step)
        schema = self.plan.steps[step].schema
        if stream not in self.store.state.streams:
            return Rows.empty(schema)
        derived = stream not in self.plan.sources
        names = [*schema.names, STAMP, *([POS, IDENT] if derived else [])]
        parts = [self.store.read_table(stream, names, {STAMP: part}) for part in ranges]
        table = pa.concat_tables(parts).combine_chunks() if parts else Rows.empty(schema).to_table()
        zero = np.zeros(len(table), np.int64)
        stamp, pos, ident = (np.asarray(table.column(c)) if c in table.column_names else zero for c in HIDDEN)
        return Rows(table.select(schema.names), stamp, pos, ident)

    def _stream(self, step: str) -> str:
        stream = stored_as(self.plan, step)
        assert stream is not None, step
        return stream

    def _check_there(self, of: Input, base: str, stamp: int) -> None:
        folder = self.store.state.streams.get(base) if base in self.plan.sources else None
        gone = None if folder is None else folder.gone
        if gone is not None and not gone.holes and (gone.stamp or 0) >= stamp:  # holes hold nothing that is needed
            raise self._gone(self.plan.steps[of[0]], Places(np.array([stamp]), np.zeros(1, np.int64)))

    def _gone(self, step: Step, places: Places) -> TooOld:
        """What to tell if rows that a step is made of are in the archive no more."""
        details = []
        oldest, newest = int(places.stamp.min()), int(places.stamp.max())
        for stream in self.plan.sources:
            folder = self.store.state.streams.get(stream)
            if folder is not None and folder.gone is not None:
                details += [hole.told(stream) for hole in folder.gone.holes_at(oldest, newest)]
        source = step.name in self.plan.sources
        made = f"is made of old tuples of stream '{step.box}'" if source else f"box '{step.box}' made of old tuples"
        return TooOld(
            f"what {made} can no longer be explained: {len(places)} tuples that it is made of are gone",
            details=details[:TOLD] or [f"the first stood at stamp {oldest}"],
            hint="a longer retention keeps them, and so does retention='lineage'; what is newer can be explained",
        )
