"""Random networks hold the laws: equal to the reference; no cut, restart, arrival or lane changes anything.

`CLEW_THOROUGH=1` runs many more examples.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.networks import Case, cases
from tests.spark.lanes import distribute_everything, tasks_here

from clew.engine import runtime
from clew.testing import check_arrival, check_reference, check_restart, check_split_invariance, without_cache
from clew.testing.laws import run, same

THOROUGH = bool(os.environ.get("CLEW_THOROUGH"))
EXAMPLES = 2000 if THOROUGH else 40
pytestmark = pytest.mark.timeout(0 if THOROUGH else 300)
common = settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)  # fmt: skip


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="clew-law-"))
    try:
        yield place / "store"
    finally:
        shutil.rmtree(place)


@common
@given(case=cases())
def test_a_network_equals_its_reference(case: Case) -> None:
    with folder() as place:
        check_reference(case.network, case.actions, place)


@common
@given(case=cases(), cuts=st.lists(st.integers(1, 60), max_size=6))
def test_no_cut_of_the_admitted_sequence_changes_anything(case: Case, cuts: list[int]) -> None:
    with folder() as place:
        check_split_invariance(case.network, case.actions, place, cuts=[(), range(100), cuts])


@common
@given(case=cases(), seed=st.integers(0, 5))
def test_the_order_of_rows_within_a_batch_does_not_matter(case: Case, seed: int) -> None:
    with folder() as place:
        check_arrival(case.network, case.actions, place, seed=seed)


@common
@given(case=cases(), checkpoints=st.sampled_from([(1, 1), (7, 2), (10**6, 10**6)]), cache=st.booleans())
def test_restarts_at_every_epoch_boundary_change_nothing(case: Case, checkpoints: tuple[int, int], cache: bool) -> None:
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "CHECKPOINT_ROWS", checkpoints[0])
        patch.setattr(runtime, "CHECKPOINT_EPOCHS", checkpoints[1])
        check_restart(case.network, case.actions, place, damage=without_cache if cache else None)


@common
@given(case=cases())
def test_both_lanes_hold_the_same(case: Case) -> None:
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        expected = run(case.network, case.actions, place / "driver")
        distribute_everything(patch)
        tasks_here(patch)
        patch.setattr("clew.opening.local_session", lambda **_: None)
        same(expected, run(case.network, case.actions, place / "tasks", lane="spark"), "lanes")
