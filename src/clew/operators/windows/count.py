"""Count windows: `c` rows of a group, a new window every `s` rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clew.errors import WindowError
from clew.expressions.aggregates import AggregateCall
from clew.model.groups import group_hash
from clew.model.places import place_codes
from clew.model.ranges import spread
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import CountWindow
from clew.operators.base import Emission, Origin, State
from clew.operators.replay import ByGroup, Change, Checkpoint, History, Reach, Reaches
from clew.operators.windows.base import GROUPS, Block, Closed, WindowKernel, from_head, per_group

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
        else:
            first = np.maximum((seen - size) // slide + 1, 0)
            stop = np.maximum((total - size) // slide + 1, 0)
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
        return self.emission(block.groups, closed, self.aggregated(block.table, lo, hi), self._after(block, total))

    def _after(self, block: Block, total: Ints) -> State:
        """The state when `total` rows of each group have been seen."""
        if self.partial:
            needed = np.maximum((total // self.slide + 1) * self.slide - self.size, 0)
        else:
            needed = np.maximum((total - self.size) // self.slide + 1, 0) * self.slide
        count = np.maximum(total - needed, 0)
        kept, _ = spread(block.bounds[1:] - count, count)
        return self.keep(block, kept, columns={SEEN: pa.array(total)})

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """Of a row replaced in place, the windows that hold it. Of one that goes or comes, the group's windows from
        its place on until they hold the same rows again: for good, unless the rows come less those gone make up a
        multiple of the slide; then up to the last window that begins before the change."""
        del before, after
        found = Reaches(bool(self.by))
        change, kept, origin = changes[0], self.kept(history), history.origin
        hashes = [group_hash(rows.table, self.by) for rows in (change.gone, change.come)]
        index, held, of_change = ByGroup(history.group), ByGroup(kept.group), [ByGroup(h) for h in hashes]
        for group in np.unique(np.concatenate(hashes)).tolist():
            part = (rows.take(by.of(group)) for rows, by in zip((change.gone, change.come), of_change, strict=True))
            stamp, pos, net = Change(*part).net()
            mine, now = index.of(group), held.of(group)
            windows = _Windows(history.stamp[mine], *place_codes(
                (origin.first_stamp[mine], origin.first_pos[mine]), (origin.last_stamp[mine], origin.last_pos[mine]),
                (kept.stamp[now], kept.pos[now]), (stamp, pos),
            ))  # fmt: skip
            shifted = np.cumsum(net) % self.slide != 0
            replaced = (net == 0) & ~np.append(False, shifted[:-1])
            found.add(*windows.holding(replaced), group, moves=False)
            if np.isin(windows.changed[replaced], windows.kept).any():
                found.add(NEVER, NEVER, group, moves=False)
            high = np.where(shifted, np.append(stamp[1:], NEVER), windows.last_before(self.slide, self.partial))
            found.add(stamp[~replaced], np.maximum(stamp, high)[~replaced], group)
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...] | None:
        """From the head of each group's first window that was not complete, which closed later or is in the state
        now; if it had not come yet, from the head of the last one that was."""
        del progress
        if self.partial and self.slide > self.size:
            return None  # the rows between two windows are in no origin
        return (int(self._heads(stamp, history)[1].min(initial=stamp)),)

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """Ordinals count from a head that the origins name; only their remainder by the slide tells."""
        if checkpoint is not None or (self.partial and self.slide > self.size):
            return super().resume(stamp, past, progress, history, checkpoint)
        group, first_stamp, first_pos, last_stamp, last_pos = self._heads(stamp, history)
        block = self.layout(self.empty(), from_head(past[0], self.by, group, first_stamp, first_pos))
        total = np.diff(block.bounds)
        if self.partial:
            at = np.searchsorted(group, block.groups.hash)
            last = (last_stamp[at][block.group()], last_pos[at][block.group()])
            ended = (block.stamp < last[0]) | ((block.stamp == last[0]) & (block.pos <= last[1]))
            inside = per_group(ended, block.bounds)
            whole = -(-self.size // self.slide) * self.slide  # a window of full size may have rows before it
            total = total - inside + np.where(inside < self.size, inside, whole)
        return self._after(block, total)

    def _heads(self, stamp: int, history: History) -> tuple[Ints, ...]:
        """For each group that had rows before `stamp`: hash, place of a head, and end of the last window before.

        The head is that of the next window, or, if it comes later or with `partial`, of the last one before.
        The end is (-1, -1) where there was none before.
        """
        kept, origin = self.kept(history), history.origin
        # One list: what was emitted, then the window that begins with the first row that is kept.
        hashes, first = np.unique(kept.group, return_index=True)
        group = np.concatenate([history.group, hashes])
        emitted = np.concatenate([history.stamp, np.full(len(hashes), NEVER)])
        begin = [np.concatenate(p) for p in (
            (origin.first_stamp, kept.stamp[first]), (origin.first_pos, kept.pos[first]))]  # fmt: skip
        end = [np.concatenate([a, np.full(len(hashes), -1)]) for a in (origin.last_stamp, origin.last_pos)]
        order = np.argsort(group, kind="stable")
        found, start = np.unique(group[order], return_index=True)
        stop = np.append(start[1:], len(order))[: len(start)]
        done = per_group(emitted[order] < stamp, np.append(start, len(order)))
        next_ = np.minimum(start + done, stop - 1)
        has_next = (start + done < stop) & (begin[0][order][next_] < stamp)
        last = np.maximum(start + done - 1, start)
        use = np.where(has_next & ~((done > 0) & self.partial), next_, last)
        known = has_next | (done > 0)
        ends = [np.where(done > 0, e[order][last], -1) for e in end]
        return tuple(a[known] for a in (found, *(b[order][use] for b in begin), *ends))


@dataclass(frozen=True, eq=False)
class _Windows:
    """The windows that one group emitted, and rows that its state holds; places as whole numbers."""

    stamp: Ints
    first: Ints
    last: Ints
    kept: Ints
    changed: Ints

    def holding(self, which: Bools) -> tuple[Ints, Ints]:
        """The stamps of the first and the last window that hold each of these changed places; none if none does."""
        lo = np.searchsorted(self.last, self.changed[which], side="left")
        hi = np.searchsorted(self.first, self.changed[which], side="right")
        some = hi > lo
        return self.stamp[lo[some]], self.stamp[hi[some] - 1]

    def last_before(self, slide: int, partial: bool) -> Ints:
        """For each changed place the stamp of the last window that can differ, if those behind it come as before."""
        places = np.maximum(self.changed, self.first[:1].max(initial=-1)) if partial else self.changed
        behind = np.searchsorted(self.first, places, side="right")
        # With a slide of 1 the last window that begins up to the place ends where the last changed one does.
        exact = np.searchsorted(self.first, self.changed, side="right") if slide == 1 else np.zeros_like(behind)
        stamp = np.append(self.stamp, NEVER)
        return np.where((exact > 0) & (behind < len(self.stamp)), stamp[exact - 1], stamp[behind])
