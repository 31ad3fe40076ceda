"""Random networks of up to six boxes, and random lives for them: batches with everything in them that can hurt."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from clew.engine.plan import build_plan
from clew.errors import NetworkError, TypeProblem
from clew.network.boxes import joined_columns
from clew.network.network import Network
from clew.network.stream import Stream, function
from clew.testing import FINISH, Advance

SCHEMA = "ts {kind}, id INT, g STRING, x DOUBLE, n INT"
NORMAL = ("ts", "g", "x", "n")  # what most boxes emit, so that they can be united
EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
KINDS = ("LONG", "LONG", "DOUBLE", "TIMESTAMP", "DATE")


@dataclass
class Made:
    """A stream of the network in the making, and what may be done with it."""

    stream: Stream
    types: dict[str, str]  # column -> whole, real, text, time, list
    named: bool = True  # the reference knows its rows' names

    def of(self, *kinds: str) -> list[str]:
        return [c for c, k in self.types.items() if k in kinds]


@dataclass(frozen=True)
class Case:
    """A network and what happens to it."""

    network: Network
    actions: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.network!r}\n" + "\n".join(map(repr, self.actions))


# --- user code ---


def doubled(rows: pa.Table) -> pa.Table:
    twice = [None if v is None else 2 * v for v in rows["n"].to_pylist()]
    return rows.append_column("twice", pa.array(twice, pa.int64()))


def counted(state: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Emits every second row with the count so far, made of it and the row before it in the step."""
    seen = 0 if state is None else state["seen"][0].as_py()
    found = [i for i in range(len(rows)) if (seen + i) % 2]
    out = rows.select(["ts"]).take(pa.array(found, pa.int64()))
    out = out.append_column("seen", pa.array([seen + i for i in found], pa.int64()))
    out = out.append_column("_row", pa.array(found, pa.int64()))
    out = out.append_column("_from", pa.array([max(0, i - 1) for i in found], pa.int64()))
    return pa.table({"seen": [seen + len(rows)]}), out


def summed(rows: pa.Table) -> pa.Table:
    return pa.table({"ts": rows["ts"].slice(0, 1), "many": pa.array([len(rows)], pa.int64())})


def breadth(rows: pa.Table) -> int:
    return rows.num_rows * 10


# --- boxes ---


