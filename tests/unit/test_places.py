"""Places: each once, and found again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clew.model.places import Places

pairs = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=20)
near = st.lists(st.tuples(st.integers(5, 12), st.just(1)), max_size=40)
far = st.lists(st.tuples(st.integers(0, 2**60), st.just(0)), max_size=6)


@given(pairs | near | far)
def test_each_place_once_in_order_and_the_number_of_each(places: list[tuple[int, int]]) -> None:
    stamp, pos = (np.array([p[i] for p in places], np.int64) for i in range(2))
    found, number = Places(stamp, pos).distinct()
    once = list(zip(found.stamp.tolist(), found.pos.tolist(), strict=True))
    assert once == sorted(set(places))
    assert [once[n] for n in number.tolist()] == places


@given(pairs, pairs)
def test_a_place_is_found_where_it_is(mine: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    once = sorted(set(mine))
    held, wanted = (Places(*(np.array([p[i] for p in all_], np.int64) for i in range(2))) for all_ in (once, asked))
    assert held.find(wanted).tolist() == [once.index(p) if p in once else -1 for p in asked]
