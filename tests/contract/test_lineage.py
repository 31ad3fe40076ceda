"""Two laws of every kernel.

*sufficiency*: made again from the rows that `links` names and no others, a row is what it was. *exactness*: without
the rows it is made of, a window's aggregates over all of its rows cannot be what they were; so the rows that
`collect` saw are exactly those named.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.kernels import KERNELS
from tests.contract.replays import Case

from clew.model.places import Places, among
from clew.model.rows import Rows
from clew.operators.base import Emission
from clew.operators.lineage import Known, Links, Picked, covering

EXAMPLES = int(os.environ.get("CLEW_EXAMPLES", "40"))


def taken(case: Case, made: Emission, port: int) -> Rows:
    """The rows of an input that the kernel did not refuse as late."""
    rows = case.inputs[port]
    for refused in made.late:
        if refused.port == port:
            rows = rows.filter(~among(rows, refused.rows.stamp, refused.rows.pos))
    return rows


def links_of(case: Case, made: Emission) -> tuple[Links, ...]:
    """What each row is made of, asked with nothing but the rows within the spans."""
    kernel, known = case.kernel, []
    for port, asked in enumerate(kernel.asks()):
        rows = taken(case, made, port)
        if asked is None:
            known.append(Known.none())
            continue
        ranges = covering(kernel.spans(port, made.origin))
        within = np.zeros(len(rows), np.bool_)
        for low, high in ranges:
            within |= (rows.stamp >= low) & (rows.stamp <= high)
        known.append(Known.of(rows.filter(within), asked))
    return kernel.links(made.origin, known)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data())
def test_made_again_from_what_it_is_made_of_a_row_is_what_it_was(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    links = links_of(case, made)
    for each, rows in zip(links, case.inputs, strict=True):
        assert (Places(rows.stamp, rows.pos).find(each.places) >= 0).all()
    if not case.kernel.remakes:
        return
    found = [Places(r.stamp, r.pos).find(e.places) for e, r in zip(links, case.inputs, strict=True)]
    picked = [Picked(e.owner, row) for e, row in zip(links, found, strict=True)]
    again = case.kernel.remake(made.origin, case.inputs, picked)
    assert repr(again.to_pylist()) == repr(made.rows.table.to_pylist())
    assert again.schema.equals(made.rows.table.schema)


@pytest.mark.parametrize("name", [n for n in KERNELS if n.startswith(("count", "clock", "anchored", "la", "resample"))])
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data())
def test_a_window_is_made_of_as_many_rows_as_it_counted(name: str, data: st.DataObject) -> None:
    case = data.draw(KERNELS[name])
    made = case.run()
    links = links_of(case, made)[0]
    counted = np.bincount(links.owner, minlength=len(made.rows)).tolist()
    assert counted == made.rows.table.column("rows").to_pylist()


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), stop=st.integers(1, 20))
def test_what_a_kernel_still_holds_covers_all_that_later_rows_are_made_of(
    name: str, data: st.DataObject, stop: int
) -> None:
    whole = data.draw(KERNELS[name])
    made, first = whole.run(), whole.until(stop).run()
    later = made.rows.stamp >= stop
    for port, links in enumerate(links_of(whole, made)):
        rows = taken(whole, made, port)
        rows = rows.filter(rows.stamp < stop)
        asked = whole.kernel.asks()[port]
        known = Known.of(rows, asked) if asked else Known.of_places(rows)
        held = whole.kernel.holds(first.state, port, known)
        used = links.places.take(later[links.owner])
        come = used.take(used.stamp < stop)
        at = Places(known.stamp, known.pos).find(come)
        assert held[at].all()
