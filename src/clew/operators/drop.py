"""Drop: load shedding (δ of Aurora, Appendix 1; by ordinal and not by index value, see the table of the algebra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.errors import NetworkError
from clew.model.places import among
from clew.model.rows import NEVER, Ints, Rows, mix
from clew.model.steps import Steps
from clew.operators.base import Emission, Kernel, Origin, State
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches, steps_of


class DropKernel(Kernel):
    """Drops every `every`-th row, or each row with probability `fraction`.

    *Meaning.* With `every=k`, the k-th, 2k-th, ... row of all the box has ever seen. With `fraction=p`, a
    row whose hash of (ident, seed) falls below p: the same rows after any cut, restart or insert.

    *Schema*: the input's. *State*: `count`, one row, how many rows were seen; none with `fraction`.
    *Progress*: none needed. A kept row keeps stamp, ident and also its position, which is therefore not
    dense. *Origin*: the row.
    """

    def __init__(self, every: int | None, fraction: float | None, seed: int, schema: pa.Schema) -> None:
        if (every is None) == (fraction is None):
            raise NetworkError("a drop takes either every=k or fraction=p", hint="give exactly one of them")
        if every is not None and every < 1:
            raise NetworkError(f"drop(every={every}) is no count of rows", hint="every is 1 or more")
        if fraction is not None and not 0 <= fraction <= 1:
            raise NetworkError(f"drop(fraction={fraction}) is no probability", hint="fraction is from 0 to 1")
        self.every = every
        self.fraction = fraction
        self.seed = seed
        self.schema = schema
        self.keys = ((),)
        self.progress_on = (None,)
        self.state_keys: Mapping[str, tuple[str, ...]] = {} if every is None else {"count": ()}

    def empty(self) -> State:
        return {} if self.every is None else {"count": _count(0)}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        del progress
        rows = inputs[0]
        if self.every is None:
            keep = uniform(rows.ident, self.seed) >= (self.fraction or 0.0)
        else:
            seen = state["count"].column("seen")[0].as_py()
            keep = (seen + 1 + np.arange(len(rows))) % self.every != 0
            state = {"count": _count(seen + len(rows))}
        kept = rows.filter(keep)
        return Emission(kept, (pa.array(kept.pos),), Origin.of_rows(kept), state)

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """The steps that changed; with `every`, also those between two changes while the number of rows come less
        rows gone is no multiple of it, for then other rows are dropped."""
        del before, after, history
        if self.every is None:
            return steps_of(changes[0])
        found = Reaches(grouped=False)
        stamp, _, net = changes[0].net()
        shifted = np.cumsum(net) % self.every != 0
        found.add(stamp, np.where(shifted, np.append(stamp[1:], NEVER)[: len(stamp)], stamp))
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...]:
        """With `every=k`, rows enough to hold one that was dropped: from the k-th last row kept on."""
        del progress
        kept = int(np.searchsorted(history.stamp, stamp, side="left"))
        if self.every in (None, 1):
            return (stamp,)
        return (int(history.stamp[kept - self.every]) if kept >= self.every else 0,)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """With `every`, how many rows have come since the last that was dropped, which no origin names."""
        if checkpoint is not None or self.every in (None, 1):
            return super().resume(stamp, past, progress, history, checkpoint)
        rows = past[0]
        dropped = np.flatnonzero(~among(rows, history.origin.first_stamp, history.origin.first_pos))
        return {"count": _count(len(rows) - 1 - int(dropped[-1]) if len(dropped) else len(rows))}


def uniform(ident: Ints, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each ident, the same in every process."""
    return (mix(ident, seed).astype(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _count(seen: int) -> pa.Table:
    return pa.table({"seen": pa.array([seen], pa.int64())})


def reference(
    rows: Sequence[Mapping[str, Any]], every: int | None, fraction: float | None, seed: int
) -> list[Mapping[str, Any]]:
    """The rows that a drop keeps."""
    if every is not None:
        return [row for ordinal, row in enumerate(rows, 1) if ordinal % every]
    return [row for row in rows if (_splitmix(row["_ident"], seed) >> 11) / 2**53 >= (fraction or 0)]


def _splitmix(value: int, seed: int) -> int:
    """`clew.model.rows.mix` of one number, in Python's own arithmetic."""
    z = (value + (seed + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)
