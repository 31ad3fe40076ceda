"""Apply: a user's own operator, its class declared by `how`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from clew.errors import CodeMissing, SchemaError, TypeProblem
from clew.model.places import Places
from clew.model.rows import NEVER, Bools, Ints, Rows, mix_pair
from clew.model.steps import Steps
from clew.model.types import type_name
from clew.operators.base import Emission, Kernel, Origin, Refused, State, positions
from clew.operators.lineage import Asked, Known, Links, Picked, Ranged, within
from clew.operators.replay import Change, History, Reach, Reaches, first_change, steps_of

ROW, FROM = "_row", "_from"


class _OtherCount(TypeProblem):
    """Another number of rows than a function was given."""


@dataclass(frozen=True)
class _Made:
    """What one step gave: output columns, and per row of them numbers of input rows (`first` -1: the first ever)."""

    table: pa.Table
    of: Ints  # the row it is named after
    first: Ints
    last: Ints


class ApplyKernel(Kernel):
    """A user's function over rows; what it must keep to depends on `how`. It sees visible columns only.

    `"rows"`: `function(rows) -> table`, one output row for each input row, in order, each a function of its
    own row alone. How many rows a call gets is not promised. Origin: the row; ident: the row's. If a call
    raises, or gives another number of rows or other columns, its rows are tried in halves until the rows at
    fault stand alone. If it gives another number of rows and none is at fault alone, all rows of the call are.

    `"stateful"`: `function(state, rows) -> (state, out)`, called once with all rows of each step. `state`
    is an Arrow table, None at first; everything remembered must be in it. `out` has a further whole-number
    column `_row`, the row (counted from 0 in `rows`) that completed it, and may have `_from`, the first
    row it is made of: lineage is the rows `_from` to `_row`, or `_row` alone. Ident: of row `_row`
    and its count among that row's outputs.

    `"opaque"`: `function(rows) -> out`, called once with all rows of each step. Origin: everything from the
    first row ever to the last of this step; ident: of the step's first row and a count.

    Output columns are found by name; they have the types of `schema`, or kindred ones whose values fit. *Stamp*: the
    step's. *Order in a step*: as the function gave it. *State*: `user`, one row with the user's table as an
    Arrow IPC stream (its schema is the user's) and the place of the first row ever, -1 before it.
    *Rejected*: rows at fault; where a call for a step fails, all rows of the step, and the state is as before.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: pa.Schema,
        how: Literal["rows", "stateful", "opaque"],
        input_schema: pa.Schema,
    ) -> None:
        self.function = function
        self.schema = schema
        self.how = how
        self.input_schema = input_schema
        self.keys = ((),)
        self.progress_on = (None,)
        self.state_keys: Mapping[str, tuple[str, ...]] = {} if how == "rows" else {"user": ()}
        self.remakes = how == "rows"

    def empty(self) -> State:
        return {} if self.how == "rows" else {"user": _state_table(None, -1, -1)}

    def run(self, state: State, inputs: Sequence[Rows], progress: Sequence[Steps]) -> Emission:
        del progress
        if self.how == "rows":
            return self._one_to_one(state, inputs[0])
        return self._by_step(state, inputs[0])

    def asks(self) -> tuple[Asked | None, ...]:
        return (None,) if self.how == "rows" else (Asked(),)

    def links(self, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None) -> tuple[Links, ...]:
        """`"rows"`: the row; else all rows from the first to the last."""
        if self.how == "rows":
            return super().links(origin, known)
        rows = (wanted or known)[0]
        owner, row = self.ranged(0, origin, known, wanted).pairs()
        return (Links(owner, Places(rows.stamp[row], rows.pos[row])),)

    def ranged(
        self, port: int, origin: Origin, known: Sequence[Known], wanted: Sequence[Known] | None = None
    ) -> Ranged:
        return within(self.spans(port, origin), np.zeros(len(origin), np.int64), (wanted or known)[port])

    def remake(self, origin: Origin, inputs: Sequence[Rows], picked: Sequence[Picked]) -> pa.Table:
        del origin
        table = inputs[0].table.take(pa.array(picked[0].row))
        return self._fitted(self.function(table), len(table))

    def holds(self, state: State, port: int, known: Known) -> Bools:
        """A function with a state may remember any row."""
        del state, port
        return np.full(len(known), self.how != "rows")

    def reach(
        self, changes: Sequence[Change], before: Sequence[Steps], after: Sequence[Steps], history: History
    ) -> tuple[Reach, ...]:
        """`"rows"`: the steps that changed. Else all from the first of them on, for any row may be remembered."""
        del history
        if self.how == "rows":
            return steps_of(changes[0])
        found = Reaches(grouped=False)
        first = first_change(changes, before[:0], after[:0])
        if first < NEVER:
            found.add(first, NEVER)
        return found.done()

    def needs(self, stamp: int, progress: Sequence[Steps], history: History) -> tuple[int, ...] | None:
        """`"rows"`: none. Else the nearest checkpoint, which alone holds what the function remembers."""
        del progress, history
        return (stamp,) if self.how == "rows" else None

    def _one_to_one(self, state: State, rows: Rows) -> Emission:
        done, reasons = [self.schema.empty_table()], dict[int, str]()
        if len(rows):
            done += self._tried(rows.table, 0, len(rows), reasons)[0]
        keep = np.ones(len(rows), np.bool_)
        keep[list(reasons)] = False
        stamp, pos = rows.stamp[keep], rows.pos[keep]
        out = Rows(pa.concat_tables(done).combine_chunks(), stamp, positions(stamp), rows.ident[keep])
        origin = Origin(stamp, pos, stamp, pos, np.zeros(len(stamp), np.int64))
        refused = (Refused(rows.filter(~keep), tuple(reasons[i] for i in sorted(reasons))),) if reasons else ()
        return Emission(out, (pa.array(out.pos),), origin, state, rejected=refused)

    def _tried(self, table: pa.Table, start: int, stop: int, reasons: dict[int, str]) -> tuple[list[pa.Table], bool]:
        """What is made of some rows, and whether one of them is at fault by itself; `reasons` takes why, by row."""
        try:
            return [self._fitted(self.function(table.slice(start, stop - start)), stop - start)], False
        except CodeMissing:
            raise
        except Exception as error:
            if stop - start == 1:
                reasons[start] = _text(error)
                return [], True
            half = (start + stop) // 2
            left, right = (self._tried(table, *part, reasons) for part in ((start, half), (half, stop)))
            if isinstance(error, _OtherCount) and not (left[1] or right[1]):
                reasons.update(dict.fromkeys(range(start, stop), _text(error)))
                return [], False
            return left[0] + right[0], left[1] or right[1]

    def _by_step(self, state: State, rows: Rows) -> Emission:
        kept = state["user"].to_pylist()[0]
        user, first_ever = _read(kept["ipc"]), (kept["first_stamp"], kept["first_pos"])
        if len(rows) and first_ever[0] < 0:
            first_ever = int(rows.stamp[0]), int(rows.pos[0])
        none = np.empty(0, np.int64)
        done, refused = [_Made(self.schema.empty_table(), none, none, none)], []
        starts = np.flatnonzero(np.diff(rows.stamp, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=False):
            step = rows.table.slice(start, stop - start)
            try:
                if self.how == "stateful":
                    user, made = self._stateful(user, step, start)
                else:
                    made = self._opaque(step, start)
                done.append(made)
            except CodeMissing:
                raise
            except Exception as error:
                refused.append(Refused(rows.slice(start, stop), (_text(error),) * (stop - start)))
        out, origin = _emitted(rows, done, first_ever)
        state = {"user": _state_table(user, *first_ever)}
        return Emission(out, (pa.array(out.pos),), origin, state, rejected=tuple(refused))

    def _stateful(self, user: pa.Table | None, step: pa.Table, start: int) -> tuple[pa.Table | None, _Made]:
        result = self.function(user, step)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeProblem(f"a stateful function gives (state, rows), not {_kind(result)}")
        after, out = result
        if after is not None and not isinstance(after, pa.Table):
            raise TypeProblem(f"the state is an Arrow table or None, not {_kind(after)}")
        table = self._fitted(out)
        last = _numbers(out, ROW, len(step))
        first = _numbers(out, FROM, len(step)) if FROM in out.column_names else last
        if (first > last).any():
            raise TypeProblem(f"column '{FROM}' lies behind '{ROW}'")
        return after, _Made(table, start + last, start + first, start + last)

    def _opaque(self, step: pa.Table, start: int) -> _Made:
        table = self._fitted(self.function(step))
        of, first, last = (np.full(len(table), i) for i in (start, -1, start + len(step) - 1))
        return _Made(table, of, first, last)

    def _fitted(self, out: object, count: int | None = None) -> pa.Table:
        """What the function gave, in the form of the schema; TypeProblem says what does not fit."""
        if not isinstance(out, pa.Table):
            raise TypeProblem(f"the function gives an Arrow table, not {_kind(out)}")
        if count is not None and len(out) != count:
            raise _OtherCount(f"the function gives one row for each row, but gave {len(out)} for {count}")
        found = [name for name in out.column_names if self.how != "stateful" or name not in (ROW, FROM)]
        if sorted(found) != sorted(self.schema.names):
            raise TypeProblem(f"the function gives columns {', '.join(self.schema.names)}, but gave {', '.join(found)}")
        for field in self.schema:
            gave = out.schema.field(field.name).type
            if not _kindred(gave, field.type):
                kinds = type_name(field.type).upper(), _type_text(gave)
                raise TypeProblem(f"the function gives column '{field.name}' as {kinds[0]}, but gave {kinds[1]}")
        return out.select(self.schema.names).cast(self.schema)


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_date,),
)


