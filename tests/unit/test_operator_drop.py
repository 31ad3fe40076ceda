"""Drop: every k-th row of the box's whole life, or the same random rows after any cut."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import cuts, listed, rows_of, run_cut, stamps

from clew.errors import NetworkError
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators.drop import DropKernel, reference

SCHEMA = pa.schema([("n", pa.int64())])
HOW = st.one_of(st.tuples(st.integers(1, 4), st.none()), st.tuples(st.none(), st.sampled_from([0.0, 0.3, 0.9, 1.0])))


def stream(stamp: list[int]) -> Rows:
    return rows_of(pa.table({"n": pa.array(range(len(stamp)), pa.int64())}, schema=SCHEMA), stamp)


@settings(max_examples=80)
@given(stamp=stamps(), how=HOW, seed=st.integers(-5, 5), cuts=cuts)
def test_drop_equals_its_reference_under_any_cut(
    stamp: list[int], how: tuple[int | None, float | None], seed: int, cuts: list[int]
) -> None:
    rows = stream(stamp)
    kernel = DropKernel(*how, seed, SCHEMA)
    states = [run_cut(kernel, [rows], [Steps.none()], c) for c in ((), cuts)]
    expected = reference(listed(rows), *how, seed)
    for ran in states:
        assert ran.rows.to_table().to_pylist() == expected  # places are kept
        assert ran.origins() == [(*2 * (row["_stamp"], row["_pos"]), 0) for row in expected]


def test_every_third_row_is_dropped_whatever_the_steps() -> None:
    whole = run_cut(DropKernel(3, None, 0, SCHEMA), [stream([1, 1, 1, 2, 3, 3, 3])], [Steps.none()], [1, 2])
    assert whole.stamped() == [(1, 0), (1, 1), (2, 3), (3, 4), (3, 6)]
    assert whole.rows.pos.tolist() == [0, 1, 0, 0, 2]


def test_random_drop_takes_about_its_fraction_and_other_rows_for_another_seed() -> None:
    rows = stream(list(range(10_000)))
    numbers = [
        run_cut(DropKernel(None, 0.25, seed, SCHEMA), [rows], [Steps.none()]).rows.table.column("n").to_pylist()
        for seed in (0, 1)
    ]
    assert all(7300 < len(n) < 7700 for n in numbers)
    assert 5400 < len(set(numbers[0]) & set(numbers[1])) < 5850


@pytest.mark.parametrize(
    ("every", "fraction", "message"),
    [
        (None, None, "a drop takes either every=k or fraction=p"),
        (2, 0.5, "a drop takes either every=k or fraction=p"),
        (0, None, "drop(every=0) is no count of rows"),
        (None, 1.5, "drop(fraction=1.5) is no probability"),
    ],
)
def test_a_drop_that_means_nothing_is_refused(every: int | None, fraction: float | None, message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        DropKernel(every, fraction, 0, SCHEMA)
    assert caught.value.message == message
