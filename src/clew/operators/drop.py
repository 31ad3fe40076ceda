"""Drop: load shedding (δ of Aurora, Appendix 1; by ordinal and not by index value, see the table of the algebra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clew.errors import NetworkError
from clew.model.rows import Ints, Rows, mix
from clew.model.steps import Steps
from clew.operators.base import Emission, Kernel, Origin, State


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