class Grower:
    """Draws one box after another."""

    def __init__(self, draw: st.DrawFn, kind: str) -> None:
        self.draw, self.kind = draw, kind
        self.net = Network("random")
        self.time = "real" if kind == "DOUBLE" else "whole" if kind == "LONG" else "time"
        self.made: list[Made] = []

    def unit(self, size: int) -> Any:
        """A span of so many steps of the order."""
        if self.kind == "TIMESTAMP":
            return f"{size} seconds"
        if self.kind == "DATE":
            return f"{size} days"
        return size * 0.5 if self.kind == "DOUBLE" else size

    def one(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def source(self, name: str) -> None:
        lateness = self.unit(self.one(0, 0, 1, 3)) if self.one(0, 1) else 0
        span = {"key": ["ts", "id"]} if self.one(1, 1, 0) else {"key": "id", "key_span": self.unit(1)}
        stream = self.net.stream(name, SCHEMA.format(kind=self.kind), order="ts", lateness=lateness, **span)
        self.made.append(Made(stream, {"ts": self.time, "id": "whole", "g": "text", "x": "real", "n": "whole"}))

    def pick(self, *needs: str) -> Made:
        fitting = [m for m in self.made if all(m.of(n) for n in needs)]
        return self.draw(st.sampled_from(fitting[::-1]))

    def add(self, stream: Stream, types: dict[str, str], named: bool) -> None:
        self.made.append(Made(stream, types, named))

    def box(self) -> None:
        kinds = ["filter", "map", "union", "sort", "drop", "count", "clock", "anchored", "landmark", "latch", "join",
                 "resample", "apply", "count", "clock", "anchored", "join", "sort"]  # fmt: skip
        getattr(self, self.one(*kinds))()

    def filter(self) -> None:
        m = self.pick()
        options = [f"{c} > 1" for c in m.of("whole", "real")] + [f"{c} IS NOT NULL" for c in m.types]
        options += [f"NOT ({c} = 'a')" for c in m.of("text")] + [f"10 / {c} > 2" for c in m.of("whole") if c != "ts"]
        options += [f"{c} <= 2 OR {c} IS NULL" for c in m.of("real")]
        if m.of("whole") and m.of("real"):
            options.append(f"{m.of('whole')[-1]} < {m.of('real')[-1]} AND NOT {m.of('whole')[0]} = 2")
        self.add(m.stream.filter(self.one(*options)), m.types, m.named)

    def map(self) -> None:
        m = self.pick()
        if set(NORMAL) < set(m.types) and self.one(0, 1):
            self.add(m.stream.map(*NORMAL), {c: m.types[c] for c in NORMAL}, m.named)
            return
        numbers = m.of("whole", "real")
        named, types = {}, dict(m.types)
        for c in numbers:
            other = self.one(*numbers)
            named[c] = self.one(c, c, f"{c} + 1", f"{c} - {other}", f"{c} * 2", f"0 - {c}", f"100 / {c}")
            if named[c].startswith("100") or (types[c] == "whole" and types[other] == "real" and " - " in named[c]):
                types[c] = "real"
        kept = [c for c in m.types if c not in named]
        self.add(m.stream.map(*kept, **named), {c: types[c] for c in (*kept, *named)}, m.named)

    def union(self) -> None:
        m = self.pick()
        same = [o for o in self.made if list(o.types.items()) == list(m.types.items()) and _kinds(o) == _kinds(m)]
        others = self.draw(st.lists(st.sampled_from(same), min_size=1, max_size=2))
        self.add(m.stream.union(*(o.stream for o in others)), m.types, m.named and all(o.named for o in others))

    def sort(self) -> None:
        m = self.pick()
        on = self.one(*m.of("whole", "real", "time", "text"))
        self.add(m.stream.sort(on, slack=self.one(0, 1, 2, 5)), m.types, m.named)

    def drop(self) -> None:
        m = self.pick()
        if m.named and self.one(0, 1):
            self.add(m.stream.drop(fraction=self.one(0.0, 0.4, 1.0), seed=self.one(0, 3)), m.types, True)
        else:
            self.add(m.stream.drop(self.one(1, 2, 3)), m.types, m.named)

    def apply(self) -> None:
        how = self.one("rows", "stateful", "opaque")
        fitting = [m for m in self.made if m.types.get("ts") == self.time]
        fitting = [m for m in fitting if how != "rows" or m.types == self.made[0].types]
        if not fitting:
            return
        m = self.draw(st.sampled_from(fitting))
        if how == "rows":
            schema = SCHEMA.format(kind=self.kind) + ", twice LONG"
            self.add(m.stream.apply(doubled, schema, how="rows"), {**m.types, "twice": "whole"}, m.named)
        elif how == "stateful":
            made = m.stream.apply(counted, f"ts {self.kind}, seen LONG", how="stateful")
            self.add(made, {"ts": self.time, "seen": "whole"}, False)
        else:
            made = m.stream.apply(summed, f"ts {self.kind}, many LONG", how="opaque")
            self.add(made, {"ts": self.time, "many": "whole"}, False)

    def groups(self, m: Made) -> list[str]:
        columns = m.of("text", "whole", "real")
        return self.draw(st.lists(st.sampled_from(columns), max_size=2, unique=True)) if columns else []

    def aggregates(self, m: Made, by: list[str], *, prefix: str = "") -> tuple[dict[str, Any], dict[str, str]]:
        """Aggregates that make a normal stream where they can, then some others."""
        found: dict[str, Any] = {}
        types: dict[str, str] = {}

        def put(name: str, sql: Any, kind: str) -> None:
            if name not in by and name not in found:
                found[name], types[name] = sql, kind

        for c in m.of("time", "whole", "real")[:1]:
            put(f"{prefix}ts", f"{self.one('min', 'max', 'first', 'last')}({c})", m.types[c])
        for c in m.of("text")[:1]:
            put(f"{prefix}g", f"{self.one('first', 'last', 'max')}({c})", "text")
        for c in m.of("real")[:1]:
            put(f"{prefix}x", self.one(f"avg({c})", f"sum({c})", f"median({c})", f"min({c})", f"stddev({c})",
                                       f"max({c} * 2)", f"sum({c}) / count({c})"), "real")  # fmt: skip
        put(f"{prefix}n", self.one("count(*)", *(f"count(distinct {c})" for c in m.types if m.types[c] != "list"),
                                   *(f"sum({c})" for c in m.of("whole"))), "whole")  # fmt: skip
        if self.one(0, 0, 1):
            c = self.one(*[c for c in m.types if m.types[c] != "list"])
            put(f"{prefix}all", f"collect_list({c})", "list")
        if self.one(0, 0, 1) and not prefix:
            put("wide", function(breadth, "LONG"), "whole")
        if not found:
            put("many", "count(*)", "whole")
        return found, types

    def windowed(self, m: Made, windowed: Any, by: list[str]) -> None:
        found, types = self.aggregates(m, by)
        self.add(windowed.agg(**found), {**{c: m.types[c] for c in by}, **types}, False)

    def count(self) -> None:
        m = self.pick()
        by = self.groups(m)
        rows, slide, partial = self.one(1, 2, 3, 5), self.one(1, 2, 4), self.one(False, True)
        self.windowed(m, m.stream.window(rows=rows, slide=slide, by=by, partial=partial), by)

    def on(self, m: Made) -> str:
        ordered = m.of("whole", "real", "time")
        return str(self.one(*(["ts"] * 3 if "ts" in ordered else []), *ordered))

    def size(self, m: Made, on: str, sizes: tuple[int, ...]) -> Any:
        size = self.one(*sizes)
        return size if m.types[on] != "time" else self.unit(size)

    def clock(self, anchor: str = "clock") -> None:
        m = self.pick()
        if not m.of("whole", "real", "time"):
            return
        by, on = self.groups(m), self.on(m)
        span, slide = self.size(m, on, (1, 2, 3, 5)), self.size(m, on, (1, 2, 4))
        self.windowed(m, m.stream.window(span=span, slide=slide, on=on, anchor=anchor, by=by), by)  # type: ignore[arg-type]

    def anchored(self) -> None:
        self.clock("tuple")

    def landmark(self) -> None:
        m = self.pick()
        by = self.groups(m)
        if self.one(0, 1) or not m.of("whole", "real", "time") or "rows" in m.types:
            self.windowed(m, m.stream.window(landmark=self.one(0, 2), slide=self.one(1, 2, 3), on="rows", by=by), by)
            return
        on = self.on(m)
        start: Any = self.one(-2, 0, 3)
        if m.types[on] == "time":
            start = _moment(self.kind, start)
        self.windowed(m, m.stream.window(landmark=start, slide=self.size(m, on, (1, 2, 4)), on=on, by=by), by)

    def latch(self) -> None:
        m = self.pick()
        by = self.groups(m)
        if self.one(0, 1) or not m.of("whole", "real", "time"):
            self.windowed(m, m.stream.window(latch=self.one(1, 2, 3), on="rows", by=by), by)
            return
        on = self.on(m)
        self.windowed(m, m.stream.window(latch=self.size(m, on, (1, 2, 4)), on=on, by=by), by)

    def pair(self) -> tuple[Made, Made, str, str] | None:
        fitting = [m for m in self.made if m.types.get("ts") == self.time]
        if not fitting:
            return None
        left, right = (self.draw(st.sampled_from(fitting[::-1])) for _ in range(2))
        return left, right, "ts", "ts"

    def join(self) -> None:
        pair = self.pair()
        if pair is None:
            return
        left, right, a, b = pair
        shared = [c for c in left.of("text", "real") if right.types.get(c) == left.types[c] and c != "ts"]
        shared += [c for c in ("id",) if c in left.types and c in right.types]
        by = self.draw(st.lists(st.sampled_from(shared), max_size=1)) if shared else []
        within: Any = self.unit(self.one(0, 1, 3))
        if self.kind in ("LONG", "DOUBLE") and self.one(0, 1):
            within = self.one((0, 2), (-3, -1), (1, 1), (-1, 4))
        how = self.one("inner", "left")
        renamed = joined_columns(left.stream.columns, right.stream.columns, [(c, c) for c in by], "_r")
        columns = [*left.stream.columns, *renamed.values()]
        if len({c.lower() for c in columns}) < len(columns):
            return
        kept = [c for c in right.stream.columns if c not in by]
        types = dict(zip(columns, [*left.types.values(), *(right.types[c] for c in kept)], strict=True))
        whole = [c for c in columns if types[c] in ("whole", "real")]
        where = self.one(None, None, *(f"{c} > 0 OR {c} IS NULL" for c in whole), *(f"6 / {c} < 4" for c in whole))
        made = left.stream.join(right.stream, within=within, by=by, on=(a, b), where=where, how=how, suffix="_r")
        self.add(made, types, left.named and right.named)

    def resample(self) -> None:
        pair = self.pair()
        if pair is None:
            return
        first, second, a, b = pair
        by = [c for c in self.one([], ["g"]) if c in first.types and c in second.types]
        found, types = self.aggregates(first, [], prefix="r_")
        if set(found) & set(second.types):
            return
        made = first.stream.resample(second.stream, within=self.unit(self.one(0, 1, 2)), by=by, on=(a, b)).agg(**found)
        self.add(made, {**second.types, **types}, second.named)


def _kinds(m: Made) -> list[str]:
    return list(m.types)


def _moment(kind: str, step: float) -> Any:
    if kind == "TIMESTAMP":
        return EPOCH + dt.timedelta(seconds=step)
    if kind == "DATE":
        return (EPOCH + dt.timedelta(days=step)).date()
    return step * 0.5 if kind == "DOUBLE" else step


@st.composite
def networks(draw: st.DrawFn, most: int = 6) -> tuple[Network, str]:
    """A network, every loose end of it an output, and the type of its orders."""
    kind = draw(st.sampled_from(KINDS))
    grower = Grower(draw, kind)
    for name in draw(st.sampled_from([("s",), ("s", "t")])):
        grower.source(name)
    sources = len(grower.made)
    for _ in range(draw(st.sampled_from(range(1, most + 1)))):
        grower.box()
    used = {i for b in grower.net._boxes for i in b.inputs}
    for i, made in enumerate(grower.made[sources:]):
        if str(made.stream._number) not in used or draw(st.booleans()):
            made.stream.output(f"o{i}")
    if not grower.net.outputs:
        grower.made[0].stream.filter("id > 0").output("o")
    assume(_fits(grower.net))
    return grower.net, kind


def _fits(network: Network) -> bool:
    """Whether its types fit, and Spark is not needed to find them."""
    try:
        build_plan(network, _no_typer)
    except (TypeProblem, NetworkError):
        return False
    return True


def _no_typer(*_: Any) -> Any:
    raise TypeProblem("needs Spark")


REALS = st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 0.2, 1.5, 2.5, -3.0, 1e16])


