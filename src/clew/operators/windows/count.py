"""Count windows: `c` rows of a group, a new window every `s` rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clew.errors import WindowError
from clew.expressions.aggregates import AggregateCall
from clew.model.rows import Rows, mix_pair
from clew.network.boxes import CountWindow
from clew.operators.base import Emission, Origin, State
from clew.operators.windows.base import GROUPS, Closed, WindowKernel, spread

SEEN = "_window_seen"


class CountKernel(WindowKernel):
    """Window k of a group holds its rows `[k·s, k·s + c)` and is emitted when the last of them arrives.

    With `partial`, SQL's `ROWS c - 1 PRECEDING`: a window ends at every s-th row and holds up to c rows.
    Its trigger is its last row. It is named by group and first row; a partial one by group and last row.
    """

    group_columns = ((SEEN, pa.int64()),)

    def __init__(
        self, window: CountWindow, by: tuple[str, ...], calls: tuple[AggregateCall, ...], schema: pa.Schema
    ) -> None:
        if window.rows < 1 or window.slide < 1:
            raise WindowError(f"a window of rows={window.rows}, slide={window.slide}: both must be at least 1")
        super().__init__(by, calls, schema)
        self.size, self.slide, self.partial = window.rows, window.slide, window.partial

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[object]) -> Emission:  # noqa: ARG002
        block = self.layout(state, inputs[0])
        size, slide = self.size, self.slide
        seen = block.groups.carry(state[GROUPS].column(SEEN), 0)
        base = seen - block.kept  # the ordinal of the first row in the block
        total = base + np.diff(block.bounds)
        if self.partial:  # the j-th window ends before ordinal j·s
            first, stop = seen // slide + 1, total // slide + 1
            needed = np.maximum(stop * slide - size, 0)
        else:
            first = np.maximum((seen - size) // slide + 1, 0)
            stop = np.maximum((total - size) // slide + 1, 0)
            needed = stop * slide
        number, group = spread(first, stop - first)
        shift = (block.bounds[:-1] - base)[group]
        if self.partial:
            lo, hi = np.maximum(number * slide - size, 0) + shift, number * slide + shift
        else:
            lo = number * slide + shift
            hi = lo + size
        named = block.ident[hi - 1 if self.partial else lo]
        closed = Closed(
            group,
            block.stamp[hi - 1],
            mix_pair(block.groups.hash[group], named),
            Origin(*block.places(lo, hi - 1), np.zeros_like(lo)),
        )
        kept, _ = spread(block.bounds[1:] - np.maximum(total - needed, 0), np.maximum(total - needed, 0))
        after = self.keep(block, kept, columns={SEEN: pa.array(total)})
        return self.emission(block.groups, closed, self.aggregated(block.table, lo, hi), after)
