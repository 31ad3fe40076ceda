"""One box in the making: its checks, and the words of its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from clew.errors import (
    DuplicateName,
    NetworkError,
    SchemaError,
    SyntaxProblem,
    UnknownColumn,
    WindowError,
    nearest,
    told_of,
)
from clew.expressions.aggregates import UserFunction, split_aggregates
from clew.expressions.parse import check_expression, parse_expression, split_alias
from clew.model.axis import Span, exceeds, opposite, span_sign
from clew.network.boxes import Aggregation, Box
from clew.network.columns import column_text, each_of
from clew.network.naming import calling_spot, check_length, shown

if TYPE_CHECKING:
    from clew.network.stream import Stream

MOST_ROWS = 2**31 - 1  # what a ROWS frame of Spark's holds at most; sums of counts and places stay inside int64


class Maker:
    """One box in the making: its checks, and the words of its errors."""

    def __init__(self, stream: Stream, kind: str, name: str | None) -> None:
        fits = name is None or (isinstance(name, str) and bool(name.strip()))
        self.stream, self.kind, self.name = stream, kind, name
        self.at = calling_spot().text
        self.what = f"box '{stream._network._provisional_name(kind, name if fits else None)}' ({kind})"
        if not fits:
            raise NetworkError(
                f"{self.what} has name={shown(name)}", hint="the name of a box is text, and not empty", at=self.at
            )

        check_length(name, "a box", self.at)

    def add(
        self, box: Box, columns: Sequence[str], order: str | None, inputs: Sequence[Stream] | None = None
    ) -> Stream:
        return self.stream._network._add(box, columns, order, self.name, inputs or (self.stream,))

    def column(self, name: Any, verb: str, columns: Sequence[str] | None = None) -> str:
        columns = self.stream.columns if columns is None else columns
        if name is None:
            raise NetworkError(
                f"{self.what} needs a column to go by: its input has no order of its own",
                details=[f"columns: {', '.join(columns)}"],
                hint="say on=column",
                at=self.at,
            )
        text = self.text(name).strip("`")
        for column in columns:
            if column.lower() == text.lower():
                return column
        raise UnknownColumn(
            f"{self.what} {verb} column '{text}', which its input does not have",
            details=[f"columns: {', '.join(columns)}"],
            hint=nearest(text, columns),
            at=self.at,
        )

    def columns(self, names: Any, verb: str) -> tuple[str, ...]:
        """The columns of the input that are named: none, one or several."""
        return tuple(self.column(name, verb) for name in each_of(names))

    def pairs(self, by: Any, verb: str, others: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Columns of the input with those of another that they are compared with."""
        items = by.items() if isinstance(by, Mapping) else [(name, name) for name in each_of(by)]
        return tuple((self.column(mine, verb), self.column(theirs, verb, others)) for mine, theirs in items)

    def orders(self, on: Any, verb: str, other: Stream) -> tuple[str, str]:
        """The columns that the input and another stream go by: one for both, a pair, or their own orders."""
        if isinstance(on, tuple) and len(on) != 2:
            raise NetworkError(f"{self.what} has on={shown(on)}", hint="a column, or a pair of them", at=self.at)
        mine, theirs = on if isinstance(on, tuple) else (on, on)
        return (
            self.column(self.stream.order if mine is None else mine, verb),
            self.column(other.order if theirs is None else theirs, verb, other.columns),
        )

    def text(self, value: Any) -> str:
        with told_of(self.what, self.at):
            return column_text(value)

    def expression(self, value: Any, verb: str, columns: Sequence[str] | None = None, hint: str | None = None) -> str:
        """An expression over the input's columns; `hint` goes with errors that have none."""
        text = self.text(value)
        try:
            check_expression(text, columns or self.stream.columns, what=f"{self.what} {verb}", at=self.at)
        except NetworkError as error:
            raise type(error)(error.message, details=error.details, hint=error.hint or hint, at=error.at) from error
        return text

    def aliased(self, column: Any) -> tuple[str, str]:
        """An expression and its name: the one behind AS, or that of the column it is."""
        text = self.text(column)
        with told_of(self.what, self.at):
            body, alias = split_alias(text)
        parsed = parse_expression(body, what=f"{self.what} projects", at=self.at)
        if alias is None and isinstance(parsed, exp.Column):
            alias = parsed.name
        if not alias:
            raise SyntaxProblem(
                f"{self.what} projects '{text}' without a name", hint=f"write '{text} AS name'", at=self.at
            )
        return self.expression(body, "projects"), alias

    def aggregations(
        self, aggregates: Mapping[str, Any], by: tuple[str, ...], columns: Sequence[str], others: Sequence[str] = ()
    ) -> tuple[Aggregation, ...]:
        if not aggregates:
            raise NetworkError(f"{self.what} has no aggregates", hint=".agg(name='avg(column)')", at=self.at)
        self.output_columns([*by, *others, *aggregates])
        items: list[Aggregation] = []
        for out, value in aggregates.items():
            if isinstance(value, UserFunction):
                for column in value.columns:
                    self.column(column, "gives its function", columns)
                items.append((out, value))
                continue
            text = self.text(value)
            check_expression(text, columns, what=f"{self.what} aggregates", at=self.at, aggregates=True)
            items.append((out, text))
        split_aggregates(items, by, what=f"{self.what} aggregates", at=self.at)
        return tuple(items)

    def output_columns(self, columns: Any) -> None:
        seen: set[str] = set()
        for column in columns:
            if column.startswith("_"):
                raise NetworkError(
                    f"{self.what} makes a column '{column}'", hint="a leading '_' is clew's own", at=self.at
                )
            if "`" in column:
                raise SchemaError(f"{self.what} makes a column '{column}', with a backtick in its name", at=self.at)
            if column.lower() in seen:
                raise DuplicateName(f"{self.what} makes two columns named '{column}'", at=self.at)
            seen.add(column.lower())
        if not seen:
            raise NetworkError(f"{self.what} makes no columns", at=self.at)

    def count(self, value: Any, word: str, least: int = 1) -> int:
        """A number of rows."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and least <= value <= MOST_ROWS:
            return int(value)
        error = WindowError if self.kind == "window" else NetworkError
        bound = f"{MOST_ROWS} at most" if whole and value > MOST_ROWS else f"{least} or more"
        raise error(f"{self.what} has {word}={shown(value)}", hint=f"a number of rows, {bound}", at=self.at)

    def sign(self, span: Any, word: str) -> int:
        """On which side of zero a span lies; an error if it is none."""
        with told_of(self.what, self.at):
            return span_sign(span, word)

    def positive(self, span: Span, word: str) -> Span:
        if self.sign(span, word) <= 0:
            raise WindowError(f"{self.what} has {word}={span!r}", hint="a size above zero", at=self.at)
        return span

    def band(self, within: Any) -> tuple[Span, Span]:
        """From where to where the other order may lie: a span to both sides, or a pair of spans."""
        pair = isinstance(within, tuple)
        if isinstance(within, list) or (pair and len(within) != 2):
            raise NetworkError(
                f"{self.what} has within={shown(within)}", hint="a span, or a pair of them: (low, high)", at=self.at
            )
        for span in within if pair else (within,):
            self.sign(span, "within")
        low, high = within if pair else (opposite(within), within)
        if exceeds(low, high):
            raise NetworkError(f"{self.what} joins within ({low!r}, {high!r}), which holds nothing", at=self.at)
        return low, high


def version_text(version: object, what: str, at: str) -> str | None:
    """The version that the user gives a function, as text."""
    if version is None or (isinstance(version, str) and version.strip()):
        return version
    if isinstance(version, int) and not isinstance(version, bool):
        return str(version)
    raise NetworkError(f"{what} has version={shown(version)}", hint="a text or a whole number", at=at)
