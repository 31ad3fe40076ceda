"""Which tuples are asked about, and by what names a user knows tuples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clew.archive.store import Store
from clew.engine.plan import Plan, Stateless
from clew.engine.stored import EPOCH, SEQ
from clew.errors import NetworkError, TooOld, UnknownStream, UnknownTuple, nearest
from clew.explain.trace import Tracer
from clew.expressions.parse import check_expression
from clew.model.places import Places
from clew.model.rows import POS, STAMP, Ints, Rows
from clew.network.naming import shown

TOLD = 5  # tuples that an error names


@dataclass(frozen=True, eq=False)
class Answers:
    """Tuples of a stored stream in seq order: visible columns, numbers, places, and the epochs they came in."""

    stream: str
    table: pa.Table
    seq: Ints
    places: Places
    epoch: Ints

    def __len__(self) -> int:
        return len(self.seq)

    def tid(self, number: int) -> str:
        return f"{self.stream}:{self.seq[number]}"

    @staticmethod
    def of(stream: str, table: pa.Table) -> Answers:
        seq, stamp, epoch = (np.asarray(table.column(c)) for c in (SEQ, STAMP, EPOCH))
        pos = np.asarray(table.column(POS)) if POS in table.column_names else np.zeros(len(seq), np.int64)
        visible = [name for name in table.column_names if not name.startswith("_")]
        return Answers(stream, table.select(visible), seq, Places(stamp, pos), epoch)


def step_of(plan: Plan, name: object) -> str:
    """The step of a stream or box; `UnknownStream` if there is none."""
    if isinstance(name, str) and (found := plan.stored.get(name) or plan.ends.get(name)):
        return found
    known = list(dict.fromkeys([*plan.stored, *plan.ends]))
    raise UnknownStream(
        f"network '{plan.network.name}' has no stream or box {_named(name)}",
        details=[f"streams and boxes: {', '.join(known)}"],
        hint=nearest(name, known) if isinstance(name, str) else None,
    )


def stored_stream(plan: Plan, name: object) -> str:
    """A stream whose tuples have tids; `UnknownStream` if it is none."""
    if isinstance(name, str) and name in plan.stored:
        return name
    hint = nearest(name, plan.stored) if isinstance(name, str) else None
    if isinstance(name, str) and name in plan.ends:
        hint = f"box '{name}' is not stored: give it a .keep() or an .output(...)"
    raise UnknownStream(
        f"network '{plan.network.name}' stores no stream {_named(name)}",
        details=[f"stored streams: {', '.join(plan.stored)}"],
        hint=hint,
    )


def answers(tracer: Tracer, stream: str, asked: object) -> Answers:
    """The tuples of a stored stream that are asked for: a number, a tid, several of these, a condition, or all."""
    store = tracer.store
    if stream not in store.state.streams:
        if isinstance(asked, str) and not _tid(stream, asked):
            return _none(tracer.plan, stream)
        raise UnknownTuple(f"stream '{stream}' has no tuples yet")
    if asked is None:
        return Answers.of(stream, store.read_table(stream))
    if isinstance(asked, str) and _tid(stream, asked) is None:
        return _matching(tracer, stream, asked)
    wanted = [asked] if isinstance(asked, str | int) or not isinstance(asked, Iterable) else list(asked)
    seqs = sorted({_seq(stream, each) for each in wanted})
    if not seqs:
        return _none(tracer.plan, stream)
    parts = [store.read_table(stream, ranges={SEQ: part}) for part in _runs(seqs)]
    table = pa.concat_tables(parts)
    missing = sorted(set(seqs) - set(np.asarray(table.column(SEQ)).tolist()))
    if missing:
        raise _unknown(store, stream, missing)
    return Answers.of(stream, table)


def _matching(tracer: Tracer, stream: str, condition: str) -> Answers:
    table = tracer.store.read_table(stream)
    number = np.arange(len(table))
    schema = tracer.plan.steps[tracer.plan.stored[stream]].schema
    visible = Rows(table.select(schema.names), number, number, number)
    check_expression(condition, schema.names, what=f"the question about stream '{stream}' asks for", at="")
    kept = tracer.through(Stateless("condition", stream, (), schema, schema, tracer.zone, condition), visible)
    return Answers.of(stream, table.take(pa.array(kept.stamp)))


def _none(plan: Plan, stream: str) -> Answers:
    nothing = np.empty(0, np.int64)
    return Answers(stream, plan.steps[plan.stored[stream]].schema.empty_table(), nothing, Places.none(), nothing)


def _tid(stream: str, text: str) -> int | None:
    """The number in a tid, or of text that is one."""
    found = re.fullmatch(rf"(?:{re.escape(stream)}:)?(\d+)", text.strip())
    return int(found[1]) if found else None


def _seq(stream: str, asked: object) -> int:
    if isinstance(asked, str) and (number := _tid(stream, asked)) is not None:
        return number
    if isinstance(asked, int | np.integer) and not isinstance(asked, bool):
        return int(asked)
    raise UnknownTuple(
        f"{_named(asked)} is no tuple of stream '{stream}'",
        hint=f"a number, a tid like '{stream}:3', several of these, or a condition in SQL",
    )


def _unknown(store: Store, stream: str, missing: list[int]) -> UnknownTuple | TooOld:
    folder = store.state.streams[stream]
    named = ", ".join(f"{stream}:{n}" for n in missing[:TOLD]) + (", …" if len(missing) > TOLD else "")
    if folder.gone is not None and (told := folder.gone.tells_of(stream, missing[:TOLD])):
        longer = "a longer retention keeps more, and retention='lineage' all that answers are made of"
        hint = "no output or kept stream was made of what was pruned" if folder.gone.holes else longer
        return TooOld(f"stream '{stream}' no longer has {named}", details=told, hint=hint)
    details = [f"it has {stream}:1 to {stream}:{folder.seq}" if folder.seq else "it has none yet"]
    return UnknownTuple(f"stream '{stream}' has no tuple {named}", details=details)


def _runs(seqs: list[int]) -> list[tuple[int, int]]:
    """Numbers as few ranges."""
    array = np.array(seqs)
    starts = np.flatnonzero(np.append(True, np.diff(array) > 1))
    ends = np.append(starts[1:], len(array)) - 1
    return list(zip(array[starts].tolist(), array[ends].tolist(), strict=True))


def _named(name: object) -> str:
    return f"'{name}'" if isinstance(name, str) else shown(name)


def targets_of(plan: Plan, of: Any) -> dict[str, str]:
    """The streams or boxes asked about, each with its step; all sources if none are named."""
    if of is None:
        return {name: plan.stored[name] for name in plan.sources}
    names = [of] if isinstance(of, str) or not isinstance(of, Iterable) or isinstance(of, Mapping) else list(of)
    if not names:
        raise NetworkError("of=[] names no stream", hint="leave it out: then it is all sources")
    return {str(name): step_of(plan, name) for name in names}
