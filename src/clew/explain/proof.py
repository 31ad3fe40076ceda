"""Explanations put to the test: the network is run again, over the archive, with and without the input tuples.

Definition 3.1 of Glavic et al., "Efficient Stream Provenance": an output tuple must be in what the network makes of the
minimal prefixes of the sources that hold its provenance, and there must be as many equal tuples as there were when it
came. Up to a checkpoint in front of the provenance the prefix is not run again: the checkpoint is what it leads to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clew.archive.layout import checkpoint_epoch
from clew.engine.evaluate import BoxStates
from clew.engine.marks import states_from, step_mark
from clew.engine.plan import Plan
from clew.engine.replay import Replay, Replayed, Start
from clew.errors import StoreError, TooOld
from clew.explain.back import ancestors, trace_back
from clew.explain.explanation import Explanation
from clew.explain.telling import values_text
from clew.model.places import Places
from clew.model.rows import IDENT, STAMP, Ints, Rows
from clew.model.values import python_rows

SHOWN = 12
MOST_ALONE = 100  # counterfactuals, each of which is a replay of its own
MOST_TOLD = 5  # holes that an error names


@dataclass(frozen=True)
class Checked:
    """What a replay says of one output tuple.

    `reproduced`: it came again. `equal`: so many equal tuples had come with it, in the part replayed, and `needed` so
    many. `made_again`: made from its lineage alone it is the same; None where a box cannot be made again.
    """

    tid: str
    reproduced: bool
    equal: int
    needed: int
    made_again: bool | None

    def __bool__(self) -> bool:
        return self.reproduced and self.equal >= self.needed and self.made_again is not False


@dataclass(frozen=True)
class Proof:
    """The outcome of `verify()`, tuple by tuple; true if all of them hold."""

    checked: tuple[Checked, ...]
    replayed: int  # source tuples run again
    since: int  # the epoch of the checkpoint behind which the replay began; 0: the beginning

    def __bool__(self) -> bool:
        return all(self.checked)

    def to_json(self) -> dict[str, Any]:
        each = [{**vars(c), "holds": bool(c)} for c in self.checked]
        return {"holds": bool(self), "replayed": self.replayed, "since_epoch": self.since, "tuples": each}

    def __str__(self) -> str:
        start = f"behind the checkpoint of epoch {self.since}" if self.since else "from the beginning"
        lines = [f"replayed {self.replayed:,} source tuples {start}"]
        again = {
            True: "made again from its lineage alone: the same",
            False: "made again from its lineage alone: NOT the same",
            None: "not made again from its lineage alone: a box on the way cannot be",
        }
        shown = sorted(self.checked, key=bool)[:SHOWN]
        for c in sorted(shown, key=self.checked.index):
            what = "reproduced" if c.reproduced else "NOT reproduced"
            parts = [what, f"{c.equal} equal of {c.needed} needed", again[c.made_again]]
            lines.append(f"{'holds' if c else 'FAILS'}  {c.tid}: {', '.join(parts)}")
        if rest := [c for c in self.checked if c not in shown]:
            failing = sum(not c for c in rest)
            lines.append(
                f"… and {len(rest):,} more, {f'of which {failing:,} FAIL' if failing else 'all of which hold'}"
            )
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Without:
    """What becomes of one output tuple without its lineage: "gone", "changed" (to `instead`) or "survives"."""

    tid: str
    removed: int
    outcome: str
    instead: dict[str, Any] | None = None


@dataclass(frozen=True)
class Counterfactual:
    """The outcome of `counterfactual()`, tuple by tuple."""

    found: tuple[Without, ...]

    def to_json(self) -> dict[str, Any]:
        return {"tuples": [vars(w) for w in self.found]}

    def __str__(self) -> str:
        told = {"survives": "survives: equal tuples stand in", "gone": "gone", "changed": "changed"}
        lines = []
        for w in self.found:
            instead = "" if w.instead is None else f" to {values_text(w.instead)}"
            tuples = "tuple" if w.removed == 1 else f"{w.removed:,} tuples"
            lines.append(f"{w.tid} without the {tuples} it is made of: {told[w.outcome]}{instead}")
        return "\n".join(lines)

    __repr__ = __str__


def verify(explanation: Explanation) -> Proof:
    """Run the network over the prefix that holds the lineage, and look for the output tuples in what it makes."""
    answers, plan = explanation.answers, _part(explanation)
    if not len(answers):
        return Proof((), 0, 0)
    step, last = plan.stored[explanation.output], int(answers.places.stamp.max())
    start = _start(explanation, plan, _first(explanation))
    wanted = [repr(row) for row in python_rows(answers.table)]
    counts, replayed = dict.fromkeys(wanted, 0), 0
    order = np.argsort(answers.places.stamp, kind="stable")
    equal, at = [0] * len(wanted), 0
    for each in _replay(explanation, plan, start, last):
        replayed += each.rows
        rows = each.result.flows[step]
        for stamp, row in zip(rows.stamp.tolist(), python_rows(rows.table), strict=True):
            while at < len(order) and answers.places.stamp[order[at]] < stamp:
                equal[order[at]] = counts[wanted[order[at]]]
                at += 1
            text = repr(row)
            if text in counts:
                counts[text] += 1
    for i in order[at:].tolist():
        equal[i] = counts[wanted[i]]
    needed = _duplicates(explanation, wanted, start.stamp)
    met = [found > 0 for found in equal]
    again = _made_again(explanation)
    checked = zip(range(len(answers)), met, equal, needed, again, strict=True)
    return Proof(tuple(Checked(answers.tid(i), m, e, n, a) for i, m, e, n, a in checked), replayed, start.epoch)


def counterfactual(explanation: Explanation) -> Counterfactual:
    """Run the network up to each output tuple without the source tuples that it is made of."""
    answers, plan = explanation.answers, _part(explanation)
    if len(answers) > MOST_ALONE:
        raise StoreError(
            f"a counterfactual of {len(answers):,} tuples was asked for, each of which is a replay",
            hint=f"ask for {MOST_ALONE} at most",
        )
    return Counterfactual(tuple(_without(explanation, plan, i) for i in range(len(answers))))


def _without(explanation: Explanation, plan: Plan, i: int) -> Without:
    answers = explanation.answers
    gone = _lineage(explanation, i)
    place = answers.places.take(np.array([i]))
    first = min([int(stamps.min()) for stamps in gone.values() if len(stamps)], default=int(place.stamp[0]))
    start, last = _start(explanation, plan, first), int(place.stamp[0])
    (wanted,) = (repr(row) for row in python_rows(answers.table.slice(i, 1)))
    (needed,) = _duplicates(explanation, [wanted], start.stamp, last=int(answers.seq[i]))
    ident, equal, instead = _ident(explanation, i), 0, None
    for each in _replay(explanation, plan, start, last, gone):
        rows: Rows = each.result.flows[plan.stored[explanation.output]]
        told = python_rows(rows.table)
        equal += sum(repr(row) == wanted for row in told)
        same = np.flatnonzero(rows.ident == ident) if ident is not None else np.empty(0, np.int64)
        instead = told[int(same[-1])] if len(same) else instead
    removed = sum(len(stamps) for stamps in gone.values())
    if equal >= needed:
        return Without(answers.tid(i), removed, "survives")
    if instead is not None and repr(instead) != wanted:
        return Without(answers.tid(i), removed, "changed", instead)
    return Without(answers.tid(i), removed, "gone")


def _lineage(explanation: Explanation, i: int) -> dict[str, Ints]:
    """The source tuples that an output tuple is made of, by stamp."""
    plan = explanation.plan
    targets = {name: plan.stored[name] for name in plan.sources}
    place = explanation.answers.places.take(np.array([i]))
    traced = trace_back(explanation.tracer, plan.stored[explanation.output], place, set(targets.values()))
    return {n: traced.layers[step].places.stamp for n, step in targets.items() if step in traced.layers}


def _ident(explanation: Explanation, i: int) -> int | None:
    if explanation.output in explanation.plan.sources:
        return None
    seq = int(explanation.answers.seq[i])
    table = explanation.tracer.store.read_table(explanation.output, [IDENT], {"_seq": (seq, seq)})
    return int(table.column(IDENT)[0].as_py())


def _part(explanation: Explanation) -> Plan:
    """The part of the network that leads to the output."""
    whole = explanation.plan
    wanted = ancestors(whole, [whole.stored[explanation.output]])
    steps = {n: s for n, s in whole.steps.items() if n in wanted}
    stored = {n: s for n, s in whole.stored.items() if s in steps}
    return replace(whole, steps=steps, stored=stored, ends={b: s for b, s in whole.ends.items() if s in steps})


def _first(explanation: Explanation) -> int:
    """The first stamp of all that the answers are made of."""
    stamps = [layer.places.stamp for layer in explanation.traced.layers.values()]
    return int(np.concatenate([*stamps, explanation.answers.places.stamp]).min())


def _start(explanation: Explanation, plan: Plan, first: int) -> Start:
    """The newest checkpoint in front of a stamp, else the beginning, if all tuples behind it are still archived."""
    store = explanation.tracer.store
    last = int(explanation.answers.places.stamp.max())
    gone = {n: f.gone for n in plan.sources if (f := store.state.streams.get(n)) is not None and f.gone is not None}
    epoch = int(explanation.answers.epoch.min())
    for name in reversed(store.state.checkpoints):
        if (checkpoint_epoch(name) or 0) >= epoch:
            continue  # it stands behind an answer
        try:
            tables, meta = store.read_checkpoint(name)
        except StoreError:
            continue  # an older one serves as well
        if meta["stamp"] < first and all(step_mark(plan, n) in tables for n in plan.kernels):
            if any(g.holes_at(meta["stamp"] + 1, last) for g in gone.values()):
                break
            states = states_from(plan, tables, meta)
            return Start(meta["epoch"], meta["stamp"], states, meta["sources"])
    holes = [hole.told(n) for n, g in gone.items() for hole in g.holes_at(1, last)]
    if holes:
        raise TooOld(
            f"{explanation.output} cannot be replayed: tuples in front of its lineage, or between, are gone",
            details=[*holes[:MOST_TOLD], *(["…"] if len(holes) > MOST_TOLD else [])],
            hint="no checkpoint stands behind them; the explanation itself does not need them",
        )
    return Start(states=BoxStates())


def _replay(
    explanation: Explanation, plan: Plan, start: Start, last: int, without: dict[str, Ints] | None = None
) -> Iterator[Replayed]:
    tracer = explanation.tracer
    return iter(Replay(plan, tracer.store, tracer.lane, start, until=last, without=without or {}, watch=tracer.watch))


def _duplicates(explanation: Explanation, wanted: list[str], since: int, last: int | None = None) -> list[int]:
    """How many equal tuples the stream had got behind a stamp when each came, itself included."""
    answers, store = explanation.answers, explanation.tracer.store
    end = int(answers.seq.max()) if last is None else last
    table = store.read_table(explanation.output, ranges={"_seq": (None, end), STAMP: (since + 1, None)})
    rows = python_rows(table.select(answers.table.column_names))
    seqs = np.asarray(table.column("_seq")).tolist()
    found: dict[str, list[int]] = {text: [] for text in wanted}
    for seq, row in zip(seqs, rows, strict=True):
        if (text := repr(row)) in found:
            found[text].append(seq)
    own = [last] if last is not None else answers.seq.tolist()
    return [sum(s <= seq for s in found[text]) for text, seq in zip(wanted, own, strict=True)]


def _made_again(explanation: Explanation) -> list[bool | None]:
    """Whether each output tuple, made from what it is made of and nothing else, is the same."""
    answers = explanation.answers
    made = explanation.tracer.made_again(explanation.plan.stored[explanation.output], answers.places)
    if made is None:
        return [None] * len(answers)
    at = Places(made.stamp, made.pos).find(answers.places)
    told, expected = python_rows(made.table), python_rows(answers.table)
    return [i >= 0 and repr(told[i]) == repr(e) for i, e in zip(at.tolist(), expected, strict=True)]
