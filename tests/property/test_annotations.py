"""Provenance annotated streams hold their laws on random networks.

*exactness*: the annotation of a tuple is, as a set, what `why` finds in the origin index, for any set I of sources and
inner boxes. It stays so for any encoding, any cut into epochs, in both lanes, and after a restart at any epoch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.networks import Case, cases
from tests.spark.lanes import distribute_everything, tasks_here

import clew
from clew.engine.annotations import Annotate, leading
from clew.engine.plan import build_plan
from clew.model.encodings import Encoding
from clew.session import Engine
from clew.testing.laws import act

THOROUGH = bool(os.environ.get("CLEW_THOROUGH"))
pytestmark = pytest.mark.timeout(0 if THOROUGH else 300)
common = settings(
    max_examples=1000 if THOROUGH else 40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)  # fmt: skip

Told = dict[str, dict[str, dict[str, list[str]] | None]]


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="clew-annotations-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


@st.composite
def asked(draw: st.DrawFn, case: Case) -> dict[str, list[str] | None]:
    """For each output a set I of what leads to it: all sources, or some of them and of the boxes between."""
    plan = build_plan(case.network, lambda *_: [])
    found: dict[str, list[str] | None] = {}
    for stream, names in leading(plan).items():
        if stream not in plan.sources:
            some = st.lists(st.sampled_from(sorted(names)), min_size=1, max_size=3, unique=True)
            found[stream] = draw(st.one_of(st.none(), some))
    return found


def opened(case: Case, place: Path, annotate: object, lane: str = "driver") -> Engine:
    return clew.open(place, case.network, durable=False, lane=lane, annotate=annotate)


def annotations(engine: Engine, outputs: Any) -> Told:
    """The annotation of each tuple of these outputs."""
    found: Told = {}
    for stream in outputs:
        folder = engine._store.state.streams.get(stream)
        count = 0 if folder is None else folder.seq
        found[stream] = {f"{stream}:{n}": engine.annotation(stream, n) for n in range(1, count + 1)}
    return found


def explained(engine: Engine, outputs: dict[str, list[str] | None]) -> Told:
    """The same, as the origin index has it."""
    found: Told = {}
    for stream, names in outputs.items():
        folder = engine._store.state.streams.get(stream)
        why = engine.why(stream, of=names).tids if folder is not None and folder.seq else {}
        of = names or [n for n in engine._plan.sources if n in leading(engine._plan)[stream]]
        found[stream] = {tid: {n: tids[n] for n in of} for tid, tids in why.items()}
    return found


def as_sets(told: Told) -> Any:
    return {
        stream: {
            tid: None if each is None else {n: sorted(tids) for n, tids in each.items()} for tid, each in of.items()
        }
        for stream, of in told.items()
    }


@common
@given(data=st.data(), case=cases(), encoding=st.sampled_from(get_args(Encoding)))
def test_a_tuple_is_annotated_with_what_the_origin_index_tells_of_it(
    data: st.DataObject, case: Case, encoding: Encoding
) -> None:
    outputs = data.draw(asked(case))
    with folder() as place, opened(case, place / "s", Annotate(outputs, encoding)) as engine:
        for action in case.actions:
            act(engine, action)
        assert as_sets(annotations(engine, outputs)) == as_sets(explained(engine, outputs))


@common
@given(data=st.data(), case=cases())
def test_after_restarts_annotations_are_the_same(data: st.DataObject, case: Case) -> None:
    outputs = data.draw(asked(case))
    with folder() as place:
        engine = opened(case, place / "s", outputs)
        try:
            for action in case.actions:
                if data.draw(st.booleans()):
                    engine.close()
                    engine = opened(case, place / "s", outputs)
                act(engine, action)
            assert as_sets(annotations(engine, outputs)) == as_sets(explained(engine, outputs))
        finally:
            engine.close()


@common
@given(data=st.data(), case=cases())
def test_both_lanes_annotate_the_same(data: st.DataObject, case: Case) -> None:
    outputs = data.draw(asked(case))
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        with opened(case, place / "driver", outputs) as engine:
            for action in case.actions:
                act(engine, action)
            expected = annotations(engine, outputs)
        distribute_everything(patch)
        tasks_here(patch)
        patch.setattr("clew.opening.local_session", lambda **_: None)
        with opened(case, place / "tasks", outputs, "spark") as engine:
            for action in case.actions:
                act(engine, action)
            assert annotations(engine, outputs) == expected
