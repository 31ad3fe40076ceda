"""From a parsed expression to a tree of typed nodes, with Spark's coercions and constant folding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from clew.expressions import arithmetic, logic
from clew.expressions.arithmetic import is_float, is_int
from clew.expressions.literals import date_literal, timestamp_literal
from clew.expressions.vectors import DTYPES, Batch, Vector, dtype_of
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ

BOOL, INT, BIGINT, FLOAT, DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()
STRING, VOID = pa.string(), pa.null()


class UnsupportedError(Exception):
    """The expression is outside the subset."""


@dataclass(frozen=True, eq=False)
class Node:
    """A typed part of an expression: `run` evaluates it, `value` is its vector if it is constant."""

    type: pa.DataType
    run: Callable[[Batch], Vector]
    value: Vector | None = None
    decimal: Decimal | None = None  # a literal such as 1.5, whose type its neighbour decides
    rounded: bool = False  # a whole number cast to FLOAT; Spark skips that when it is cast on to DOUBLE
    chain: tuple[type[exp.Expr], int, bool] | None = None  # whole numbers: operator, operands, whether one is constant

    @property
    def is_null(self) -> bool:
        """Whether it is the constant null."""
        return self.value is not None and self.value.valid is not None

    def is_constant(self, truth: bool) -> bool:
        return self.value is not None and self.value.valid is None and bool(self.value.data) is truth


def constant(kind: pa.DataType, data: Any, *, null: bool = False) -> Node:
    vector = Vector(data, np.False_ if null else None)
    return Node(kind, lambda _: vector, vector)


def null_of(kind: pa.DataType) -> Node:
    if kind == STRING:
        return constant(kind, pa.scalar(None, STRING), null=True)
    dtype = dtype_of(kind)
    if dtype is None and kind != VOID:
        raise UnsupportedError
    return constant(kind, np.zeros((), dtype or np.bool_)[()], null=True)


_INTS = (pa.int8(), pa.int16(), INT, BIGINT)
_CASTS = {
    "BOOLEAN": BOOL, "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": INT, "BIGINT": BIGINT,
    "FLOAT": FLOAT, "DOUBLE": DOUBLE, "TEXT": STRING, "DATE": pa.date32(), "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], Callable[[Vector, Vector, pa.DataType], Vector]] = {
    exp.Add: arithmetic.add,
    exp.Sub: arithmetic.subtract,
    exp.Mul: arithmetic.multiply,
    exp.Div: arithmetic.divide,
    exp.Mod: arithmetic.remainder,
    exp.IntDiv: arithmetic.whole_divide,
}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_PREDICATES = (*_COMPARISONS, exp.Between, exp.In, exp.Is, exp.Like, exp.Not, exp.And, exp.Or)


class Builder:
    """Builds the nodes of expressions over one schema; raises `UnsupportedError` outside the subset."""

    def __init__(self, schema: pa.Schema) -> None:
        self.fields = {f.name.lower(): f for f in schema}

    def build(self, tree: exp.Expr) -> Node:
        kind = type(tree)
        if kind in _ARITHMETIC:
            return self._arithmetic(tree)
        if kind in _COMPARISONS:
            self._refuse_loose(tree.this, tree.expression)
            return compared(_COMPARISONS[kind], self.build(tree.this), self.build(tree.expression))
        rule = _RULES.get(kind)
        if rule is None:
            raise UnsupportedError
        return rule(self, tree)

    def _build_all(self, trees: Sequence[exp.Expr]) -> list[Node]:
        return [self.build(t) for t in trees]

    @staticmethod
    def _refuse_loose(*operands: exp.Expr) -> None:
        """A predicate as operand without parentheses: sqlglot's precedence is not Spark's."""
        if any(isinstance(o, _PREDICATES) for o in operands):
            raise UnsupportedError

    def _paren(self, tree: exp.Expr) -> Node:
        return self.build(tree.this)

    def _column(self, tree: exp.Expr) -> Node:
        name = ".".join(part.name for part in (tree.args.get("table"), tree.this) if part)
        field = self.fields.get(name.lower())
        if field is None:
            raise UnsupportedError
        return Node(field.type, lambda batch: batch.column(field.name, field.type))

    def _literal(self, tree: exp.Expr) -> Node:
        return constant(STRING, pa.scalar(tree.name)) if tree.is_string else _number(tree.name)

    def _boolean(self, tree: exp.Expr) -> Node:
        return constant(BOOL, np.bool_(tree.this))

    def _null(self, _: exp.Expr) -> Node:
        return null_of(VOID)

    def _negation(self, tree: exp.Expr) -> Node:
        inner = tree.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return _number("-" + inner.name)
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and inner.to.this.name in _CASTS:
            kind = _CASTS[inner.to.this.name]
            # -128Y is a literal, -cast(128 as tinyint) fails, and sqlglot gives both one form
            if is_int(kind) and inner.this.name == str(-int(np.iinfo(DTYPES[kind]).min)):
                raise UnsupportedError
        node = self.build(inner)
        if node.decimal is not None or not (is_int(node.type) or is_float(node.type)):
            raise UnsupportedError
        return mapped(node.type, lambda a: arithmetic.negate(a, node.type), node)

    def _absolute(self, tree: exp.Expr) -> Node:
        node = self.build(tree.this)
        if node.decimal is not None or not (is_int(node.type) or is_float(node.type)):
            raise UnsupportedError
        return mapped(node.type, lambda a: arithmetic.absolute(a, node.type), node)

    def _arithmetic(self, tree: exp.Expr) -> Node:
        left, right = self.build(tree.this), self.build(tree.expression)
        kind = common_type([left, right])
        if kind == VOID or not (is_int(kind) or is_float(kind)):
            raise UnsupportedError
        if isinstance(tree, exp.Div):
            kind = DOUBLE
        if isinstance(tree, exp.IntDiv):
            if not is_int(kind):
                raise UnsupportedError
            kind = BIGINT
        left, right = to_type(left, kind), to_type(right, kind)
        if left.is_null or right.is_null:
            return null_of(kind)
        operation = _ARITHMETIC[type(tree)]
        made = mapped(kind, lambda a, b: operation(a, b, kind), left, right)
        if made.value is not None or is_float(kind) or not isinstance(tree, (exp.Add, exp.Mul)):
            return made
        return replace(made, chain=self._chain(type(tree), left, right))

    @staticmethod
    def _chain(operator: type[exp.Expr], *nodes: Node) -> tuple[type[exp.Expr], int, bool]:
        """Refuse `a + 1 + b`: Spark moves constants to the end, and then other rows overflow."""
        operands, has_constant = 0, False
        for node in nodes:
            same = node.chain is not None and node.chain[0] is operator
            operands += node.chain[1] if node.chain and same else 1
            has_constant |= bool(node.chain and same and node.chain[2]) or node.value is not None
        if operands > 2 and has_constant:
            raise UnsupportedError
        return operator, operands, has_constant

    def _both(self, tree: exp.Expr) -> Node:
        left, right = to_type(self.build(tree.this), BOOL), to_type(self.build(tree.expression), BOOL)
        if left.is_constant(False) or right.is_constant(False):
            return constant(BOOL, np.False_)
        if left.is_constant(True):
            return right
        return left if right.is_constant(True) else mapped(BOOL, logic.conjunction, left, right)

    def _either(self, tree: exp.Expr) -> Node:
        left, right = to_type(self.build(tree.this), BOOL), to_type(self.build(tree.expression), BOOL)
        if left.is_constant(True) or right.is_constant(True):
            return constant(BOOL, np.True_)
        if left.is_constant(False):
            return right
        return left if right.is_constant(False) else mapped(BOOL, logic.disjunction, left, right)

    def _not(self, tree: exp.Expr) -> Node:
        return negated(to_type(self.build(tree.this), BOOL))

    def _is(self, tree: exp.Expr) -> Node:
        node = self.build(tree.this)
        if isinstance(tree.expression, exp.Null):
            return self._null_check(node)
        if isinstance(tree.expression, exp.Boolean):
            return compared("<=>", to_type(node, BOOL), self.build(tree.expression))
        raise UnsupportedError

    @staticmethod
    def _null_check(node: Node) -> Node:
        return mapped(BOOL, lambda a: Vector(a.null_mask(), None, a.codes), node)

    def _is_nan(self, tree: exp.Expr) -> Node:
        node = self.build(tree.this)
        if node.decimal is not None or not is_float(node.type):
            raise UnsupportedError
        return mapped(BOOL, lambda a: Vector(np.isnan(a.data) & ~a.null_mask(), None, a.codes), node)

    def _between(self, tree: exp.Expr) -> Node:
        low, high = tree.args["low"], tree.args["high"]
        if tree.args.get("symmetric"):
            raise UnsupportedError
        self._refuse_loose(tree.this, low, high)
        node = self.build(tree.this)
        return mapped(
            BOOL, logic.conjunction, compared(">=", node, self.build(low)), compared("<=", node, self.build(high))
        )

    def _in(self, tree: exp.Expr) -> Node:
        self._refuse_loose(tree.this)
        items = self._build_all(tree.expressions)
        node = self.build(tree.this)
        kind = common_type([node, *items])
        node, items = to_type(node, kind), [to_type(i, kind) for i in items]
        dtype = dtype_of(kind)
        many_floats = is_float(kind) and len(items) > 10  # then Spark looks them up by their bits
        if not items or node.value is not None or many_floats or (dtype is None and kind != STRING):
            raise UnsupportedError
        values = []
        for item in items:
            if item.value is None:
                raise UnsupportedError
            if not item.is_null:
                values.append(item.value.data.as_py() if kind == STRING else item.value.data.item())
        has_null = any(i.is_null for i in items)
        return mapped(BOOL, lambda a: logic.is_in(a, values, has_null, kind), node)

    def _like(self, tree: exp.Expr) -> Node:
        self._refuse_loose(tree.this, tree.expression)
        node, pattern = self.build(tree.this), self.build(tree.expression)
        if node.type != STRING or node.value is not None or pattern.type != STRING or pattern.value is None:
            raise UnsupportedError
        text = pattern.value.data.as_py()
        if text is None or logic.like(Vector(pa.array([""])), text) is None:
            raise UnsupportedError
        result = mapped(BOOL, lambda a: logic.like(a, text) or a, node)
        return negated(result) if tree.args.get("negate") else result

    def _if(self, tree: exp.Expr) -> Node:
        if tree.args.get("false") is None:
            raise UnsupportedError
        return chosen([(self.build(tree.this), self.build(tree.args["true"]))], self.build(tree.args["false"]))

    def _case(self, tree: exp.Expr) -> Node:
        if tree.this is not None:
            self._refuse_loose(tree.this, *(i.this for i in tree.args["ifs"]))
            subject = self.build(tree.this)
            conditions = [compared("=", subject, self.build(i.this)) for i in tree.args["ifs"]]
        else:
            conditions = [self.build(i.this) for i in tree.args["ifs"]]
        values = [self.build(i.args["true"]) for i in tree.args["ifs"]]
        default = self.build(tree.args["default"]) if tree.args.get("default") else null_of(VOID)
        return chosen(list(zip(conditions, values, strict=True)), default)

    def _coalesce(self, tree: exp.Expr) -> Node:
        nodes = self._build_all([tree.this, *tree.expressions])
        kind = common_type(nodes)
        nodes = [n for n in (to_type(n, kind) for n in nodes) if not n.is_null]
        if dtype_of(kind) is None and kind != STRING:
            raise UnsupportedError
        if not nodes:
            return null_of(kind)
        return mapped(kind, lambda *v: logic.coalesce(v), *nodes)

    def _null_if(self, tree: exp.Expr) -> Node:
        node = self.build(tree.this)
        if node.type == VOID or node.decimal is not None:
            raise UnsupportedError
        return chosen([(compared("=", node, self.build(tree.expression)), null_of(node.type))], node)

    def _extreme(self, tree: exp.Expr) -> Node:
        nodes = self._build_all([tree.this, *tree.expressions])
        kind = common_type(nodes)
        if len(nodes) < 2 or dtype_of(kind) is None:
            raise UnsupportedError
        op = ">" if isinstance(tree, exp.Greatest) else "<"
        return mapped(kind, lambda *v: logic.extreme(op, v, kind), *(to_type(n, kind) for n in nodes))

    def _cast(self, tree: exp.Expr) -> Node:
        target = tree.args["to"]
        kind = _CASTS.get(target.this.name)
        if kind is None or target.expressions or tree.args.get("safe") or tree.args.get("format"):
            raise UnsupportedError
        if isinstance(tree.this, exp.Literal) and tree.this.is_string:
            return _moment(tree.this.name, kind)
        node = self.build(tree.this)
        if node.decimal is not None:
            return to_type(node, kind)
        if node.type == kind:
            return node
        if node.type == VOID:
            return null_of(kind)
        if node.type not in (BOOL, *_INTS, FLOAT, DOUBLE) or kind not in (BOOL, *_INTS, FLOAT, DOUBLE):
            raise UnsupportedError
        return converted(node, kind)

    def _anonymous(self, tree: exp.Expr) -> Node:
        name = str(tree.this).lower()
        if name not in ("isnull", "isnotnull") or len(tree.expressions) != 1:
            raise UnsupportedError
        check = self._null_check(self.build(tree.expressions[0]))
        return check if name == "isnull" else negated(check)


_RULES: dict[type[exp.Expr], Callable[[Builder, exp.Expr], Node]] = {
    exp.Paren: Builder._paren,
    exp.Column: Builder._column,
    exp.Literal: Builder._literal,
    exp.Boolean: Builder._boolean,
    exp.Null: Builder._null,
    exp.Neg: Builder._negation,
    exp.Abs: Builder._absolute,
    exp.And: Builder._both,
    exp.Or: Builder._either,
    exp.Not: Builder._not,
    exp.Is: Builder._is,
    exp.IsNan: Builder._is_nan,
    exp.Between: Builder._between,
    exp.In: Builder._in,
    exp.Like: Builder._like,
    exp.If: Builder._if,
    exp.Case: Builder._case,
    exp.Coalesce: Builder._coalesce,
    exp.Nullif: Builder._null_if,
    exp.Greatest: Builder._extreme,
    exp.Least: Builder._extreme,
    exp.Cast: Builder._cast,
    exp.TryCast: Builder._cast,
    exp.Anonymous: Builder._anonymous,
}


def mapped(kind: pa.DataType, function: Callable[..., Vector], *nodes: Node) -> Node:
    """A node that applies a function to the values of others; folded if all are constant."""
    if all(n.value is not None for n in nodes):
        if any(n.type == STRING for n in nodes):
            raise UnsupportedError
        vector = function(*(n.value for n in nodes))
        if vector.codes is not None and vector.codes.any():
            raise UnsupportedError  # Spark may fail while it plans
        null = vector.valid is not None and not vector.valid
        return null_of(kind) if null else constant(kind, np.asarray(vector.data)[()])
    runs = [n.run for n in nodes]
    if len(runs) == 1:
        only = runs[0]
        return Node(kind, lambda batch: function(only(batch)))
    if len(runs) == 2:
        first, second = runs
        return Node(kind, lambda batch: function(first(batch), second(batch)))
    return Node(kind, lambda batch: function(*(run(batch) for run in runs)))


def negated(node: Node) -> Node:
    return mapped(BOOL, lambda a: Vector(~a.data, a.valid, a.codes), node)


def compared(op: str, left: Node, right: Node) -> Node:
    kind = common_type([left, right])
    if kind == VOID or (dtype_of(kind) is None and kind != STRING):
        raise UnsupportedError
    left, right = to_type(left, kind, compare=True), to_type(right, kind, compare=True)
    if op == "<=>":
        if kind == STRING:
            raise UnsupportedError
        return mapped(BOOL, lambda a, b: logic.null_safe_equal(a, b, kind), left, right)
    if left.is_null or right.is_null:
        return null_of(BOOL)
    return mapped(BOOL, lambda a, b: logic.compare(op, a, b, kind), left, right)


def chosen(branches: Sequence[tuple[Node, Node]], default: Node) -> Node:
    """CASE: branches whose condition is constant are settled here."""
    kind = common_type([*(v for _, v in branches), default])
    if kind == VOID or (dtype_of(kind) is None and kind != STRING):
        raise UnsupportedError
    default = to_type(default, kind)
    live: list[tuple[Node, Node]] = []
    for condition, value in branches:
        condition, value = to_type(condition, BOOL), to_type(value, kind)
        if condition.is_constant(True):
            default = value
            break
        if condition.value is None:
            live.append((condition, value))
    if not live:
        return default

    def run(batch: Batch) -> Vector:
        return logic.choose([(c.run(batch), v.run(batch)) for c, v in live], default.run(batch))

    return Node(kind, run)


def common_type(nodes: Sequence[Node]) -> pa.DataType:
    """The type Spark's ANSI rules bring the operands to."""
    kinds = {n.type for n in nodes if n.type != VOID and n.decimal is None}
    decimals = any(n.decimal is not None for n in nodes)
    if not decimals and len(kinds) <= 1:
        return next(iter(kinds), VOID)
    if not kinds or not all(is_int(k) or is_float(k) for k in kinds) or (decimals and not any(map(is_float, kinds))):
        raise UnsupportedError
    if any(map(is_float, kinds)):
        return DOUBLE  # a FLOAT beside any other number widens to DOUBLE
    return max(kinds, key=_INTS.index)


