"""Reading Spark SQL expressions: their syntax, the columns and functions they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from clew.errors import NetworkError, NonDeterministic, SyntaxProblem, UnknownColumn, nearest
from clew.expressions.functions import (
    AGGREGATES,
    CLOCK_WORDS,
    NON_DETERMINISTIC,
    OTHER_AGGREGATES,
    WITHOUT_PARENTHESES,
)

Token = Any  # sqlglot's; `start` and `end` (inclusive) are offsets into the text


@dataclass(frozen=True)
class Call:
    """A function call in a text: its name in lower case, and the tokens from the name to the closing parenthesis."""

    name: str
    tokens: tuple[Token, ...]

    @property
    def start(self) -> int:
        return int(self.tokens[0].start)

    @property
    def end(self) -> int:
        """The offset behind the call."""
        return int(self.tokens[-1].end) + 1

    @property
    def inner(self) -> tuple[Token, ...]:
        """The tokens between the parentheses."""
        return self.tokens[2:-1]

    def contains(self, other: Call) -> bool:
        return self.start < other.start and other.end <= self.end


def parse_expression(sql: str, *, what: str = "this is", at: str | None = None) -> exp.Expr:
    """The tree of one Spark SQL expression; a `SyntaxProblem` that points into the text where it cannot be one.

    One expression, without a subquery, a window function or a name of its own; `*` stands in `count(*)` only.

    >>> parse_expression("celsius < 350").sql()
    'celsius < 350'
    """
    tokens = tokens_of(sql, what=what, at=at)
    try:
        tree = sqlglot.parse_one(sql, into=exp.Condition, dialect="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        line, end = first.get("line", 1), first.get("col", len(sql))
        offset = _offset(sql, line, end - len(first.get("highlight") or ""))
        problem = _problem(
            sql, offset, len(first.get("highlight") or ""), _plain(first.get("description", "")), what, at
        )
        raise problem from error
    except RecursionError as error:
        raise too_deep(what, at) from error
    _refuse_statements(sql, tree, tokens, what, at)
    return tree


def too_deep(what: str, at: str | None = None) -> SyntaxProblem:
    return SyntaxProblem(
        f"{what} an expression that is nested too deeply", hint="compute a part of it in a .map(...) before", at=at
    )


def tokens_of(sql: str, *, what: str = "this is", at: str | None = None) -> list[Token]:
    """The tokens of a text; a `SyntaxProblem` where it has none or a quote stays open."""
    try:
        tokens: list[Token] = sqlglot.tokenize(sql, dialect="spark")
    except TokenError as error:
        quotes = [i for i, char in enumerate(sql) if char in "'\"`"]
        offset = quotes[-1] if quotes else 0
        raise _problem(sql, offset, 1, "this quote is not closed", what, at) from error
    if not tokens:
        raise SyntaxProblem(f"{what} an empty expression", at=at)
    return tokens


def split_alias(sql: str) -> tuple[str, str | None]:
    """An expression and the name it gives itself with AS, if it does.

    >>> split_alias("cast(price AS LONG) AS whole"), split_alias("cast(price AS LONG)")
    (('cast(price AS LONG)', 'whole'), ('cast(price AS LONG)', None))
    """
    tokens = tokens_of(sql)
    if len(tokens) > 2 and tokens[-2].token_type.name == "ALIAS":
        return sql[: tokens[-2].start].strip(), str(tokens[-1].text)
    return sql, None


def columns_of(expr: exp.Expr) -> list[str]:
    """The names of the columns an expression reads, without qualifier, in order of first use.

    >>> columns_of(parse_expression("left.price * volume > price"))
    ['price', 'volume']
    """
    return list(dict.fromkeys(name for _, name in qualified_columns_of(expr)))


def qualified_columns_of(expr: exp.Expr) -> list[tuple[str | None, str]]:
    """The columns an expression reads, each with its qualifier or None, in order of first use.

    >>> qualified_columns_of(parse_expression("left.price > right.price + delta"))
    [('left', 'price'), ('right', 'price'), (None, 'delta')]
    """
    found = sorted(expr.find_all(exp.Column), key=lambda c: int(c.this.meta.get("start", 0)))
    return list(dict.fromkeys((c.table or None, c.name) for c in found))


_LIKES = ("LIKE", "ILIKE", "RLIKE")


def calls_of(tokens: Sequence[Token], *, qualified: bool = False) -> Iterator[Call]:
    """The function calls among the tokens, in order of their names; nested ones too, `qualified`: and `a.b.name()`."""
    for i, token in enumerate(tokens[:-1]):
        if tokens[i + 1].token_type.name != "L_PAREN" or token.token_type.name in ("STRING", "L_PAREN"):
            continue
        if i and tokens[i - 1].token_type.name == "DOT" and not qualified:
            continue
        if i and tokens[i - 1].token_type.name in _LIKES and token.text.lower() in ("any", "some", "all"):
            continue  # x LIKE ANY ('a', 'b')
        yield Call(token.text.lower(), tuple(tokens[i : _closing(tokens, i + 1) + 1]))


def check_expression(
    sql: str, columns: Sequence[str], *, what: str, at: str, aggregates: bool = False
) -> tuple[str, ...]:
    """Check an expression against the columns of its input; return those it reads, as they are declared.

    `what` begins each message, as in "box 'overheating.average' (window) aggregates". A declared name may
    be qualified ("left.price"); names are compared without regard to case, as Spark does here.
    """
    tree = parse_expression(sql, what=what, at=at)
    tokens = tokens_of(sql)
    declared = {c.lower(): c for c in columns}
    _refuse_non_deterministic(tree, tokens, declared, what, at)
    if not aggregates:
        for call in calls_of(tokens):
            if call.name in AGGREGATES or call.name in OTHER_AGGREGATES:
                raise NetworkError(
                    f"{what} {call.name}(), an aggregate, but sees one row at a time",
                    details=[f"expression: {sql.strip()}"],
                    hint="aggregate over a window: .window(...).agg(...)",
                    at=at,
                )
    used: dict[str, None] = {}
    for qualifier, name in qualified_columns_of(tree):
        full = f"{qualifier}.{name}" if qualifier else name
        if full.lower() not in declared:
            raise UnknownColumn(
                f"{what} column '{full}', which its input does not have",
                details=["columns: " + ", ".join(columns)],
                hint=_nearest_column(full, columns),
                at=at,
            )
        used[declared[full.lower()]] = None
    return tuple(used)


def _nearest_column(name: str, columns: Sequence[str]) -> str | None:
    if hint := nearest(name, columns):
        return hint
    sides = [c for c in columns if c.lower().endswith("." + name.lower())]
    return f"write {' or '.join(sides)}" if sides else None


def _refuse_non_deterministic(
    tree: exp.Expr, tokens: Sequence[Token], declared: dict[str, str], what: str, at: str
) -> None:
    def refuse(text: str, hint: str) -> NonDeterministic:
        return NonDeterministic(f"{what} {text}, whose value is not one of its arguments", hint=hint, at=at)

    for call in calls_of(tokens, qualified=True):
        if call.name in NON_DETERMINISTIC:
            raise refuse(f"{call.name}()", NON_DETERMINISTIC[call.name])
        if call.name == "unix_timestamp" and not call.inner:
            raise refuse("unix_timestamp()", NON_DETERMINISTIC["now"])
    as_columns = {name.lower() for name in columns_of(tree)} & declared.keys()
    for i, token in enumerate(tokens):
        name = token.text.lower()
        if name not in WITHOUT_PARENTHESES or name in as_columns or token.token_type.name in ("STRING", "IDENTIFIER"):
            continue
        after = tokens[i + 1].token_type.name if i + 1 < len(tokens) else ""
        if after not in ("L_PAREN", "DOT") and not (i and tokens[i - 1].token_type.name == "DOT"):
            raise refuse(name, f"for the column write `{name}`" if name in declared else NON_DETERMINISTIC[name])
    for cast in tree.find_all(exp.Cast):
        if (
            isinstance(cast.this, exp.Literal)
            and cast.this.is_string
            and cast.to.this.name.startswith(("DATE", "TIME"))
        ):
            word = cast.this.name.strip().lower()
            if word in CLOCK_WORDS:
                raise refuse(f"the literal '{word}'", NON_DETERMINISTIC["now"])


def _refuse_statements(sql: str, tree: exp.Expr, tokens: Sequence[Token], what: str, at: str | None) -> None:
    """Refuse what sqlglot reads and an expression may not hold."""

    def problem(kinds: Sequence[str], reason: str, hint: str | None = None) -> SyntaxProblem:
        token = next((t for t in tokens if t.token_type.name in kinds), tokens[0])
        return _problem(sql, token.start, token.end + 1 - token.start, reason, what, at, hint)

    if isinstance(tree, exp.Block) or any(t.token_type.name == "SEMICOLON" for t in tokens):
        raise problem(["SEMICOLON"], "one expression ends here")
    if tree.find(exp.Query):
        raise problem(["SELECT", "VALUES", "WITH"], "no subquery can stand here", "join the streams in the network")
    if tree.find(exp.Window):
        raise problem(["OVER"], "no window function can stand here", "windows are boxes: .window(...).agg(...)")
    if tree.find(exp.Placeholder, exp.Parameter):
        raise problem(["PARAMETER", "COLON", "PLACEHOLDER"], "no parameter can stand here")
    if any(not (isinstance(s.parent, exp.Count) and s.parent.this is s) for s in tree.find_all(exp.Star)):
        raise problem(["STAR"], "a star can stand in count(*) only", "name the columns")


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        kind = tokens[i].token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if depth == 0:
            return i
    return len(tokens) - 1


def _problem(
    sql: str, offset: int, length: int, reason: str, what: str, at: str | None, hint: str | None = None
) -> SyntaxProblem:
    """The error that shows the line of the text and, under it, the place and the reason."""
    begin = sql.rfind("\n", 0, offset) + 1
    line = sql[begin:].split("\n", 1)[0]
    caret = " " * (offset - begin) + "^" * max(1, min(length, len(line) - (offset - begin))) + " " + reason
    details = [line.rstrip(), caret]
    return SyntaxProblem(f"{what} an expression that is not Spark SQL", details=details, hint=hint, at=at)


def _offset(sql: str, line: int, column: int) -> int:
    before = sql.split("\n")[: line - 1]
    return max(0, min(len(sql), sum(len(b) + 1 for b in before) + column))


_REASONS = (
    (re.compile(r"Required (keyword|argument)"), "something is missing here"),
    (re.compile(r"Unexpected token"), "unexpected here"),
    (re.compile(r"Expecting (\S)$"), r"not closed: \1 is missing"),
    (re.compile(r"Expected TYPE"), "not a type"),
)


def _plain(description: str) -> str:
    """A parser's message in our own words, where it speaks of its classes."""
    for pattern, words in _REASONS:
        if found := pattern.search(description):
            return found.expand(words)
    return description.lower().rstrip(".") or "not an expression"