def _kindred(gave: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning of every value it does not refuse."""
    if pa.types.is_null(gave) or gave == wanted:
        return True
    if pa.types.is_dictionary(gave):
        return _kindred(gave.value_type, wanted)
    if pa.types.is_list(wanted) and (pa.types.is_list(gave) or pa.types.is_large_list(gave)):
        return _kindred(gave.value_type, wanted.value_type)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(gave)) and (gave.tz is None) == (wanted.tz is None)
    return any(any(is_a(gave) for is_a in family) and any(is_a(wanted) for is_a in family) for family in _FAMILIES)


def _type_text(data_type: pa.DataType) -> str:
    try:
        return type_name(data_type).upper()
    except SchemaError:
        return str(data_type)


def _emitted(rows: Rows, done: list[_Made], first_ever: tuple[int, int]) -> tuple[Rows, Origin]:
    of, first, last = (np.concatenate(part) for part in zip(*((m.of, m.first, m.last) for m in done), strict=True))
    stamp = rows.stamp[last]
    order = np.argsort(of, kind="stable")
    count = np.empty(len(of), np.int64)
    count[order] = positions(of[order])
    table = pa.concat_tables([m.table for m in done]).combine_chunks()
    out = Rows(table, stamp, positions(stamp), mix_pair(rows.ident[of], count))
    first_stamp, first_pos = np.append(rows.stamp, first_ever[0])[first], np.append(rows.pos, first_ever[1])[first]
    return out, Origin(first_stamp, first_pos, stamp, rows.pos[last], np.zeros(len(of), np.int64))


def _numbers(out: pa.Table, name: str, count: int) -> Ints:
    if name not in out.column_names:
        raise TypeProblem(f"the rows that a stateful function gives have a column '{name}'")
    column = out.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise TypeProblem(f"column '{name}' holds the number of a row, in every row")
    numbers = np.asarray(column.cast(pa.int64()))
    if ((numbers < 0) | (numbers >= count)).any():
        raise TypeProblem(f"column '{name}' holds numbers of rows, from 0 to {count - 1}")
    return numbers


def _text(error: Exception) -> str:
    """An exception as a reason; the form of clew's own errors is their text."""
    return str(error) if isinstance(error, TypeProblem) else f"{type(error).__name__}: {error}"


def _kind(value: object) -> str:
    return type(value).__name__


def _state_table(user: pa.Table | None, stamp: int, pos: int) -> pa.Table:
    ipc = None
    if user is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, user.schema) as writer:
            writer.write_table(user)
        ipc = sink.getvalue().to_pybytes()
    columns = {"ipc": pa.array([ipc], pa.large_binary()), "first_stamp": [stamp], "first_pos": [pos]}
    return pa.table(columns)


def _read(ipc: bytes | None) -> pa.Table | None:
    return None if ipc is None else pa.ipc.open_stream(ipc).read_all()


def reference(
    rows: Sequence[Mapping[str, Any]], how: str, function: Callable[..., Any]
) -> list[tuple[int, Any, int, int]]:
    """What an apply emits, as (stamp, output, number of the first and of the last row it is made of).

    `function` over lists: rows: `row -> output`; stateful: `(state, rows) -> (state, [(from, row, output)])`;
    opaque: `rows -> [output]`. A call that raises emits nothing and leaves the state as it was.
    """
    out: list[tuple[int, Any, int, int]] = []
    state, start = None, 0
    steps = [list(step) for _, step in groupby(rows, key=lambda row: row["_stamp"])]
    for step in [[row] for row in rows] if how == "rows" else steps:
        stamp, stop = step[0]["_stamp"], start + len(step)
        with suppress(Exception):
            if how == "rows":
                out.append((stamp, function(step[0]), start, start))
            elif how == "stateful":
                state, made = function(state, step)
                out += [(stamp, value, start + first, start + last) for first, last, value in made]
            else:
                out += [(stamp, value, 0, stop - 1) for value in function(step)]
        start = stop
    return out
