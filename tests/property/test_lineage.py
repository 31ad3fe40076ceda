"""Explanations of random networks are what the reference tells, in every mode and after all that befalls a store.

`CLEW_THOROUGH=1` runs many more examples.
"""

from __future__ import annotations

import copy
import dataclasses
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.networks import Case, cases
from tests.property.test_networks import folder

from clew.archive import compaction
from clew.engine import runtime
from clew.network.network import Network
from clew.testing import without_cache
from clew.testing.lineage_laws import check_lineage

THOROUGH = bool(os.environ.get("CLEW_THOROUGH"))
EXAMPLES = int(os.environ.get("CLEW_EXAMPLES", "1000" if THOROUGH else "20"))
pytestmark = pytest.mark.timeout(0 if THOROUGH else 300)
common = settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)  # fmt: skip


@st.composite
def mixed(draw: st.DrawFn, network: Network) -> list[dict[str, str]]:
    """Modes that change from run to run, some boxes' apart from the others'."""
    either, found = st.sampled_from(["exact", "interval", "exact", "interval", "off"]), []
    boxes = [b.name for b in network.boxes if b.name not in network.sources]
    for _ in range(draw(st.integers(1, 3))):
        some = draw(st.lists(st.sampled_from(boxes), unique=True)) if boxes else []
        found.append({"*": draw(either), **{box: draw(either) for box in some}})
    return found


def renamed(network: Network) -> Network:
    """The same with other names for its boxes."""
    other = copy.copy(network)
    named = zip(network._written, network._names(), strict=True)
    other._written = [w if n in network.sources else dataclasses.replace(w, given=f"was_{n}") for w, n in named]
    return other


def lacking(network: Network, outputs: list[str]) -> Network:
    """The same without some outputs, and so without the boxes that feed these alone."""
    other = copy.copy(network)
    other._outputs = {name: box for name, box in network._outputs.items() if name not in outputs}
    wanted, stack = set[int](), [*other._outputs.values(), *other._kept.values()]
    while stack:
        number = stack.pop()
        if number not in wanted:
            wanted.add(number)
            stack += map(int, network._boxes[number].inputs)
    return other


@common
@given(case=cases(), mode=st.sampled_from(["exact", "interval"]), seed=st.integers(0, 9))
def test_explanations_are_what_the_reference_tells(case: Case, mode: str, seed: int) -> None:
    with folder() as place:
        check_lineage(case.network, case.actions, place, modes=[mode], seed=seed)


@common
@given(
    data=st.data(), case=cases(), seed=st.integers(0, 9), cache=st.booleans(), checkpoint=st.sampled_from([1, 10**6])
)
def test_no_restart_and_no_change_of_modes_changes_them(
    data: st.DataObject, case: Case, seed: int, cache: bool, checkpoint: int
) -> None:
    modes = data.draw(mixed(case.network))
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "CHECKPOINT_ROWS", checkpoint)
        patch.setattr(runtime, "CHECKPOINT_EPOCHS", checkpoint)
        patch.setattr(compaction, "MAX_SMALL", 2)
        check_lineage(
            case.network, case.actions, place, modes=modes, seed=seed, damage=without_cache if cache else None
        )


@common
@given(data=st.data(), case=cases(), seed=st.integers(0, 9))
def test_boxes_that_are_renamed_or_new_are_explained_too(data: st.DataObject, case: Case, seed: int) -> None:
    modes = data.draw(mixed(case.network))
    options = [renamed(case.network), case.network]
    if len(case.network.outputs) > 1:
        options.append(
            lacking(
                case.network, data.draw(st.lists(st.sampled_from(list(case.network.outputs)), max_size=2, unique=True))
            )
        )
    before = data.draw(st.lists(st.sampled_from(options), min_size=1, max_size=3))
    with folder() as place:
        check_lineage(case.network, case.actions, place, modes=modes, before=before, seed=seed)
