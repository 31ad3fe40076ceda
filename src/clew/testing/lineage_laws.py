"""The laws of explanations as checks: what `why` and `impact` tell is what the reference in plain Python tells."""

from __future__ import annotations

import random
import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clew.opening
from clew.errors import LineageError, Untraced
from clew.explain.trace import Tracer
from clew.network.boxes import Filter, Map, Source
from clew.network.network import Network
from clew.session import Engine
from clew.testing.laws import Action, LawError, Log, act
from clew.testing.lineage import Lineage, Row, closed_over
from clew.testing.reference import Told, interpret

ALONE = 3  # tuples of a stream that are asked for one by one

Tids = dict[str, dict[str, list[str]]]


def check_lineage(
    network: Network,
    actions: Sequence[Action],
    folder: Path,
    *,
    modes: Sequence[Any] = ("exact",),
    before: Sequence[Network] = (),
    damage: Callable[[Path], None] | None = None,
    seed: int = 0,
) -> None:
    """`why`, `impact` and what proves them are as the reference has it, in all modes and however the store was run.

    With several `modes` the engine is closed and opened again behind each action, with the next of them in turn; with
    networks `before`, the first actions are theirs. Where a mode is `off`, what was not noted may be refused, and
    nothing may be told otherwise than the reference has it. `damage` is done to the closed store. `seed` chooses
    what is asked about beside the sources.
    """
    chance = random.Random(seed)
    known: list[_Open] = []
    unnoted = _unnoted(modes)
    engine = _opened(before[0] if before else network, folder, modes[0])
    try:
        for number, action in enumerate(actions):
            act(engine, action)
            if number + 1 < len(before) or len(modes) > 1 or damage is not None or number + 1 == len(before):
                engine.close()
                if damage is not None:
                    damage(folder)
                net = before[number + 1] if number + 1 < len(before) else network
                engine = _opened(net, folder, modes[(number + 1) % len(modes)])
            if number + 1 >= len(before):
                known += _opens(engine, chance, unnoted)
        if engine.network is not network:
            engine.close()
            engine = _opened(network, folder, modes[-1])
        _Checked(engine, chance, unnoted).all(known)
    finally:
        engine.close()


def _opened(network: Network, folder: Path, mode: Any) -> Engine:
    """With boxes in exact mode where they are refused otherwise, as the error says."""
    modes = {"*": mode} if isinstance(mode, str) else dict(mode)
    names = {b.name for b in network.boxes}
    modes = {box: m for box, m in modes.items() if box == "*" or box in names}
    try:
        return clew.opening.open(folder, network, durable=False, lane="driver", lineage=modes)
    except LineageError as error:
        told = re.search(r"lineage=({.*})", error.hint or "")
        if told is None:
            raise
        return clew.opening.open(folder, network, durable=False, lane="driver", lineage=literal_eval(told[1]))


@dataclass(frozen=True)
class _Open:
    """What `impact` said of one source tuple while there was more to come."""

    stream: str
    stamp: int  # of the tuple
    last: int  # the last stamp that there was
    open: Mapping[str, int]


def _unnoted(modes: Sequence[Any]) -> tuple[type[Exception], ...]:
    """The errors that are answers where some lineage was not noted."""
    off = any("off" in ([mode] if isinstance(mode, str) else mode.values()) for mode in modes)
    return (Untraced,) if off else ()


def _opens(engine: Engine, chance: random.Random, unnoted: tuple[type[Exception], ...]) -> list[_Open]:
    found = []
    for stream in engine.network.sources:
        folder = engine._store.state.streams.get(stream)
        for seq in _some(range(1, (folder.seq if folder else 0) + 1), chance):
            with suppress(*unnoted):
                told = engine.impact(stream, seq)
                found.append(_Open(stream, int(told.answers.places.stamp[0]), engine._store.state.stamp, told.open))
    return found


