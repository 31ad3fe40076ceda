"""Which tuples are asked about, and by what names a user knows tuples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clew.archive.store import Store
from clew.engine.plan import Plan, Stateless, compiled
from clew.engine.stored import EPOCH, SEQ
from clew.errors import BoxFailed, NetworkError, TooOld, TypeProblem, UnknownStream, UnknownTuple, nearest
from clew.explain.trace import Tracer
from clew.expressions.parse import check_expression
from clew.model.places import Places
from clew.model.rows import POS, STAMP, Ints, Rows
from clew.model.types import type_name
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


def answers(tracer: Tracer, stream: str, asked: Any) -> Answers:
    """The tuples of a stored stream that are asked for: a number, a tid, several of these, a condition, or all."""
    store = tracer.store
    there = stream in store.state.streams
    if asked is None:
        return Answers.of(stream, store.read_table(stream)) if there else _none(tracer.plan, stream)
    if isinstance(asked, str) and _like_tid(asked) is None:
        return _matching(tracer, stream, asked)
    seqs = sorted({_seq(stream, each) for each in ([asked] if is_one(asked) else asked)})
    if not seqs:
        return _none(tracer.plan, stream)
    if not there:
        raise UnknownTuple(f"stream '{stream}' has no tuples yet")
    parts = [store.read_table(stream, ranges={SEQ: part}) for part in _runs(seqs)]
    table = pa.concat_tables(parts)
    missing = sorted(set(seqs) - set(np.asarray(table.column(SEQ)).tolist()))
    if missing:
        raise _unknown(store, stream, missing)
    return Answers.of(stream, table)


def _matching(tracer: Tracer, stream: str, condition: str) -> Answers:
    """The tuples for which a condition is true, as a filter would take it; one that fails on any is refused."""
    schema, zone = tracer.plan.steps[tracer.plan.stored[stream]].schema, tracer.zone
    question = f"the question about stream '{stream}'"
    check_expression(condition, schema.names, what=f"{question} asks for", at="")
    made = compiled(condition, schema, zone)
    if made is not None and not pa.types.is_boolean(made.type):
        raise TypeProblem(f"{question} asks for '{condition}', which is {type_name(made.type).upper()}, not BOOLEAN")
    if stream not in tracer.store.state.streams:
        return _none(tracer.plan, stream)
    table = tracer.store.read_table(stream)
    number = np.arange(len(table))
    visible = Rows(table.select(schema.names), number, number, number)
    step = Stateless("condition", question, (), schema, schema, zone, condition)
    try:
        kept, ran = tracer.lane.stateless(step, visible, False)
    except BoxFailed as error:
        raise TypeProblem(f"{question} is one that Spark refuses: '{condition}'", details=error.details) from error
    if failed := [bad for each in ran for bad in each.refused if len(bad.rows)]:
        first = table.column(SEQ)[int(failed[0].rows.stamp[0])].as_py()
        raise TypeProblem(
            f"{question} fails on {sum(len(bad.rows) for bad in failed):,} tuples: '{condition}'",
            details=[f"first on {stream}:{first}: {failed[0].reasons[0]}"],
            hint="say in the condition for which tuples it holds, or use try_divide, try_cast and the like",
        )
    return Answers.of(stream, table.take(pa.array(kept.stamp)))


def _none(plan: Plan, stream: str) -> Answers:
    nothing = np.empty(0, np.int64)
    return Answers(stream, plan.steps[plan.stored[stream]].schema.empty_table(), nothing, Places.none(), nothing)


def is_one(asked: object) -> bool:
    """Whether it names one tuple or stream, or nothing at all, rather than several."""
    return isinstance(asked, str | bytes | Mapping) or not isinstance(asked, Iterable)


def _like_tid(text: str) -> tuple[str | None, int] | None:
    """The stream and the number in a tid of any stream, or of text that is a number."""
    found = re.fullmatch(r"(?:([^\W\d][-\w.]*):)?(-?\d+)", text.strip())
    return (found[1], int(found[2])) if found else None


def _seq(stream: str, asked: object) -> int:
    if isinstance(asked, str) and (found := _like_tid(asked)) is not None and found[0] in (None, stream):
        return found[1]
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
    names = [of] if is_one(of) else list(of)
    if not names:
        raise NetworkError("of=[] names no stream", hint="leave it out: then it is all sources")
    return {str(name): step_of(plan, name) for name in names}
