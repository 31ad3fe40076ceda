"""Join: pairs within a band, inner or left outer (⋈ of Glavic et al., "Efficient Stream Provenance", §3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clew.model.axis import Axis, Number, axis_of
from clew.model.groups import group_hash, sort_by
from clew.model.places import among
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.network.boxes import joined_columns
from clew.operators.band import Band, admitted, check_pair, met_in_time, pair_codes, raised, shifted, within_end
from clew.operators.base import Emission, Kernel, Origin, Refused, State, positions
from clew.operators.lineage import Known, Links, Picked
from clew.operators.progress import after_step, cut, differing
from clew.operators.replay import Change, Checkpoint, History, Reach, Reaches

MATCHED = "_matched"
BEHIND = "too late: all it could be joined to is gone, and no more can come"


class Failures(Protocol):
    """Rows on which an expression failed, if any, and why."""

    @property
    def failed(self) -> Bools | None: ...

    def reason(self, row: int) -> str: ...


class Residual(Protocol):
    """A compiled condition over the join's output columns, and its text."""

    @property
    def sql(self) -> str: ...

    def keep(self, table: pa.Table) -> tuple[Bools, Failures]: ...


@dataclass(frozen=True)
class _Side:
    """One input: what was kept of it, then what has arrived, in place order."""

    rows: Rows
    on: Axis
    until: Ints  # the last step in which a row can be met
    fresh: Bools  # arrived in this call
    matched: Bools