@st.composite
def cases(draw: st.DrawFn, most: int = 6, size: int = 10, infinite: bool = True) -> Case:
    """A network and its life: batches, moves of progress, perhaps an end."""
    network, kind = draw(networks(most))
    now = 0
    actions: list[Any] = []
    reals = REALS if infinite else REALS.filter(lambda v: v is None or not math.isinf(v))
    for _ in range(draw(st.sampled_from(range(1, 6)))):
        what = draw(st.sampled_from(["feed", "feed", "feed", "feed", "advance"]))
        names = draw(st.lists(st.sampled_from(list(network.sources)), min_size=1, max_size=2, unique=True))
        if what == "advance":
            actions.append(Advance(names[0], _moment(kind, now + draw(st.integers(-1, 6)))))
            continue
        batch = {}
        for name in names:
            rows = []
            for _ in range(draw(st.sampled_from(range(size + 1)))):
                now += draw(st.sampled_from([0, 0, 1, 1, 2, 5]))
                at = draw(st.sampled_from([0, 0, 0, 0, -1, -2, -7]))
                step = None if draw(st.integers(0, 30)) == 30 else now + at
                rows.append({
                    "ts": None if step is None else _moment(kind, step),
                    "id": draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, None])),
                    "g": draw(st.sampled_from([None, "", "a", "b", "c"])),
                    "x": draw(reals),
                    "n": draw(st.sampled_from([None, -2, 0, 1, 2, 3])),
                })  # fmt: skip
            batch[name] = rows
        actions.append(batch)
    if draw(st.booleans()):
        actions.append(FINISH)
    return Case(network, tuple(actions))
