"""Three laws of every kernel.

*resume*: from the state that `resume` builds, fed with the rest, a kernel emits and refuses exactly what it
did. *reach*: whatever a change of the input makes differ lies within `reach`. *Both together*: a replay of the
reach from the first changed place on, put into what was emitted before, is what a fresh run emits.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.kernels import KERNELS
from tests.contract.replays import Case, Told, changes, refused, told, with_change

from clew.model.rows import NEVER
from clew.operators.replay import Change, Checkpoint, Reach, first_change

EXAMPLES = int(os.environ.get("CLEW_EXAMPLES", "40"))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_resumed_anywhere_a_kernel_emits_what_it_did(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    history = case.history(made)
    for stamp in range(case.last() + 2):
        again = case.run_from(stamp, case.resumed(stamp, history))
        assert told(case.kernel, again) == [t for t in told(case.kernel, made) if t[0] >= stamp], stamp
        assert refused(again) == [r for r in refused(made) if r[0] >= stamp], stamp


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_resumed_from_a_checkpoint_a_kernel_emits_what_it_did(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    history = case.history(made)
    last, stamp = sorted(data.draw(st.tuples(st.integers(0, case.last()), st.integers(0, case.last()))))
    checkpoint = Checkpoint(last, case.run_from(0, case.kernel.empty(), stop=last + 1).state)
    past = [case.part(port, last + 1, stamp + 1, None) for port in range(len(case.inputs))]
    again = case.run_from(stamp + 1, case.kernel.resume(stamp + 1, past, case.steps, history, checkpoint))
    assert told(case.kernel, again) == [t for t in told(case.kernel, made) if t[0] > stamp]
    assert refused(again) == [r for r in refused(made) if r[0] > stamp]


GROUPED = [n for n in KERNELS if n.startswith(("count", "clock", "panes", "anchored", "la", "join", "resample"))]


@pytest.mark.parametrize("name", GROUPED)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_one_group_resumed_alone_emits_what_it_did(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    all_groups = sorted(case.groups())
    if not all_groups:
        return
    groups = frozenset(data.draw(st.sets(st.sampled_from(all_groups), min_size=1, max_size=2)))
    history = case.history(made).only(case.kernel, groups)
    stamp = data.draw(st.integers(0, case.last() + 1))
    again = case.run_from(stamp, case.resumed(stamp, history, groups), groups)
    expected = [t for t in told(case.kernel, made) if t[0] >= stamp and t[5] in groups]
    assert list(map(_without_pos, told(case.kernel, again))) == list(map(_without_pos, expected))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data())
def test_what_differs_lies_within_reach_and_replayed_from_the_first_change_is_what_a_fresh_run_gives(
    name: str, data: st.DataObject
) -> None:
    case = data.draw(KERNELS[name])
    changed, after = data.draw(changes(case))
    made = case.run()
    reach = case.kernel.reach(changed, case.steps, after.steps, case.history(made))
    fresh = after.run()
    check_reach(reach, told(case.kernel, made), told(case.kernel, fresh))
    check_refused(changed, reach, refused(made), refused(fresh))
    check_replay(case, after, changed, reach)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), end=st.integers(1, 20))
def test_what_will_differ_is_within_a_reach_that_does_not_end(name: str, data: st.DataObject, end: int) -> None:
    """A change of what came before `end`, told before `end`: later rows differ only where the reach says NEVER."""
    whole = data.draw(KERNELS[name])
    case = whole.until(end)
    changed, changed_case = data.draw(changes(case, end))
    reach = case.kernel.reach(changed, case.steps, changed_case.steps, case.history(case.run()))
    after = replace(whole, inputs=tuple(with_change(r, c) for r, c in zip(whole.inputs, changed, strict=True)))
    old, new = told(case.kernel, whole.run()), told(case.kernel, after.run())
    if [a.end for a in case.steps] != [b.end for b in changed_case.steps]:
        return  # then the steps still to come close other windows, whatever the state
    for row in {_without_pos(t) for t in old if t[0] >= end} ^ {_without_pos(t) for t in new if t[0] >= end}:
        assert any(r.high == NEVER and (r.groups is None or row[-1] in r.groups) for r in reach), (row, reach)


def check_reach(reach: tuple[Reach, ...], old: list[Told], new: list[Told]) -> None:
    """Every row that differs lies within the reach; one that only stands elsewhere in its step, beside it."""
    before, after = {_without_pos(t) for t in old}, {_without_pos(t) for t in new}
    for row in set(old) ^ set(new):
        stamp, group = row[0], row[5]
        shifted = _without_pos(row) in before and _without_pos(row) in after
        beside = shifted and any(r.moves and r.low <= stamp <= r.high for r in reach)
        assert beside or any(r.holds(stamp, group) for r in reach), (row, reach)


def check_refused(changed: list[Change], reach: tuple[Reach, ...], old: list[Any], new: list[Any]) -> None:
    places = {s for c in changed for rows in (c.gone, c.come) for s in rows.stamp.tolist()}
    for row in set(old) ^ set(new):
        assert row[0] in places or any(r.low <= row[0] <= r.high for r in reach), (row, reach)


def check_replay(case: Case, after: Case, changed: list[Change], reach: tuple[Reach, ...]) -> None:
    made, fresh = case.run(), told(case.kernel, after.run())
    old = told(case.kernel, made)
    first = first_change(changed, case.steps, after.steps)
    if not reach or first == NEVER:
        assert old == fresh
        return
    last = max((r.high for r in reach if r.high < NEVER), default=-1)
    stop = NEVER if any(r.high == NEVER for r in reach) else last + 1
    replayed = told(case.kernel, after.run_from(first, case.resumed(first, case.history(made)), stop=stop))

    def inside(row: Told) -> bool:
        return any(r.low <= row[0] <= r.high for r in reach)

    spliced = [t for t in old if not inside(t)] + [t for t in replayed if inside(t)]
    assert sorted(spliced, key=lambda t: t[:2]) == fresh


def _without_pos(row: Told) -> tuple[Any, ...]:
    return row[0], *row[2:]