class JoinKernel(Kernel):
    """Pairs with `left.on + low <= right.on <= left.on + high`, equal keys, for which `where` holds.

    *Meaning.* A pair is emitted when its later row arrives; all rows of one stamp, on both inputs, are
    one arrival. Null keys never match; NaN equals NaN, -0.0 equals 0.0. A left row can be met until the
    right input's progress passes `left.on + high`, a right row until the left's progress + `low` passes
    `right.on`. With `how="left"`, a left row that met no partner is emitted with nulls in the step in
    which it can be met no more (its own, if progress was there before it).

    *Schema*: all columns of the left, then those of the right without its keys; a name that the left has
    gets the suffix. *State*: `left` and `right`, the rows that can still be met (`_matched` in `left`
    of an outer join: has a partner). *Progress*: on both order columns. *Order in a step*: by left, then
    right place. *Origin*: the left row and the right row (-1, -1 in an outer row). Ident: of both.
    *Late*: rows with null or NaN in the order column; rows of either input that come when no row of the
    other that they could meet is left (left: the left's progress + low has passed `on + high`, and so has
    the right's progress; right: the same seen from there). *Rejected*: pairs on which `where` fails, as
    rows of the output; they do not match.
    """

    def __init__(
        self,
        on: tuple[str, str],
        low: Number,
        high: Number,
        keys: Sequence[tuple[str, str]],
        where: Residual | None,
        how: Literal["inner", "left"],
        schemas: tuple[pa.Schema, pa.Schema],
        suffix: str = "_right",
    ) -> None:
        check_pair(schemas, on, keys)
        self.on = on
        self.band = Band(low, high)
        self.pairs_of_keys = tuple(keys)
        self.where = where
        self.outer = how == "left"
        self.schemas = schemas
        self.schema = join_schema(schemas, keys, suffix)
        names = joined_columns(schemas[0].names, schemas[1].names, keys, suffix)
        self.order_columns = (on[0], *(names[n] for n in on[1:] if n in names))
        self.keys = (tuple(k for k, _ in keys), tuple(k for _, k in keys))
        self.progress_on = on
        self.grouped_by = self.keys[0]
        self.state_keys: Mapping[str, tuple[str, ...]] = {"left": self.keys[0], "right": self.keys[1]}
        self.holding = ("left", "right")
        self._right_columns = list(names)

    def empty(self) -> State:
        left, right = (Rows.empty(schema).to_table() for schema in self.schemas)
        return {"left": self._with_matched(left, np.empty(0, np.bool_)), "right": right}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        both = (progress[0], progress[1])
        left, left_late = self._side(0, state["left"], inputs[0], both)
        right, right_late = self._side(1, state["right"], inputs[1], both)
        codes = pair_codes((left.rows.table, right.rows.table), self.pairs_of_keys)
        joinable = (_has_keys(left.rows.table, self.keys[0]), _has_keys(right.rows.table, self.keys[1]))

        found, refused = self._matches(left, right, codes, joinable)
        matched = left.matched.copy()
        matched[found[0]] = True
        closed = left.until != NEVER
        alone = np.flatnonzero(closed & ~matched) if self.outer else np.empty(0, np.int64)
        out = self._emit(left, right, found, alone)
        kept = ~closed if self.outer else ~closed & joinable[0]
        state = {
            "left": self._with_matched(left.rows.filter(kept).to_table(), matched[kept]),
            "right": right.rows.filter((right.until == NEVER) & joinable[1]).to_table(),
        }
        return Emission(*out, state, left_late + right_late, refused)

    # --- what explanations ask ---

    def ends(self, port: int) -> tuple[str, str]:
        return ("last_stamp", "last_stamp") if port else ("first_stamp", "first_stamp")

    def links(self, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None) -> tuple[Links, ...]:
        del known, wanted
        pairs = np.flatnonzero(origin.last_stamp >= 0)
        return Links.one_each(origin.first_stamp, origin.first_pos), Links(pairs, origin.last.take(pairs))

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:
        rights = np.full(len(origin), -1)
        rights[picked[1].owner] = picked[1].row
        return self._joined(inputs[0].table, inputs[1].table, picked[0].row, rights)

    # --- what revisions ask ---

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """From a changed row's step to the last in which it can be met; of a right row in an outer join, to the last
        in which a left row that it could meet comes alone. Where progress differs, the steps in which it does,
        and likewise those in which left rows come alone that met something then."""
        del history
        found = Reaches(bool(self.pairs_of_keys))
        for port, change in enumerate(changes):
            versions = [(change.gone, (before[0], before[1])), (change.come, (after[0], after[1]))]
            same = change.equal(*(self._number(port, rows) for rows, _ in versions))
            for (rows, steps), stays in zip(versions, same, strict=True):
                low, high, lives = self._lives(port, rows, steps)
                moves = ~stays[lives] | (self.where is not None)
                found.add(low, high, group_hash(rows.table, self.keys[port])[lives], moves)
        for port in range(2):
            low, high = differing(before[port], after[port])
            if port == 0 and self.outer:
                for told in (before, after):
                    last = after_step(told[0], high)
                    alone = shifted(raised(last, self.band.high), self.band.high)
                    high = np.where(high < NEVER, np.maximum(high, told[1].passes(within_end(alone))), NEVER)
            found.add(low, high)
        return found.done()

    def _number(self, port: int, rows: Rows) -> Ints:
        """A number that is the same for rows which meet the same rows."""
        on, _ = axis_of(rows.table.column(self.on[port]))
        return mix_pair(on.view(np.int64), group_hash(rows.table, self.keys[port]))

    def _lives(self, port: int, rows: Rows, steps: tuple[Steps, Steps]) -> tuple[Ints, Ints, Bools]:
        """The first and last steps in which rows of an input matter, and which rows do at all."""
        on, stands = axis_of(rows.table.column(self.on[port]))
        late = (self.band.left_behind, self.band.right_behind)[port](on, rows.stamp, steps)
        has_keys = _has_keys(rows.table, self.keys[port])
        if port == 0:
            last = np.maximum(rows.stamp, self.band.left_until(on, steps[1]))
            first = np.where(has_keys, rows.stamp, last)  # without keys it can only come alone
        else:
            first, last = rows.stamp, np.maximum(rows.stamp, self.band.right_until(on, steps[0]))
            if self.outer:
                lefts = raised(shifted(raised(on, self.band.low), -self.band.low), self.band.high)
                lefts = shifted(lefts, self.band.high)
                last = np.maximum(last, steps[1].passes(within_end(lefts)))
        lives = stands & ~late & (has_keys | (port == 0 and self.outer))
        return first[lives], last[lives], lives

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...] | None:
        """From where each input's progress came to the values that can still be met. Where progress is not ahead of
        the rows that says nothing, and only the nearest checkpoint serves."""
        if not all(history.leading):
            return None
        left, right = (cut(steps, stamp).end for steps in progress)
        return (
            self.band.first_left(right, progress[0], stamp),
            self.band.first_right(left, progress[1], stamp),
        )

    def resume(
        self, stamp: int, past: Sequence[Rows], progress: Sequence[Steps], history: History,
        checkpoint: Checkpoint | None = None,
    ) -> State:  # fmt: skip
        """The rows that can still be met; the origins say which left rows have been."""
        if checkpoint is not None or not all(history.leading):
            return super().resume(stamp, past, progress, history, checkpoint)
        sides = []
        for port, rows in enumerate(past):
            on, stands = axis_of(rows.table.column(self.on[port]))
            steps = cut(progress[1 - port], stamp)
            until = self.band.right_until(on, steps) if port else self.band.left_until(on, steps)
            keep = stands & (until == NEVER)
            if port or not self.outer:
                keep &= _has_keys(rows.table, self.keys[port])
            sides.append(rows.filter(keep))
        met = (history.stamp < stamp) & (history.origin.last_stamp >= 0)
        matched = among(sides[0], history.origin.first_stamp[met], history.origin.first_pos[met])
        return {"left": self._with_matched(sides[0].to_table(), matched), "right": sides[1].to_table()}

    def _side(
        self, port: int, kept: pa.Table, arrived: Rows, progress: tuple[Steps, Steps]
    ) -> tuple[_Side, tuple[Refused, ...]]:
        on, _ = axis_of(arrived.table.column(self.on[port]))
        behind = (self.band.left_behind, self.band.right_behind)[port](on, arrived.stamp, progress)
        arrived, late = admitted(arrived, self.on[port], port, behind, BEHIND)
        flags = np.zeros(len(kept) + len(arrived), np.bool_)
        if MATCHED in kept.column_names:
            flags[: len(kept)] = np.asarray(kept.column(MATCHED))
            kept = kept.drop_columns([MATCHED])
        rows = Rows.concat([Rows.from_table(kept), arrived])
        fresh = np.arange(len(rows)) >= len(kept)
        order = sort_by(rows.stamp, rows.pos)  # state that was partitioned otherwise comes in another order
        if (np.diff(order) < 0).any():
            rows, flags, fresh = rows.take(order), flags[order], fresh[order]
        on, _ = axis_of(rows.table.column(self.on[port]))
        until = self.band.right_until(on, progress[0]) if port else self.band.left_until(on, progress[1])
        return _Side(rows.with_table(rows.table.combine_chunks()), on, until, fresh, flags), late

    def _matches(
        self, left: _Side, right: _Side, codes: tuple[Ints, Ints], joinable: tuple[Bools, Bools]
    ) -> tuple[tuple[Ints, Ints], tuple[Refused, ...]]:
        """The pairs that this call completes, and those on which the residual failed."""
        parts: list[tuple[Ints, Ints]] = []
        failed: list[tuple[Ints, Ints]] = []
        reasons: list[str] = []
        for lefts, rights in self._candidates(left, right, codes, joinable):
            in_time = met_in_time(
                left.rows.stamp[lefts], left.until[lefts], right.rows.stamp[rights], right.until[rights]
            )
            if not in_time.all():
                lefts, rights = lefts[in_time], rights[in_time]
            if self.where is not None and len(lefts):
                keep, evaluated = self.where.keep(self._table(left, right, lefts, rights))
                if evaluated.failed is not None and evaluated.failed.any():
                    keep = keep & ~evaluated.failed
                    failed.append((lefts[evaluated.failed], rights[evaluated.failed]))
                    why = map(evaluated.reason, np.flatnonzero(evaluated.failed).tolist())
                    reasons += [f"{reason} in '{self.where.sql}'" for reason in why]
                lefts, rights = lefts[keep], rights[keep]
            parts.append((lefts, rights))
        refused = (self._refused(left, right, *_concat(failed), reasons),) if failed else ()
        return _concat(parts), refused

    def _candidates(
        self, left: _Side, right: _Side, codes: tuple[Ints, Ints], joinable: tuple[Bools, Bools]
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of band and keys of which one row has just arrived: each new left row with all of the
        right, then each old left row with what is new on the right."""
        for lefts, rights in ((left.fresh, np.ones_like(right.fresh)), (~left.fresh, right.fresh)):
            of_left, of_right = np.flatnonzero(lefts & joinable[0]), np.flatnonzero(rights & joinable[1])
            if len(of_left) and len(of_right):
                for i, j in self.band.pairs(
                    left.on[of_left], codes[0][of_left], right.on[of_right], codes[1][of_right]
                ):
                    yield of_left[i], of_right[j]

    def _emit(
        self, left: _Side, right: _Side, found: tuple[Ints, Ints], alone: Ints
    ) -> tuple[Rows, tuple[pa.Array, ...], Origin]:
        lefts = np.concatenate([found[0], alone])
        rights = np.concatenate([found[1], np.full(len(alone), -1)])
        stamp = np.concatenate(
            [
                np.maximum(left.rows.stamp[found[0]], right.rows.stamp[found[1]]),
                np.maximum(left.rows.stamp[alone], left.until[alone]),
            ]
        )
        order = sort_by(stamp, lefts, rights)
        lefts, rights, stamp = lefts[order], rights[order], stamp[order]
        outer = rights < 0
        origin = Origin(
            left.rows.stamp[lefts],
            left.rows.pos[lefts],
            _or_minus_one(right.rows.stamp, rights),
            _or_minus_one(right.rows.pos, rights),
            np.zeros(len(lefts), np.int64),
        )
        ident = mix_pair(left.rows.ident[lefts], np.where(outer, 0, _or_minus_one(right.rows.ident, rights)))
        rows = Rows(self._table(left, right, lefts, rights), stamp, positions(stamp), ident)
        places = (
            origin.first_stamp,
            origin.first_pos,
            np.where(outer, NEVER, origin.last_stamp),
            np.where(outer, NEVER, origin.last_pos),
        )
        return rows, tuple(pa.array(p) for p in places), origin

    def _refused(self, left: _Side, right: _Side, lefts: Ints, rights: Ints, reasons: list[str]) -> Refused:
        stamp = np.maximum(left.rows.stamp[lefts], right.rows.stamp[rights])
        order = sort_by(stamp, lefts, rights)
        lefts, rights, stamp = lefts[order], rights[order], stamp[order]
        ident = mix_pair(left.rows.ident[lefts], right.rows.ident[rights])
        rows = Rows(self._table(left, right, lefts, rights), stamp, positions(stamp), ident)
        return Refused(rows, tuple(reasons[i] for i in order.tolist()))

    def _table(self, left: _Side, right: _Side, lefts: Ints, rights: Ints) -> pa.Table:
        """The output columns of the pairs; -1 on the right gives nulls."""
        return self._joined(left.rows.table, right.rows.table, lefts, rights)

    def _joined(self, left: pa.Table, right: pa.Table, lefts: Ints, rights: Ints) -> pa.Table:
        of_left = left.take(pa.array(lefts))
        of_right = right.select(self._right_columns).take(pa.array(rights, mask=rights < 0))
        return pa.Table.from_arrays([*of_left.columns, *of_right.columns], schema=self.schema)

    def _with_matched(self, left: pa.Table, matched: Bools) -> pa.Table:
        return left.append_column(MATCHED, pa.array(matched)) if self.outer else left


def join_schema(schemas: tuple[pa.Schema, pa.Schema], keys: Sequence[tuple[str, str]], suffix: str) -> pa.Schema:
    """The columns a join emits.

    >>> schemas = pa.schema({"ts": pa.int64(), "k": pa.string()}), pa.schema({"ts": pa.int64(), "k": pa.string()})
    >>> join_schema(schemas, [("k", "k")], "_right").names
    ['ts', 'k', 'ts_right']
    """
    left, right = schemas
    names = joined_columns(left.names, right.names, keys, suffix)
    return pa.schema([*left, *(right.field(n).with_nullable(True).with_name(out) for n, out in names.items())])


def _has_keys(table: pa.Table, keys: Sequence[str]) -> Bools:
    present = np.ones(len(table), np.bool_)
    for name in keys:
        present &= np.asarray(pc.is_valid(table.column(name)))
    return present


def _concat(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(p[0] for p in parts)]), np.concatenate([none, *(p[1] for p in parts)])


def _or_minus_one(values: Ints, index: Ints) -> Ints:
    """`values[index]`, -1 where the index is -1."""
    return np.append(values, -1)[index]


def reference(
    left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]],
    progress: Sequence[Sequence[tuple[int, Any]]],
    on: tuple[str, str], low: Any, high: Any, keys: Sequence[tuple[str, str]] = (), how: str = "inner",
    where: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
) -> list[tuple[int, Mapping[str, Any], Mapping[str, Any] | None]]:  # fmt: skip
    """What a join emits, as (stamp, left row, right row), from rows and (stamp, progress) of both inputs."""

    def passed(port: int, by: Any, target: Any, stamp: int) -> bool:
        return any(at < stamp and value + by > target for at, value in progress[port])

    def late(row: Mapping[str, Any], port: int, own: Any, other: Any, target: Any) -> bool:
        return passed(port, own[0], own[1], row["_stamp"]) and passed(1 - port, other, target, row["_stamp"])

    a, b = on
    lefts = [x for x in left if _real(x[a]) and not late(x, 0, (low, x[a] + high), 0, x[a] + high)]
    rights = [y for y in right if _real(y[b]) and not late(y, 1, (0, y[b] - low + high), low, y[b])]
    out: list[tuple[int, Mapping[str, Any], Mapping[str, Any] | None]] = []
    for x in lefts:
        partners = [
            y for y in rights
            if x[a] + low <= y[b] <= x[a] + high and all(_same(x[k], y[m]) for k, m in keys)
            and (x["_stamp"] <= y["_stamp"] or not passed(0, low, y[b], x["_stamp"]))
            and (y["_stamp"] <= x["_stamp"] or not passed(1, 0, x[a] + high, y["_stamp"]))
            and (where is None or where(x, y))
        ]  # fmt: skip
        out += [(max(x["_stamp"], y["_stamp"]), x, y) for y in partners]
        closed = [at for at, value in progress[1] if value > x[a] + high]
        if how == "left" and not partners and closed:
            out.append((max(x["_stamp"], closed[0]), x, None))
    return sorted(out, key=lambda item: (item[0], _place(item[1]), _place(item[2]) if item[2] else ()))


def _real(value: Any) -> bool:
    return value is not None and value == value


def _same(x: Any, y: Any) -> bool:
    return x is not None and y is not None and (x == y or (x != x and y != y))


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["_stamp"], row["_pos"]