class _Checked:
    """One engine against the reference over the sequence that it admitted."""

    def __init__(self, engine: Engine, chance: random.Random, unnoted: tuple[type[Exception], ...]) -> None:
        self.unnoted = unnoted
        self.engine, self.network, self.chance = engine, engine.network, chance
        self.boxes = {b.name: b for b in self.network.boxes}
        admitted = Log.of(engine).admitted()
        self.told: Mapping[str, Told] = interpret(self.network, admitted)
        self.seqs = {name: {(r["_stamp"], 0): r["_seq"] for r in rows} for name, rows in admitted.rows.items()}

    def all(self, known: Sequence[_Open]) -> None:
        with suppress(*self.unnoted):
            self.spans()
        for stream in [*self.network.outputs, *self.network.kept]:
            for of in self._questions():
                with suppress(*self.unnoted):
                    self.why(stream, of)
            with suppress(*self.unnoted):
                self.proof(stream)
        for stream in self.network.stored:
            with suppress(*self.unnoted):
                self.impact(stream)
        for each in known:
            self.open(each)

    def proof(self, stream: str) -> None:
        """Each tuple comes out of a replay of what it is made of."""
        proof = self.engine.why(stream).verify()
        if not proof:
            raise LawError(f"stream {stream} does not come out of a replay:\n{proof}")

    def why(self, stream: str, of: Sequence[str] | None) -> None:
        """All tuples at once, and some alone."""
        names = list(self.network.sources) if of is None else of
        found = closed_over(self.network, self.told, stream, of)
        expected = {
            tid: {name: self._tids(name, lineage[name]) for name in names}
            for tid, lineage in zip(self._tids(stream, self._rows(stream)), found, strict=True)
        }
        for tid in _some(expected, self.chance):
            with suppress(*self.unnoted):
                _compare({tid: expected[tid]}, self.engine.why(stream, tid, of=of).tids, f"why({tid!r}, of={of})")
        _compare(expected, self.engine.why(stream, of=of).tids, f"why({stream!r}, of={of})")

    def impact(self, stream: str) -> None:
        """The inverse of `why`, on all boxes behind the stream."""
        start = self._tids(stream, self._rows(stream))
        if not start:
            return
        on = list(dict.fromkeys([*self.network.outputs, *self.network.kept, *self.boxes]))
        lineages = {name: closed_over(self.network, self.told, name, stream) for name in on}
        expected: Tids = {tid: {name: [] for name in on} for tid in start}
        for name, found in lineages.items():
            for tid, lineage in zip(self._tids(name, self._rows(name)), found, strict=True):
                for each in self._tids(stream, lineage[stream]):
                    expected[each][name].append(tid)
        for asked in (*_some(expected, self.chance), None):
            part = expected if asked is None else {asked: expected[asked]}
            impact = self.engine.impact(stream, asked, on=on)
            loose = impact.at_most - {*self.network.outputs.values(), *self.network.kept.values()}
            for tid in part:
                if any(not set(part[tid][box]) <= set(impact.tids[tid][box]) for box in loose):
                    raise LawError(f"impact({tid!r}) lacks rows: {impact.tids[tid]}; expected: {part[tid]}")
            _compare(_but(part, loose), _but(impact.tids, loose), f"impact({asked or stream!r})")
        proof = self.engine.impact(stream, None).verify()
        if not proof:
            raise LawError(f"impact of {stream} is not the inverse of why:\n{proof}")

    def open(self, before: _Open) -> None:
        """All that a later row is made of, and comes of the tuple, its box had reported to hold."""
        used: dict[str, set[tuple[int, Row]]] = {}
        for box in self.network.boxes:
            if isinstance(box, Source | Filter | Map):
                continue
            of_it = [self._made_of(parent, before) for parent in box.inputs]
            for made in self.told[box.name].rows:
                if made.stamp > before.last:
                    places = {(n, (stamp, pos)) for n, stamp, pos in made.made_of}
                    used.setdefault(box.name, set()).update((n, p) for n, p in places if p in of_it[n])
        for name, rows in used.items():
            if len(rows) > before.open.get(name, 0):
                raise LawError(
                    f"behind stamp {before.last} box {name} used {len(rows)} rows made of {before.stream} at stamp "
                    f"{before.stamp}: {sorted(rows)}; impact said that these were open: {dict(before.open)}"
                )

    def spans(self) -> None:
        """Between the ends that an origin tells lie all rows that a row is made of."""
        tracer = Tracer(self.engine._plan, self.engine._store, self.engine._driver)
        for name, step in tracer.plan.kernels.items():
            emitted = tracer.index.between(name, [(1, self.engine._store.state.stamp)])
            made_of = [made.made_of for made in self.told[step.box].inner]
            for port, asked in enumerate(step.kernel.asks()):
                if asked is None:
                    continue
                span = step.kernel.spans(port, emitted.origin)
                ends = zip(*(a.tolist() for p in (span.first, span.last) for a in (p.stamp, p.pos)), strict=True)
                for (a, b, c, d), places in zip(ends, made_of, strict=True):
                    if not all((a, b) <= place[1:] <= (c, d) for place in places if place[0] == port):
                        raise LawError(f"box {step.box}: {places} do not lie between {(a, b)} and {(c, d)}")

    def _made_of(self, box: str, before: _Open) -> set[Row]:
        """The rows of a box that had come and are made of the tuple."""
        found = zip(self._rows(box), closed_over(self.network, self.told, box, before.stream), strict=True)
        start = (before.stamp, 0)
        return {place for place, lineage in found if place[0] <= before.last and start in lineage[before.stream]}

    def _questions(self) -> Iterable[Sequence[str] | None]:
        inner = [name for name in self.boxes if name not in self.network.sources]
        yield None
        yield from ([name] for name in self.network.sources)
        yield from ([name] for name in _some(inner, self.chance))
        yield self.chance.sample(list(self.boxes), self.chance.randint(1, len(self.boxes)))

    def _rows(self, name: str) -> list[Row]:
        return [(m.stamp, m.pos) for m in self.told[self.network.stored.get(name, name)].rows]

    def _tids(self, name: str, rows: Iterable[Row]) -> list[str]:
        """The names of rows, in place order."""
        box = self.network.stored.get(name, name)
        streams = [s for s, of in self.network.stored.items() if of == box]
        if not streams:
            return [f"{name}@{stamp}.{pos}" for stamp, pos in sorted(rows)]
        stream = name if name in streams else streams[0]
        if stream not in self.seqs:
            self.seqs[stream] = {place: n for n, place in enumerate(self._rows(stream), 1)}
        return [f"{stream}:{self.seqs[stream][row]}" for row in sorted(rows)]


def _some(options: Iterable[Any], chance: random.Random) -> list[Any]:
    known = list(options)
    return chance.sample(known, min(ALONE, len(known)))


def _but(tids: Tids, boxes: Iterable[str]) -> Tids:
    return {tid: {name: names for name, names in each.items() if name not in boxes} for tid, each in tids.items()}


def _compare(expected: Tids, found: Tids, what: str) -> None:
    if list(expected) != list(found):
        raise LawError(f"{what}: answers {list(expected)} expected, {list(found)} found")
    for tid, each in expected.items():
        if each != found[tid]:
            raise LawError(f"{what}: {tid}\n  expected: {each}\n  found:    {found[tid]}")


__all__ = ["Lineage", "check_lineage"]
