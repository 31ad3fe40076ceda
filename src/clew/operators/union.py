"""Union: streams of one schema merged by place (∪ of Glavic et al., "Efficient Stream Provenance", §3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clew.model.groups import sort_by
from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators.base import Emission, Kernel, Origin, State, positions
from clew.operators.lineage import Known, Links, Picked
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches


class UnionKernel(Kernel):
    """Merges `inputs` streams by stamp, then input, then position; the paper's arrival order O, made deterministic.

    *Schema*: the one that all inputs have; columns are found by name. *State*: none. *Progress*: none
    needed. *Stamp*: the row's. *Origin*: the row, its `tag` the number of its input; ident: the row's.
    """

    def __init__(self, schema: pa.Schema, inputs: int = 2) -> None:
        self.schema = schema
        self.keys = ((),) * inputs
        self.progress_on = (None,) * inputs
        self.state_keys: Mapping[str, tuple[str, ...]] = {}

    def empty(self) -> State:
        return {}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        del progress
        names = self.schema.names
        rows = Rows.concat([r.with_table(r.table.select(names).cast(self.schema)) for r in inputs])
        number = np.repeat(np.arange(len(inputs)), [len(r) for r in inputs])
        order = sort_by(rows.stamp, number, rows.pos)
        taken, number = rows.take(order), number[order]
        return Emission(
            rows=Rows(taken.table, taken.stamp, positions(taken.stamp), taken.ident),
            tie=(pa.array(number), pa.array(taken.pos)),
            origin=Origin.of_rows(taken, number),
            state=state,
        )

    def links(self, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None) -> tuple[Links, ...]:
        del known, wanted
        return tuple(
            Links(of, origin.first.take(of)) for of in (np.flatnonzero(origin.tag == n) for n in range(len(self.keys)))
        )

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:
        del origin
        tables = [
            r.table.select(self.schema.names).take(pa.array(p.row)).cast(self.schema)
            for r, p in zip(inputs, picked, strict=True)
        ]
        order = np.argsort(np.concatenate([p.owner for p in picked]), kind="stable")
        return pa.concat_tables(tables).take(pa.array(order))

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """The steps in which rows go or come: rows behind them in their step move up or down."""
        del before, after, history
        found = Reaches(grouped=False)
        for rows in (rows for change in changes for rows in (change.gone, change.come)):
            found.add(rows.stamp, rows.stamp)
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...]:
        del progress, history
        return (stamp,) * len(self.keys)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """There is no state."""
        del stamp, past, progress, history, checkpoint
        return self.empty()


def reference(*inputs: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, Mapping[str, Any]]]:
    """What a union emits, as (stamp, number of the input, row)."""
    numbered = [(row["_stamp"], number, row) for number, rows in enumerate(inputs) for row in rows]
    return sorted(numbered, key=lambda item: (item[0], item[1], item[2]["_pos"]))
