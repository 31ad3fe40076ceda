"""Aggregate expressions: `sum(price * volume) / sum(volume)` as projections around plain calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from clew.errors import NetworkError, nearest
from clew.expressions.functions import AGGREGATES, OTHER_AGGREGATES
from clew.expressions.parse import Call, Token, calls_of, columns_of, parse_expression, tokens_of


@dataclass(frozen=True)
class UserFunction:
    """A user's function of a window: `function(rows: pyarrow.Table) -> value`, with its result type."""

    function: Callable[[pa.Table], Any]
    type: pa.DataType
    columns: tuple[str, ...] = ()  # empty: all of them
    version: str | None = None

    @property
    def text(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{name}({', '.join(self.columns) or '*'})"


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate over columns: `out = function(args)`.

    `function` is one of FUNCTIONS. `count` without `args` counts rows; with several, the rows in which
    none is null. The last three say it in the user's words: the call, its arguments, and the output that is
    nothing but this call.
    """

    out: str
    function: str
    args: tuple[str, ...] = ()
    distinct: bool = False
    ignore_nulls: bool = False
    user: UserFunction | None = None
    text: str = field(default="", compare=False)
    shown: tuple[str, ...] = field(default=(), compare=False)
    output: str = field(default="", compare=False)


FUNCTIONS = (
    "count", "sum", "avg", "min", "max", "first", "last", "median", "collect",
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "user",
)  # fmt: skip


@dataclass(frozen=True)
class AggregatePlan:
    """An aggregation as three steps: project the arguments, call, project the results."""

    before: tuple[tuple[str, str], ...]  # columns to add: name, expression over the input
    calls: tuple[AggregateCall, ...]
    after: tuple[tuple[str, str], ...]  # output columns: name, expression over groups and call results


def split_aggregates(
    aggregations: Sequence[tuple[str, str | UserFunction]],
    by: Sequence[str],
    *,
    what: str,
    at: str,
    columns: Sequence[str] = (),
) -> AggregatePlan:
    """Split `(output, expression)` pairs into projections around plain aggregate calls.

    `what` begins each error message. Equal arguments and equal calls are computed once. `columns`, if
    given, are the input's, and bare columns are spelled as they are there. `collect` is Spark's
    `collect_list`: it leaves nulls out.

    >>> plan = split_aggregates([("vwap", "sum(price * volume) / sum(volume)")], [], what="", at="")
    >>> plan.before, plan.after
    ((('_x0', 'price * volume'),), (('vwap', '_a0 / _a1'),))
    >>> [(c.out, c.function, c.args) for c in plan.calls]
    [('_a0', 'sum', ('_x0',)), ('_a1', 'sum', ('volume',))]
    """
    splitter = _Splitter(what, at, tuple(by), tuple(columns))
    after = tuple((out, splitter.split(item)) for out, item in aggregations)
    outputs = {rest: out for out, rest in reversed(after)}
    calls = tuple(replace(call, output=outputs.get(call.out, "")) for call in splitter.calls.values())
    return AggregatePlan(tuple((n, t) for n, t in splitter.before.values()), calls, after)


def call_text(call: AggregateCall) -> str:
    """The call as a user would write it.

    >>> call_text(AggregateCall("n", "count", ("sensor",), distinct=True))
    'count(DISTINCT sensor)'
    """
    if call.text:
        return call.text
    if call.user is not None:
        return call.user.text
    args = ", ".join(call.shown or call.args) or "*"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{args})"


def in_users_words(text: str, calls: Sequence[AggregateCall]) -> str:
    """A message in which results of calls stand under the names that only clew knows.

    >>> in_users_words("DIVIDE_BY_ZERO in '1 / _a0'", [AggregateCall("_a0", "sum", ("x",))])
    "DIVIDE_BY_ZERO in '1 / sum(x)'"
    """
    words = {call.out: call_text(call) for call in calls}
    return re.sub(r"\b_a\d+\b", lambda found: words.get(found[0], found[0]), text)


def users_columns(columns: Sequence[str], calls: Sequence[AggregateCall]) -> list[str]:
    """The columns, results of calls as the output that they are, or else as the call is written.

    >>> users_columns(["g", "_a0"], [AggregateCall("_a0", "sum", ("x",), output="total")])
    ['g', 'total']
    """
    words: Mapping[str, str] = {call.out: call.output or call_text(call) for call in calls}
    return [words.get(name, name) for name in columns]


class _Splitter:
    """Collects the argument columns and calls of one plan; `split` gives what is left of an expression."""

    def __init__(self, what: str, at: str, by: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.what, self.at, self.by = what, at, by
        self.declared = {c.lower(): c for c in columns}
        self.before: dict[str, tuple[str, str]] = {}  # normal text -> column, expression
        self.calls: dict[object, AggregateCall] = {}

    def split(self, item: str | UserFunction) -> str:
        if isinstance(item, UserFunction):
            args = tuple(self.declared.get(c.lower(), c) for c in item.columns)
            return self._call(AggregateCall("", "user", args, user=item, text=item.text))
        parse_expression(item, what=self.what, at=self.at)
        tokens = tokens_of(item)
        calls = [c for c in calls_of(tokens) if c.name in AGGREGATES or c.name in OTHER_AGGREGATES]
        for call in calls:
            if call.name in OTHER_AGGREGATES:
                raise self._error(f"{call.name}(), an aggregate that clew does not compute", item, KNOWN)
            if inside := next((c for c in calls if call.contains(c)), None):
                raise self._error(
                    f"{inside.name}() inside {call.name}()", item, hint="use two windows, one after another"
                )
        if not calls:
            raise self._no_aggregate(item, tokens)
        pieces, done = [], 0
        for call in calls:
            end, nulls = self._nulls_clause(item, tokens, call)
            pieces += [item[done : call.start], self._read(item, call, nulls, item[call.start : end])]
            done = end
        rest = "".join([*pieces, item[done:]]).strip()
        self._refuse_loose_columns(item, rest)
        return rest

    def _read(self, item: str, call: Call, ignore_nulls: bool, text: str) -> str:
        """The result column of one call."""
        function, inner = AGGREGATES[call.name], list(call.inner)
        distinct = bool(inner) and inner[0].token_type.name == "DISTINCT"
        if distinct and function != "count":
            raise self._error(f"{call.name}(distinct ...)", item, ["distinct: count(distinct ...) only"])
        if inner and inner[0].token_type.name in ("DISTINCT", "ALL"):
            inner = inner[1:]
        if [t.text.lower() for t in inner[-2:]] in (["ignore", "nulls"], ["respect", "nulls"]):
            ignore_nulls, inner = ignore_nulls or inner[-2].text.lower() == "ignore", inner[:-2]
        parts = _split_commas(inner)
        if function in ("first", "last") and len(parts) == 2:
            flag = parts.pop()[0].text.lower()
            if flag not in ("true", "false"):
                raise self._error(
                    f"{call.name}(..., {flag})", item, ["the second argument is true (ignore nulls) or false"]
                )
            ignore_nulls = ignore_nulls or flag == "true"
        rows = function == "count" and not distinct and len(parts) == 1 and _is_constant(parts[0])
        if rows:
            parts = []
        elif not parts or (len(parts) > 1 and function != "count"):
            raise self._error(
                f"{call.name}() with {len(parts)} arguments",
                item,
                [f"{call.name} takes one" + (" or more" if function == "count" else "")],
            )
        if ignore_nulls and function not in ("first", "last"):
            raise self._error(f"{call.name}() ignore nulls", item, ["ignore nulls: first and last only"])
        args = tuple(self._argument(item, part) for part in parts)
        shown = tuple(item[part[0].start : part[-1].end + 1] for part in parts)
        return self._call(AggregateCall("", function, args, distinct, ignore_nulls, text=text, shown=shown))

    def _argument(self, item: str, tokens: Sequence[Token]) -> str:
        """The column that holds an argument: the input's, or one to be computed before."""
        tree = parse_expression(item[tokens[0].start : tokens[-1].end + 1], what=self.what, at=self.at)
        if isinstance(tree, exp.Column) and not tree.table:
            return self.declared.get(tree.name.lower(), tree.name)
        raw = [(t.token_type.name, item[t.start : t.end + 1]) for t in tokens]  # the text of a string has no quotes
        key = " ".join(text if "STRING" in kind else text.lower() for kind, text in raw)
        text = item[tokens[0].start : tokens[-1].end + 1]
        return self.before.setdefault(key, (f"_x{len(self.before)}", text))[0]

    def _call(self, call: AggregateCall) -> str:
        key = (
            tuple(getattr(call, f.name) for f in fields(call) if f.compare and f.name not in ("out", "args")),
            tuple(a.lower() for a in call.args),
        )
        return self.calls.setdefault(key, replace(call, out=f"_a{len(self.calls)}")).out

    def _nulls_clause(self, item: str, tokens: Sequence[Token], call: Call) -> tuple[int, bool]:
        """Where the call ends with what follows it, and whether that is IGNORE NULLS."""
        behind = [t for t in tokens if t.start >= call.end]
        words = [t.text.lower() for t in behind[:2]]
        if words in (["ignore", "nulls"], ["respect", "nulls"]):
            return int(behind[1].end) + 1, words[0] == "ignore"
        if words[:1] in (["filter"], ["within"]):
            hint = "write the condition into the argument: sum(case when ... then x end)"
            raise self._error(f"{call.name}() {words[0]} (...)", item, hint=hint if words[0] == "filter" else None)
        return call.end, False

    def _refuse_loose_columns(self, item: str, rest: str) -> None:
        known = {b.lower() for b in self.by} | {c.out for c in self.calls.values()}
        for name in columns_of(parse_expression(rest, what=self.what, at=self.at)):
            if name.lower() not in known:
                raise self._error(
                    f"column '{name}' outside an aggregate, and is not grouped by it",
                    item,
                    ["grouped by: " + (", ".join(self.by) or "nothing")],
                    hint=f"write first({name}) or last({name}), or group by it",
                )

    def _no_aggregate(self, item: str, tokens: Sequence[Token]) -> NetworkError:
        for call in calls_of(tokens):
            if hint := nearest(call.name, AGGREGATES):
                return self._error(f"{call.name}(), which is no aggregate", item, KNOWN, hint)
        return self._error(f"'{item.strip()}', in which there is no aggregate", None, KNOWN)

    def _error(self, text: str, item: str | None, details: Sequence[str] = (), hint: str | None = None) -> NetworkError:
        shown = [f"expression: {item.strip()}"] if item is not None else []
        return NetworkError(f"{self.what} {text}", details=[*shown, *details], hint=hint, at=self.at)


KNOWN = ("aggregates: " + ", ".join(AGGREGATES),)


def _split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]] if tokens else []
    depth = 0
    for token in tokens:
        kind = token.token_type.name
        depth += (kind in ("L_PAREN", "L_BRACKET")) - (kind in ("R_PAREN", "R_BRACKET"))
        if kind == "COMMA" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _is_constant(tokens: Sequence[Token]) -> bool:
    """Whether `count` of it counts every row: a star, or a literal that is not null."""
    return tokens[0].token_type.name in ("STAR", "NUMBER", "STRING", "TRUE", "FALSE") and all(
        t.start == tokens[0].start for t in tokens
    )
