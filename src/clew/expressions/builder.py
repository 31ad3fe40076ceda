"""From a parsed expression to a tree of typed nodes, one rule per kind of expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from clew.expressions import arithmetic, logic
from clew.expressions.arithmetic import is_float, is_int
from clew.expressions.nodes import (
    BIGINT,
    BOOL,
    DOUBLE,
    FLOAT,
    INT,
    INTS,
    STRING,
    VOID,
    Node,
    UnsupportedError,
    common_type,
    constant,
    converted,
    mapped,
    moment,
    null_of,
    number,
    to_type,
)
from clew.expressions.vectors import DTYPES, Batch, Vector, dtype_of
from clew.model.types import TIMESTAMP, TIMESTAMP_NTZ

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

    def __init__(self, schema: pa.Schema, zone: str = "UTC") -> None:
        self.fields = {f.name.lower(): f for f in schema}
        self.zone = zone

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
        return constant(STRING, pa.scalar(tree.name)) if tree.is_string else number(tree.name)

    def _boolean(self, tree: exp.Expr) -> Node:
        return constant(BOOL, np.bool_(tree.this))

    def _null(self, _: exp.Expr) -> Node:
        return null_of(VOID)

    def _negation(self, tree: exp.Expr) -> Node:
        inner = tree.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.name)
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
            if kind == TIMESTAMP and self.zone != "UTC":
                raise UnsupportedError
            return moment(tree.this.name, kind)
        node = self.build(tree.this)
        if node.decimal is not None:
            return to_type(node, kind)
        if node.type == kind:
            return node
        if node.type == VOID:
            return null_of(kind)
        if node.type not in (BOOL, *INTS, FLOAT, DOUBLE) or kind not in (BOOL, *INTS, FLOAT, DOUBLE):
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
