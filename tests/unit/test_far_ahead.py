"""Tuples too far ahead to be believed: one of them never makes the others late, and a stream that jumps goes on.

First numbers that count time, which the clock judges; then other numbers; then that the order of rows never matters.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_admission import NOW, Stream, orders, source

CLOCK = int(NOW.timestamp())
YEAR_2100 = int(dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp())


def warning(count: int, first: Any) -> str:
    return (
        f"stream 's': {count} tuple{'s' if count > 1 else ''} far ahead, the first with ts={first}, "
        "wait in pending; engine.advance('s', ...) admits them"
    )


# --- numbers that count time ---


@pytest.mark.parametrize(
    ("kind", "unit"),
    [("LONG", 1), ("LONG", 10**3), ("LONG", 10**6), ("LONG", 10**9), ("DOUBLE", 1.0), ("DOUBLE", 1e3),
     ("DECIMAL(18, 3)", Decimal(1)), ("INT", 1)],
)  # fmt: skip
def test_one_tuple_of_the_year_2100_does_not_make_all_others_late(kind: str, unit: Any) -> None:
    stream = Stream(source(f"ts {kind}, id INT"))
    hour = [(CLOCK - 3600 + i) * unit for i in range(3600)]
    stream.feed(*[(t, 1) for t in hour])
    wrong = YEAR_2100 * unit if kind != "INT" else 2**31 - 1
    made = stream.feed((wrong, 1))
    assert (orders(made), made.waiting) == ([], 1)
    assert len(made.warnings) == 1
    made = stream.feed(*[((CLOCK + i) * unit, 1) for i in range(100)])
    assert (len(made.rows), len(made.late), made.waiting) == (100, 0, 1)


def test_many_tuples_with_one_wrong_clock_are_no_more_believed_than_one() -> None:
    stream = Stream(source())
    made = stream.feed((CLOCK, 1), *[(YEAR_2100 + i, 1) for i in range(10)])
    assert (orders(made), made.warnings) == ([CLOCK], [warning(10, YEAR_2100)])


def test_numbers_that_count_time_may_jump_up_to_the_clock() -> None:
    stream = Stream(source())
    stream.feed((CLOCK - 10**8, 1), (CLOCK - 10**8 + 1, 1))
    assert orders(stream.feed((CLOCK, 1))) == [CLOCK]
    assert orders(stream.feed((CLOCK + 86_000, 1))) == [CLOCK + 86_000]


def test_a_stream_that_replays_the_future_goes_on_day_by_day() -> None:
    stream = Stream(source())
    assert orders(stream.feed((YEAR_2100, 1))) == [YEAR_2100]
    assert orders(stream.feed((YEAR_2100 + 80_000, 1))) == [YEAR_2100 + 80_000]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_the_first_time_of_a_stream_is_judged_by_the_clock_alone(kind: str) -> None:
    """It was believed, and all others were late."""

    def order(when: dt.datetime) -> Any:
        return when.date() if kind == "DATE" else when.replace(tzinfo=dt.UTC if kind == "TIMESTAMP" else None)

    wrong = order(dt.datetime(2100, 1, 1))
    stream = Stream(source(f"ts {kind}, id INT"))
    made = stream.feed((wrong, 1))
    assert (orders(made), made.waiting, len(made.warnings)) == ([], 1, 1)
    right = [order(NOW + dt.timedelta(days=days)) for days in (-400, 0)]
    made = stream.feed(*[(when, 2) for when in right])
    assert (orders(made), len(made.late), made.waiting) == (right, 0, 1)


def test_a_first_number_is_believed() -> None:
    assert orders(Stream(source()).feed((YEAR_2100, 1))) == [YEAR_2100]


# --- other numbers ---


def test_a_count_that_passes_where_times_stand_is_no_time() -> None:
    stream = Stream(source())
    step = 5_000_000
    made = stream.feed(*[(i, 1) for i in range(0, 3 * CLOCK, step)])
    assert (made.state.progress, made.warnings) == (3 * CLOCK // step * step, [])


@pytest.mark.parametrize("wrong", [500_000, 2**31 - 1, 10**12, 2**63 - 2])
def test_a_number_far_beyond_all_that_was_seen_waits(wrong: int) -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(100)])
    made = stream.feed((wrong, 1), (100, 1))
    assert (orders(made), made.warnings) == ([100], [warning(1, wrong)])
    made = stream.feed(*[(i, 1) for i in range(101, 201)])
    assert (len(made.rows), len(made.late), made.waiting) == (100, 0, 1)
    assert orders(stream.feed(advance=wrong)) == [wrong]


def test_a_first_batch_of_few_rows_is_judged_too() -> None:
    assert orders(Stream(source()).feed((1, 1), (2, 1), (990_000, 1))) == [1, 2]


@pytest.mark.parametrize("step", [1, 60_000, 90_000])
def test_even_steps_are_believed_from_the_first_on(step: int) -> None:
    stream = Stream(source())
    assert [orders(stream.feed((i * step, 1))) for i in range(5)] == [[i * step] for i in range(5)]


def test_honest_gaps_of_a_sequence_are_believed() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(2000)])
    assert orders(stream.feed((190_000, 1))) == [190_000]


def test_a_jump_that_several_tuples_of_a_batch_have_made_is_believed() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(1000)])
    there = [10**9, 10**9 + 1, 10**9 + 5]
    made = stream.feed((1000, 1), *[(t, 1) for t in there])
    assert (orders(made), made.warnings) == ([1000, *there], [])


def test_a_jump_that_later_tuples_confirm_is_believed_with_them() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(1000)])
    assert orders(stream.feed((10**9, 1))) == []
    assert orders(stream.feed((10**9 + 7, 1))) == []
    assert orders(stream.feed((10**9 + 9, 1))) == [10**9, 10**9 + 7, 10**9 + 9]
    assert orders(stream.feed((10**9 + 10, 1))) == [10**9 + 10]


def test_a_sparse_stream_of_large_steps_waits_for_its_third_only() -> None:
    stream = Stream(source())
    stream.feed((0, 1), (1, 1))
    assert [len(orders(stream.feed((i * 10**7, 1)))) for i in range(1, 6)] == [0, 0, 3, 1, 1]


def test_wrong_numbers_that_gather_while_the_stream_goes_on_are_never_believed() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(1000)])
    for i in range(10):
        assert orders(stream.feed((1000 + i, 1), (10**9 + i, 1))) == [1000 + i]


def test_one_number_however_often_it_comes_confirms_nothing() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(1000)])
    assert orders(stream.feed(*[(2**31 - 1, id) for id in range(50)])) == []


def test_wrong_numbers_that_have_nothing_to_do_with_each_other_confirm_nothing() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(1000)])
    assert orders(stream.feed(*[(10**k, 1) for k in range(7, 16)])) == []


def test_a_few_wrong_numbers_in_a_large_batch_confirm_nothing() -> None:
    made = Stream(source()).feed(*[(i, 1) for i in range(1000)], *[(10**9 + i, 1) for i in range(50)])
    assert (len(made.rows), made.waiting) == (1000, 50)


def test_what_was_believed_stays_so_while_it_waits_for_its_elders() -> None:
    stream = Stream(source(lateness=10**10))
    stream.feed(*[(t, 1) for t in (0, 1, 2, 10**9, 10**9 + 1, 10**9 + 2)])
    made = stream.feed((3, 1))
    assert (made.state.newest, made.warnings) == (10**9 + 2, [])


numbers = st.one_of(st.integers(0, 300), st.integers(10**6, 10**6 + 300), st.sampled_from([10**9, 2**31 - 1, 10**12]))
some = st.lists(st.tuples(numbers, st.integers(0, 3)), max_size=12)


@settings(max_examples=200)
@given(life=st.lists(some, max_size=6), lateness=st.sampled_from([0, 50]), seed=st.integers(0, 99))
def test_the_order_of_the_rows_never_matters(life: list[Any], lateness: int, seed: int) -> None:
    given_order, mixed_order = (Stream(source(lateness=lateness)) for _ in range(2))
    chance = random.Random(seed)
    for batch in life:
        expected = given_order.feed(*batch)
        found = mixed_order.feed(*chance.sample(batch, len(batch)))
        assert found.rows.equals(expected.rows)
        assert found.warnings == expected.warnings
        assert found.waiting == expected.waiting
