"""A reader, which knows a store alone, answers as the engine does that wrote it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.networks import Case, cases

import clew
from clew.engine import runtime
from clew.explain.reader import Reader
from clew.network.rebuild import missing_functions
from clew.session import Engine
from clew.testing.laws import act

pytestmark = pytest.mark.timeout(300)


def no_spark(*_: Any) -> Any:
    raise AssertionError("Spark was asked for")


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases(), mode=st.sampled_from(["exact", "exact", "off"]), every=st.sampled_from([1, 2, 64]))
def test_a_reader_answers_as_the_engine_did(case: Case, mode: str, every: int) -> None:
    place = Path(tempfile.mkdtemp(prefix="clew-reader-"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "CHECKPOINT_EPOCHS", every)
            check_same(case, mode, place / "store")
    finally:
        shutil.rmtree(place)


def check_same(case: Case, mode: str, store: Path) -> None:
    with clew.open(store, case.network, durable=False, lane="driver", lineage=mode) as engine:
        for action in case.actions:
            act(engine, action)
        if engine._store.state.network is None:
            return
        with Reader(store, session=no_spark) as rebuilt, Reader(store, case.network, session=no_spark) as given_file:
            lacks_code = bool(missing_functions(rebuilt.network))
            for stream in engine._plan.stored:
                expected = why(engine, stream)
                assert why(given_file, stream) == expected
                assert lacks_code or why(rebuilt, stream) == expected
                if mode == "exact":  # which tuples they are made of is known without the functions, too
                    told = [answer(lambda e=e, s=stream: e.why(s).tids) for e in (rebuilt, engine)]
                    assert told[0] == told[1]
            for source in engine._plan.sources:
                expected = impact(engine, source)
                assert impact(given_file, source) == expected
                found = impact(rebuilt, source)
                assert found == expected or (lacks_code and found.startswith("CodeMissing: "))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_impact_is_why_the_other_way(case: Case) -> None:
    place = Path(tempfile.mkdtemp(prefix="clew-reader-"))
    try:
        check_inverse(case, place / "store")
    finally:
        shutil.rmtree(place)


def check_inverse(case: Case, store: Path) -> None:
    with clew.open(store, case.network, durable=False, lane="driver") as engine:
        for action in case.actions:
            act(engine, action)
        there = [name for name in engine._plan.stored if name in engine._store.state.streams]
        sources = [name for name in there if name in engine._plan.sources]
        made_of = {name: engine.why(name).tids for name in there if name not in sources}
        for source in sources:
            seqs = engine.why(source).answers.seq.tolist()
            for tid, found in engine.impact(source, seqs).tids.items():
                for name, of in made_of.items():
                    assert found[name] == [made for made, inputs in of.items() if tid in inputs[source]]


def why(asked: Engine | Reader, stream: str) -> str:
    return answer(lambda: asked.why(stream).to_json())


def impact(asked: Engine | Reader, stream: str) -> str:
    return answer(lambda: asked.impact(stream, asked.why(stream).answers.seq.tolist()).to_json())


def answer(ask: Callable[[], Any]) -> str:
    """What is answered, or how it is refused."""
    try:
        return repr(ask())
    except clew.ClewError as error:
        return f"{type(error).__name__}: {error}"