def to_type(node: Node, kind: pa.DataType, *, compare: bool = False) -> Node:
    """The node coerced; `compare`: whole numbers of any width will do, they are compared as they are."""
    if node.decimal is not None:
        if not is_float(kind):
            raise UnsupportedError
        positive_zero = 0.0  # a DECIMAL has no negative zero
        exact = np.float64(float(node.decimal) + positive_zero)
        return constant(kind, exact if kind == DOUBLE else _nearest_float(node.decimal) + np.float32(positive_zero))
    if node.type == kind:
        return node
    if node.is_null:
        return null_of(kind)
    source = node.type
    if not (is_int(source) or is_float(source)) or not (is_int(kind) or is_float(kind)):
        raise UnsupportedError
    if compare and is_int(source) and is_int(kind):
        return node
    return converted(node, kind)


def converted(node: Node, kind: pa.DataType) -> Node:
    """The node cast among BOOLEAN and the numeric types."""
    source = node.type
    if node.rounded and kind == DOUBLE:
        raise UnsupportedError
    made = mapped(kind, lambda a: arithmetic.cast(a, source, kind), node)
    return replace(made, rounded=kind == FLOAT and source in (INT, BIGINT))


_DIGITS = re.compile(r"-?\d+")
_EXPONENT = re.compile(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_POINT = re.compile(r"-?(\d+\.\d*|\.\d+)")


def _number(text: str) -> Node:
    """A number as Spark's grammar reads it: INT, BIGINT, DOUBLE with an exponent, else DECIMAL."""
    if _DIGITS.fullmatch(text):
        value = int(text)
        for kind in (INT, BIGINT):
            info = np.iinfo(DTYPES[kind])
            if info.min <= value <= info.max:
                return constant(kind, DTYPES[kind].type(value))
    elif _EXPONENT.fullmatch(text):
        if np.isfinite(float(text)):
            return constant(DOUBLE, np.float64(text))
    elif _POINT.fullmatch(text) and sum(c.isdigit() for c in text) <= 38:
        vector = Vector(None)
        return Node(pa.decimal128(38, 18), lambda _: vector, vector, Decimal(text))
    raise UnsupportedError


def _nearest_float(value: Decimal) -> np.float32:
    """The FLOAT closest to a decimal, rounded once."""
    guess = np.float32(float(value))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [n for n in near if np.isfinite(n)]
    distances = [abs(Fraction(float(n)) - Fraction(value)) for n in finite]
    if distances.count(min(distances)) > 1 or not np.isfinite(guess):
        raise UnsupportedError
    return np.float32(finite[distances.index(min(distances))])


def _moment(text: str, kind: pa.DataType) -> Node:
    """A DATE or TIMESTAMP literal in its full form."""
    if kind == pa.date32():
        value = date_literal(text)
    elif kind in (TIMESTAMP, TIMESTAMP_NTZ):
        value = timestamp_literal(text)
    else:
        raise UnsupportedError
    if value is None:
        raise UnsupportedError
    return constant(kind, DTYPES.get(kind, np.dtype(np.int64)).type(value))
