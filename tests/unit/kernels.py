"""A kernel run over its whole input, cut into calls and partitions in any way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from clew.model.axis import axis_end, axis_of
from clew.model.rows import Rows, mix
from clew.model.steps import Steps
from clew.operators.base import (
    Emission,
    Kernel,
    Origin,
    Refused,
    State,
    join_state,
    merge,
    owners,
    positions,
    split_state,
)

Place = tuple[int, int]
Told = tuple[int, int, int, str]  # port, stamp, pos, reason


@dataclass
class Ran:
    """All that a kernel emitted over a run, and its state behind it."""

    rows: Rows
    origin: Origin
    late: list[Told]
    rejected: list[tuple[int, str, str]]  # port, row, reason
    state: State = field(compare=False)

    def values(self) -> list[dict[str, Any]]:
        return self.rows.table.to_pylist()

    def stamped(self, *columns: str) -> list[tuple[Any, ...]]:
        """(stamp, the columns' values) of each row."""
        names = columns or self.rows.table.column_names
        return list(zip(self.rows.stamp.tolist(), *(self.rows.table.column(n).to_pylist() for n in names), strict=True))

    def origins(self, floor: bool = False) -> list[tuple[int, ...]]:
        """First and last place and tag of each row, and the floor if asked for."""
        return [tuple(o) for o in zip(*(a.tolist() for a in self.origin.arrays()[: 5 + floor]), strict=True)]

    def told(self) -> tuple[object, ...]:
        """Everything that no cut may change, in a form that `==` compares: NaN as text."""
        rows = self.rows
        return (
            [repr(v) for v in rows.table.to_pylist()], rows.stamp.tolist(), rows.pos.tolist(), rows.ident.tolist(),
            self.origins(floor=True), self.late, self.rejected,
        )  # fmt: skip


def run_cut(
    kernel: Kernel, inputs: Sequence[Rows], steps: Sequence[Steps], cuts: Sequence[int] = (), parts: int = 1
) -> Ran:
    """Run a kernel in calls that end behind the stamps `cuts`, each call in `parts` partitions."""
    state, made, late, rejected = kernel.empty(), [], [], []
    edges = [-1, *sorted(set(cuts)), np.iinfo(np.int64).max]
    for low, high in pairwise(edges):
        taken = [r.filter((r.stamp > low) & (r.stamp <= high)) for r in inputs]
        told = [_between(s, low, high) for s in steps]
        owner = [owners(r.table, keys, parts) for r, keys in zip(taken, kernel.keys, strict=True)]
        emissions: list[Emission] = []
        for i, part in enumerate(split_state(kernel, state, parts) if parts > 1 else [state]):
            own = [r.filter(o == i) for r, o in zip(taken, owner, strict=True)]
            emissions.append(kernel.run(part, own, told))
        state = join_state([e.state for e in emissions]) if parts > 1 else emissions[0].state
        for e in emissions:
            check_emission(kernel, e)
            late += [t for r in e.late for t in _told(r)]
            rejected += [(r.port, repr(v), why) for r in e.rejected for v, why in _rows(r)]
        made.append(merge(emissions))
    rows = Rows.concat([rows for rows, _ in made])
    assert (np.diff(rows.stamp) >= 0).all()
    return Ran(rows, Origin.concat([origin for _, origin in made]), sorted(late), sorted(rejected), state)


def check_emission(kernel: Kernel, e: Emission) -> None:
    """The form of an emission: its schema, its lengths, its order."""
    assert e.rows.table.schema.equals(kernel.schema), (e.rows.table.schema, kernel.schema)
    assert set(e.state) == set(kernel.state_keys) == set(kernel.empty())
    assert {len(e.rows.table), len(e.rows.pos), len(e.rows.ident), *map(len, e.tie)} == {len(e.rows)}
    assert {len(a) for a in e.origin.arrays()} == {len(e.rows)}
    arrays = [e.rows.stamp, e.rows.pos, e.rows.ident, *e.origin.arrays()]
    assert {a.dtype for a in arrays} == {np.dtype(np.int64)}
    for name, table in kernel.empty().items():
        assert e.state[name].schema.equals(table.schema), name
    for r in (*e.late, *e.rejected):
        assert len(r.rows) == len(r.rows.table) == len(r.reasons) > 0


def _between(steps: Steps, low: int, high: int) -> Steps:
    of_call = (steps.stamp > low) & (steps.stamp <= high)
    seen = steps.value[steps.stamp <= low]
    return Steps(seen[-1].item() if len(seen) else steps.start, steps.stamp[of_call], steps.value[of_call])


def _told(refused: Refused) -> list[Told]:
    places = zip(refused.rows.stamp.tolist(), refused.rows.pos.tolist(), refused.reasons, strict=True)
    return [(refused.port, *place) for place in places]


def _rows(refused: Refused) -> list[tuple[dict[str, Any], str]]:
    table = Rows(refused.rows.table, refused.rows.stamp, refused.rows.pos, refused.rows.ident)
    kept = table.to_table().drop_columns(["_pos"])  # positions of refused pairs are counted per partition
    return list(zip(kept.to_pylist(), refused.reasons, strict=True))


def rows_of(table: pa.Table, stamp: Sequence[int], seed: int = 0) -> Rows:
    """Rows with positions and idents as a stream has them."""
    stamps = np.array(stamp, np.int64)
    return Rows(table, stamps, positions(stamps), mix(np.arange(len(stamps)), seed + 100))


def progress_of(rows: Rows, column: str, finish: int | None = None, dropped: Sequence[tuple[int, float]] = ()) -> Steps:
    """Progress as the running maximum of a column and of what a filter before `dropped`, as (stamp, value);
    at its end from the stamp `finish` on."""
    axis, stands = axis_of(rows.table.column(column))
    stamp = np.append(rows.stamp[stands], np.array([s for s, _ in dropped], np.int64))
    values = np.append(axis[stands], np.array([v for _, v in dropped], axis.dtype))
    order = np.argsort(stamp, kind="stable")
    steps = Steps.running(None, stamp[order], values[order])
    if finish is None:
        return steps
    end = np.array([axis_end(rows.table.schema.field(column).type)])
    return Steps(None, np.append(steps.stamp, finish), np.append(steps.value, end))


def told_steps(steps: Steps) -> list[tuple[int, Any]]:
    """Progress as the references take it."""
    return list(zip(steps.stamp.tolist(), steps.value.tolist(), strict=True))


def listed(rows: Rows) -> list[dict[str, Any]]:
    """Rows as the references take them."""
    return rows.to_table().to_pylist()


@st.composite
def stamps(draw: st.DrawFn, most: int = 25) -> list[int]:
    """Stamps of the rows of a stream: ascending, with several rows of one step and steps without rows."""
    jumps = draw(st.lists(st.sampled_from([0, 0, 1, 1, 1, 2]), max_size=most))
    return (np.cumsum(jumps, dtype=np.int64) + 1).tolist()


cuts = st.lists(st.integers(0, 40), max_size=4)
