"""A stream in the user's hand: what boxes are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from clew.errors import DuplicateName, NetworkError, WindowError, told_of
from clew.expressions.aggregates import UserFunction
from clew.model.axis import Span
from clew.model.schema import parse_schema
from clew.model.types import parse_type
from clew.network.boxes import (
    Apply,
    CountWindow,
    Drop,
    Filter,
    Join,
    Landmark,
    Latch,
    Map,
    Resample,
    Sort,
    Union,
    ValueWindow,
    Window,
    WindowKind,
    joined_columns,
)
from clew.network.columns import column_text, each_of, is_column, quoted
from clew.network.maker import Maker, version_text
from clew.network.naming import calling_spot, shown

if TYPE_CHECKING:
    from clew.network.network import Network

Names = str | Sequence[str] | None
Within = Span | tuple[Span, Span]
_BOX_NAME = "name= names the box if it is one word and no column; else it is the expression of a column"


def function(
    call: Callable[..., Any], returns: str, columns: Names = None, *, version: str | int | None = None
) -> UserFunction:
    """A user's own function of a window: it gets the window's rows as an Arrow table and returns one value.

    A store goes on with the function that it was made with. It tells by the code, or by `version` if there is one.

    >>> spread = function(lambda rows: rows.num_rows, "INT")
    """
    at = calling_spot().text
    if not callable(call):
        raise NetworkError(f"clew.function needs a function, not {shown(call)}", at=at)
    if not isinstance(returns, str):
        raise NetworkError(
            f"clew.function needs the type that the function returns, not {shown(returns)}",
            hint="write it as text, like 'DOUBLE'",
            at=at,
        )
    said = version_text(version, "clew.function", at)
    with told_of("clew.function", at):
        return UserFunction(call, parse_type(returns), tuple(column_text(c) for c in each_of(columns)), said)


class Stream:
    """A stream of a network: a source, or what a box emits. Each method makes a box and gives its stream."""

    def __init__(self, network: Network, number: int, columns: tuple[str, ...], order: str | None) -> None:
        self._network = network
        self._number = number
        self.columns = columns
        self.order = order

    @property
    def name(self) -> str:
        """The name of the box that this stream comes from."""
        return self._network._names()[self._number]

    def __repr__(self) -> str:
        return f"<stream {self._network.name}.{self.name}: {', '.join(self.columns)}>"

    # --- one row at a time ---

    def filter(self, condition: Any, *, name: str | None = None) -> Stream:
        """The rows for which a condition, any deterministic Spark SQL, is true."""
        new = Maker(self, "filter", name)
        text = new.expression(condition, "filters by")
        return new.add(Filter("", (), text, at=new.at), self.columns, self.order)

    def map(self, /, *columns: Any, **named: Any) -> Stream:
        """Each row projected: columns by name, `"expression AS name"`, `"*"` for all, `column="expression"`.

        `name=` names the box if it is one word and no column of the input, else it is a column like the others.

        >>> # readings.map("*", fahrenheit="celsius * 1.8 + 32")
        """
        box_name = named.pop("name") if "name" in named and not self._is_expression(named["name"]) else None
        new = Maker(self, "map", box_name)
        items: dict[str, str] = {}
        for column in columns:
            if isinstance(column, str) and column.strip() == "*":
                items.update({c: quoted(c) for c in self.columns})
                continue
            text, alias = new.aliased(column)
            if alias in items:
                raise DuplicateName(f"{new.what} makes two columns named '{alias}'", at=new.at)
            items[alias] = text
        for alias, value in named.items():
            items[alias] = new.expression(value, "projects", hint=_BOX_NAME if alias == "name" else None)
        new.output_columns(items)
        order = next((c for c, text in items.items() if text.strip("`") == self.order), None)
        if order is None and self.order in items:
            order = self.order
        return new.add(Map("", (), tuple(items.items()), at=new.at), tuple(items), order)

    def _is_expression(self, name: Any) -> bool:
        """Whether what `map` is given as `name=` makes a column, and does not name the box."""
        if not isinstance(name, str):
            return is_column(name)
        word = name.strip()
        return bool(word) and (not word.isidentifier() or word.lower() in (c.lower() for c in self.columns))

    def drop(
        self, every: int | None = None, *, fraction: float | None = None, seed: int = 0, name: str | None = None
    ) -> Stream:
        """Without every `every`-th row, or without a random `fraction` of them: the same ones after any restart."""
        new = Maker(self, "drop", name)
        if (every is None) == (fraction is None):
            raise NetworkError(f"{new.what} needs either every=k or fraction=p", at=new.at)
        if every is not None:
            new.count(every, "every")
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if fraction is not None and not (number and 0 <= fraction <= 1):
            raise NetworkError(f"{new.what} has fraction={shown(fraction)}", hint="a fraction is 0 to 1", at=new.at)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise NetworkError(f"{new.what} has seed={shown(seed)}", hint="a whole number", at=new.at)
        return new.add(Drop("", (), every, fraction, seed, at=new.at), self.columns, self.order)

    def apply(
        self,
        function: Callable[..., Any],
        schema: str,
        *,
        how: Literal["rows", "stateful", "opaque"] = "opaque",
        order: str | None = None,
        version: str | int | None = None,
        name: str | None = None,
    ) -> Stream:
        """The user's own code over Arrow tables.

        `how="rows"`: `f(rows) -> rows`, one out for one in. `"stateful"`: `f(state, rows) -> (state, rows)` with a
        column `_row`, the index of the row that completed each, and `_from`, the first it is made of. `"opaque"`:
        `f(rows) -> rows` once a step; each result depends on all that has been seen. A store goes on with the
        function that it was made with; it tells by the code, or by `version` if there is one.
        """
        new = Maker(self, "apply", name)
        if how not in ("rows", "stateful", "opaque"):
            raise NetworkError(f"{new.what} has how='{how}'", hint="'rows', 'stateful' or 'opaque'", at=new.at)
        if not callable(function):
            raise NetworkError(f"{new.what} needs a function, not {shown(function)}", at=new.at)
        with told_of(new.what, new.at):
            made = parse_schema(schema)
        order = order or (self.order if self.order in made.names else None)
        if order is not None:
            new.column(order, "is ordered by", made.names)
        said = version_text(version, new.what, new.at)
        return new.add(Apply("", (), function, made, how, said, at=new.at), tuple(made.names), order)

    # --- order ---

    def sort(self, on: str | None = None, *, slack: int, name: str | None = None) -> Stream:
        """Bounded-pass sort: a buffer of `slack` rows besides the newest; each arrival emits the smallest."""
        new = Maker(self, "sort", name)
        on = new.column(self.order if on is None else on, "sorts by")
        return new.add(Sort("", (), on, new.count(slack, "slack", least=0), at=new.at), self.columns, on)

    def union(self, other: Stream, *others: Stream, name: str | None = None) -> Stream:
        """The rows of all, by place."""
        new = Maker(self, "union", name)
        _check_streams(new, other, *others)
        for stream in (other, *others):
            if stream.columns != self.columns:
                raise NetworkError(
                    f"{new.what} joins streams with different columns",
                    details=[f"{s.name}: {', '.join(s.columns)}" for s in (self, stream)],
                    hint="use .map(...) to give them the same columns in the same order",
                    at=new.at,
                )
        every = (self, other, *others)
        order = self.order if all(s.order == self.order for s in every) else None
        return new.add(Union("", (), at=new.at), self.columns, order, every)

    # --- windows ---

    def window(
        self,
        *,
        rows: int | None = None,
        span: Span | None = None,
        slide: Span | None = None,
        on: str | None = None,
        anchor: Literal["clock", "tuple"] = "clock",
        landmark: Any = None,
        latch: Span | None = None,
        by: Names = None,
        partial: bool = False,
        name: str | None = None,
    ) -> Windowed:
        """Windows over the stream, by group; `.agg(...)` says what to make of them.

        One of: `rows=c, slide=s` (row counts; `partial=True` also emits while a window fills), `span=c, slide=s,
        on=column` (values; `anchor="clock"`: aligned as Spark's `window()`, `"tuple"`: from a first tuple on),
        `landmark=L, slide=s` (all since L), `latch=s` (tumbling, over all so far). The last two go by `on`, or by
        row count with `on="rows"`. `slide` is the size if it is not given.
        """
        new = Maker(self, "window", name)
        given = [
            w for w, v in (("rows", rows), ("span", span), ("landmark", landmark), ("latch", latch)) if v is not None
        ]
        if len(given) != 1:
            raise WindowError(
                f"{new.what} needs exactly one of rows, span, landmark or latch",
                hint=f"given: {given or 'none'}",
                at=new.at,
            )
        if rows is not None and on is not None:
            hint = "a window of rows goes by their places; span=... goes by a column"
            raise WindowError(f"{new.what} has on={shown(on)} with rows=...", hint=hint, at=new.at)
        if latch is not None and slide is not None:
            hint = "latch=s emits every s"
            raise WindowError(f"{new.what} has slide={shown(slide)} with latch=...", hint=hint, at=new.at)
        if span is None and anchor != "clock":
            raise WindowError(f"{new.what} has anchor={shown(anchor)} without span=...", at=new.at)
        groups = new.columns(by, "groups by")
        if len(set(groups)) != len(groups):
            raise DuplicateName(f"{new.what} groups by a column twice: {', '.join(groups)}", at=new.at)
        if rows is not None:
            size = new.count(rows, "rows")
            return Windowed(
                new, CountWindow(size, new.count(size if slide is None else slide, "slide"), partial), groups
            )
        if partial:
            raise WindowError(f"{new.what} has partial=True without rows=...", at=new.at)
        by_count = isinstance(on, str) and on == "rows" and "rows" not in self.columns
        column = None if by_count else new.column(self.order if on is None else on, "goes by")
        if span is not None:
            if column is None:
                raise WindowError(f"{new.what} has span and on='rows'", hint="use rows=... for row counts", at=new.at)
            if anchor not in ("clock", "tuple"):
                raise WindowError(f"{new.what} has anchor='{anchor}'", hint="'clock' or 'tuple'", at=new.at)
            new.positive(span, "span")
            return Windowed(
                new, ValueWindow(span, new.positive(span if slide is None else slide, "slide"), column, anchor), groups
            )
        if latch is not None:
            every = new.count(latch, "latch") if by_count else new.positive(latch, "latch")
            return Windowed(new, Latch(every, column), groups)
        if slide is None:
            raise WindowError(f"{new.what} has a landmark and no slide", hint="slide=s: emitted every s", at=new.at)
        every = new.count(slide, "slide") if by_count else new.positive(slide, "slide")
        start = new.count(landmark, "landmark", least=0) if by_count else landmark
        return Windowed(new, Landmark(start, every, column), groups)

    # --- two streams ---

    def join(
        self,
        right: Stream,
        *,
        within: Within,
        by: Names | Mapping[str, str] = None,
        on: str | tuple[str, str] | None = None,
        where: Any = None,
        how: Literal["inner", "left"] = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows near each other: `on` differs by at most `within`, or lies in `(low, high)` from left to right.

        `by`: columns that must be equal (a name, several, or `{left: right}`). `where`: a further condition over the
        output's columns. `how="left"` emits a row without a partner, once none can come any more.
        """
        new = Maker(self, "join", name)
        _check_streams(new, right)
        low, high = new.band(within)
        order = new.orders(on, "joins on", right)
        keys = new.pairs(by, "joins by", right.columns)
        if how not in ("inner", "left"):
            raise NetworkError(f"{new.what} has how='{how}'", hint="'inner' or 'left'", at=new.at)
        columns = (*self.columns, *joined_columns(self.columns, right.columns, keys, suffix).values())
        new.output_columns(columns)
        text = None if where is None else new.expression(where, "has a condition on", columns)
        box = Join("", (), order, low, high, keys, text, how, suffix, at=new.at)
        return new.add(box, columns, order[0], (self, right))

    def resample(
        self,
        ticks: Stream,
        *,
        within: Span,
        by: Names | Mapping[str, str] = None,
        on: str | tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Resampled:
        """For each row of `ticks`, aggregates over this stream's rows within `within` of it; `.agg(...)` says which."""
        new = Maker(self, "resample", name)
        _check_streams(new, ticks)
        if new.sign(within, "within") < 0:
            raise NetworkError(f"{new.what} has within={within!r}, which holds nothing", at=new.at)
        order = new.orders(on, "goes by", ticks)
        return Resampled(new, ticks, order, within, new.pairs(by, "matches by", ticks.columns))

    # --- what is stored ---

    def output(self, name: str) -> Stream:
        """Store this stream as an output of the network and deliver it."""
        self._network._mark("output", self, name)
        return self

    def keep(self, name: str) -> Stream:
        """Store this inner stream: a connection point that can be read, joined to history and traced to."""
        self._network._mark("keep", self, name)
        return self


class _Waiting:
    """What becomes a stream by `.agg(...)`."""

    _new: Maker

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Stream, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        raise AttributeError(f"{self._new.what} has no aggregates yet: write .agg(...) before .{name}")


class Windowed(_Waiting):
    """Windows that wait for their aggregates."""

    def __init__(self, new: Maker, window: WindowKind, by: tuple[str, ...]) -> None:
        self._new, self._window, self._by = new, window, by

    def __repr__(self) -> str:
        return f"<windows over {self._new.stream.name}>"

    def agg(self, /, **aggregates: Any) -> Stream:
        """One row per window: the grouping columns, then each `name="sum(price * volume) / sum(volume)"`."""
        aggregations = self._new.aggregations(aggregates, self._by, self._new.stream.columns)
        columns = (*self._by, *aggregates)
        order = self._new.stream.order if self._new.stream.order in columns else None
        box = Window("", (), self._window, self._by, aggregations, at=self._new.at)
        return self._new.add(box, columns, order)


class Resampled(_Waiting):
    """A resampling that waits for its aggregates."""

    def __init__(
        self, new: Maker, ticks: Stream, on: tuple[str, str], within: Span, by: tuple[tuple[str, str], ...]
    ) -> None:
        self._new, self._ticks, self._on, self._within, self._by = new, ticks, on, within, by

    def __repr__(self) -> str:
        return f"<windows over {self._new.stream.name} at {self._ticks.name}>"

    def agg(self, /, **aggregates: Any) -> Stream:
        """The columns of `ticks`, then each aggregate over the rows around it; null where there are none."""
        aggregations = self._new.aggregations(aggregates, (), self._new.stream.columns, self._ticks.columns)
        columns = (*self._ticks.columns, *aggregates)
        box = Resample("", (), self._on, self._within, self._by, aggregations, at=self._new.at)
        return self._new.add(box, columns, self._on[1], (self._new.stream, self._ticks))


def _check_streams(new: Maker, *given: object) -> None:
    for value in given:
        if not isinstance(value, Stream):
            raise NetworkError(
                f"{new.what} takes a stream, not {shown(value)}",
                hint="windows become a stream by .agg(...)"
                if isinstance(value, Windowed | Resampled)
                else "a stream is what net.stream(...) or a box returns",
                at=new.at,
            )
