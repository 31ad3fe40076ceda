"""Admission: which tuples enter when, in which order, and what becomes of the others.

First hand-made cases, one a rule; then random batches against the rules in plain Python; then that the order of the
rows in a batch never matters.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.engine.admission import Admission, StreamState, admit, needs_recent, source_steps, stamp_streams
from clew.engine.pieces import Batch, Form, Scan, write_pieces
from clew.model.axis import axis_end
from clew.model.runs import Runs
from clew.network.boxes import Source
from clew.network.network import Network

NOW = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
SCHEMA = "ts LONG, id INT, x DOUBLE"


def source(schema: str = SCHEMA, order: str = "ts", key: Any = ("ts", "id"), **options: Any) -> Source:
    net = Network("net")
    net.stream("s", schema, order=order, key=key, **options)
    return net.sources["s"]


class Stream:
    """A stream fed batch after batch."""

    def __init__(self, source: Source) -> None:
        self.source, self.state = source, StreamState()

    def feed(self, *rows: Any, advance: Any = None, **options: Any) -> Admission:
        named = [r if isinstance(r, dict) else dict(zip(self.source.schema.names, r, strict=False)) for r in rows]
        columns = [pa.array([r.get(f.name) for r in named], f.type) for f in self.source.schema]
        table = pa.table(columns, schema=self.source.schema)
        made = admit(self.source, self.state, Batch.of(self.source, table), now=NOW, advance=advance, **options)
        self.state = made.state
        return made


def orders(made: Admission) -> list[Any]:
    return made.rows.column("ts").to_pylist()


# --- rules, one by one ---


def test_rows_are_admitted_by_order_then_key() -> None:
    made = Stream(source()).feed((3, 1), (1, 2), (1, 1), (2, 9))
    assert made.rows.select(["ts", "id"]).to_pylist() == [
        {"ts": 1, "id": 1}, {"ts": 1, "id": 2}, {"ts": 2, "id": 9}, {"ts": 3, "id": 1},
    ]  # fmt: skip
    assert (made.state.seq, made.state.progress, made.waiting) == (4, 3, 0)


def test_what_is_newer_than_the_lateness_allows_waits_and_comes_in_order() -> None:
    stream = Stream(source(lateness=2))
    assert orders(stream.feed((5, 1), (3, 1), (4, 1))) == [3]
    assert stream.state.pending is not None
    assert len(stream.state.pending) == 2
    made = stream.feed((4, 2), (6, 1))
    assert made.rows.select(["ts", "id"]).to_pylist() == [{"ts": 4, "id": 1}, {"ts": 4, "id": 2}]
    assert (made.waiting, made.state.progress, made.state.newest) == (2, 4, 6)


def test_a_tuple_as_old_as_progress_is_not_late_an_older_one_is() -> None:
    stream = Stream(source())
    stream.feed((5, 1))
    made = stream.feed((5, 2), (4, 1), (6, 1))
    assert orders(made) == [5, 6]
    assert made.late.to_pylist() == [{"ts": 4, "id": 1, "x": None}]
    assert not made.rejects


def test_the_bound_moves_once_a_batch_so_that_none_is_late_by_its_own_batch() -> None:
    made = Stream(source()).feed((9, 1), (1, 1), (5, 1))
    assert orders(made) == [1, 5, 9]
    assert not len(made.late)


def test_of_equal_keys_in_a_batch_one_stays_whatever_their_order() -> None:
    rows = [(1, 1, 2.0), (1, 1, 1.0), (1, 1, None)]
    for mixed in (rows, rows[::-1]):
        made = Stream(source()).feed(*mixed)
        assert made.rows.to_pylist() == [{"ts": 1, "id": 1, "x": None}]
        assert [r.reason for r in made.rejects] == ["duplicate key (ts=1, id=1)"] * 2


def test_a_key_that_waits_beats_one_that_comes() -> None:
    stream = Stream(source(lateness=5))
    stream.feed((3, 1, 9.0))
    made = stream.feed((3, 1, 1.0), (20, 1))
    assert made.rows.to_pylist() == [{"ts": 3, "id": 1, "x": 9.0}]
    assert len(made.rejects) == 1


def test_a_key_that_was_admitted_is_rejected() -> None:
    stream = Stream(source())
    stream.feed((3, 1), (3, 2))
    made = stream.feed((3, 2), (3, 3), (4, 2))
    assert made.rows.column("id").to_pylist() == [3, 2]
    assert [r.row for r in made.rejects] == ['{"ts": 3, "id": 2, "x": null}']


def test_a_key_without_order_may_come_again_beyond_its_span() -> None:
    stream = Stream(source(key="id", key_span=2))
    made = stream.feed((1, 1), (3, 1), (4, 1), (2, 2))
    assert made.rows.select(["ts", "id"]).to_pylist() == [{"ts": 1, "id": 1}, {"ts": 2, "id": 2}, {"ts": 4, "id": 1}]
    assert orders(stream.feed((6, 1), (7, 1))) == [7]


def test_keys_within_a_span_at_one_order_do_not_depend_on_their_order_in_the_batch() -> None:
    """The first to come won."""
    rows = [(1, 1, 2.0), (1, 1, 1.0)]
    for mixed in (rows, rows[::-1]):
        assert Stream(source(key="id", key_span=2)).feed(*mixed).rows.to_pylist() == [{"ts": 1, "id": 1, "x": 1.0}]


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_of_both_signs_do_not_depend_on_their_order_in_the_batch(zeros: tuple[float, float]) -> None:
    made = Stream(source()).feed(*[(1, 1, z) for z in zeros])
    assert [math.copysign(1, v) for v in made.rows.column("x").to_pylist()] == [-1.0]
    made = Stream(source("ts DOUBLE, id INT, x DOUBLE")).feed(*[(z, 1, None) for z in zeros])
    assert [math.copysign(1, v) for v in orders(made)] == [-1.0]


def test_null_and_nan_in_order_or_key_are_rejected_whole() -> None:
    stream = Stream(source("ts DOUBLE, id INT, g STRING"))
    made = stream.feed((None, 1, "a"), (math.nan, 1, "b"), (1.0, None, "c"), (1.0, 1, "d"))
    assert made.rows.column("g").to_pylist() == ["d"]
    assert sorted((r.reason, r.row) for r in made.rejects) == [
        ("null or NaN in key column 'id'", '{"ts": 1.0, "id": null, "g": "c"}'),
        ("null or NaN in order column 'ts'", '{"ts": NaN, "id": 1, "g": "b"}'),
        ("null or NaN in order column 'ts'", '{"ts": null, "id": 1, "g": "a"}'),
    ]


def test_nan_as_a_key_is_a_key_equal_to_itself() -> None:
    made = Stream(source("ts LONG, id DOUBLE, x DOUBLE")).feed((1, math.nan), (1, math.nan), (1, math.inf), (1, 0.0))
    assert list(map(repr, made.rows.column("id").to_pylist())) == ["0.0", "inf", "nan"]
    assert len(made.rejects) == 1


@pytest.mark.parametrize(("schema", "endless"), [("ts DOUBLE, id INT", math.inf), ("ts LONG, id INT", 2**63 - 1)])
def test_an_order_at_the_end_of_its_type_is_rejected_and_ends_nothing(schema: str, endless: Any) -> None:
    """It was admitted when it came in a stream's first batch: everything else was late for ever."""
    stream = Stream(source(schema))
    made = stream.feed((endless, 1), (1, 1))
    assert orders(made) == [1]
    assert [r.reason for r in made.rejects] == ["infinite in order column 'ts'"]
    assert orders(stream.feed((2, 1))) == [2]


def test_minus_infinity_is_no_order_either() -> None:
    made = Stream(source("ts DOUBLE, id INT")).feed((-math.inf, 1), (1.0, 1))
    assert orders(made) == [1.0]
    assert len(made.rejects) == 1


def test_the_smallest_numbers_there_are_do_not_overflow() -> None:
    """The bound was computed beyond the numbers that an array can hold."""
    least = -(2**63)
    stream = Stream(source(lateness=10, max_ahead=5))
    assert orders(stream.feed((least, 1))) == []
    assert orders(stream.feed((least + 10, 1), advance=least + 12)) == [least, least + 10]
    stream = Stream(source(key="id", key_span=10))
    assert orders(stream.feed((least, 1), (least + 5, 1), (least + 11, 1))) == [least, least + 11]


def test_columns_of_lists_do_not_stop_a_batch_with_duplicates() -> None:
    made = Stream(source("ts LONG, id INT, tags ARRAY<STRING>")).feed((1, 1, ["b"]), (1, 1, ["a"]), (1, 1, None))
    assert len(made.rows) == 1
    assert len(made.rejects) == 2


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", [0.5, 1.5, 2.5]),
        ("DECIMAL(10, 2)", [Decimal("0.01"), Decimal("0.02"), Decimal("99.99")]),
        ("DATE", [dt.date(2024, 1, d) for d in (1, 2, 3)]),
        ("TIMESTAMP", [NOW - dt.timedelta(hours=h) for h in (3, 2, 1)]),
        ("TIMESTAMP_NTZ", [NOW.replace(tzinfo=None) - dt.timedelta(hours=h) for h in (3, 2, 1)]),
    ],
)
def test_every_type_of_order_sorts_finds_late_ones_and_duplicates(kind: str, values: list[Any]) -> None:
    stream = Stream(source(f"ts {kind}, id INT"))
    assert orders(stream.feed((values[1], 2), (values[1], 1))) == [values[1]] * 2
    made = stream.feed((values[2], 1), (values[1], 2), (values[0], 1))
    assert orders(made) == [values[2]]
    assert (len(made.late), len(made.rejects)) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [("STRING", ["", "a", "b"]), ("BOOLEAN", [False, True]), ("BINARY", [b"\x00", b"\xff"]),
     ("DATE", [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]), ("DOUBLE", [-1.0, 0.0]), ("DECIMAL(5, 1)", [Decimal(1)])],
)  # fmt: skip
def test_every_type_of_key_sorts_and_finds_duplicates(kind: str, keys: list[Any]) -> None:
    stream = Stream(source(f"ts LONG, id {kind}"))
    made = stream.feed(*[(1, k) for k in keys[::-1]], (1, keys[0]))
    assert made.rows.column("id").to_pylist() == keys
    assert len(made.rejects) == 1
    assert len(stream.feed(*[(1, k) for k in keys]).rejects) == len(keys)


# --- tuples far ahead ---


def test_a_tuple_beyond_max_ahead_waits_named_in_a_warning_and_moves_no_progress() -> None:
    stream = Stream(source(max_ahead=10))
    made = stream.feed((1, 1), (1000, 1), (5, 1))
    assert (orders(made), made.state.progress, made.state.newest, made.waiting) == ([1, 5], 5, 5, 1)
    assert made.warnings == [
        "stream 's': 1 tuple far ahead, the first with ts=1000, wait in pending; engine.advance('s', ...) admits them"
    ]
    assert orders(stream.feed((6, 1))) == [6]
    made = stream.feed((600, 1), advance=500)
    assert (orders(made), made.waiting) == ([], 2)
    made = stream.feed(advance=995)
    assert (orders(made), made.warnings) == ([600, 1000], [])


def test_steps_of_max_ahead_each_lead_as_far_as_they_like() -> None:
    assert orders(Stream(source(max_ahead=10)).feed(*[(10 * i, 1) for i in range(50)])) == list(range(0, 500, 10))


def test_an_advance_admits_what_waits_up_to_it_and_makes_the_rest_late() -> None:
    stream = Stream(source(lateness=100))
    stream.feed((1, 1), (7, 1), (9, 1))
    made = stream.feed(advance=8)
    assert (orders(made), made.waiting, made.state.progress) == ([1, 7], 1, 8)
    assert len(stream.feed((7, 2)).late) == 1


def test_an_advance_backwards_changes_nothing() -> None:
    stream = Stream(source())
    stream.feed((5, 1))
    assert stream.feed(advance=2).state.progress == 5
    assert orders(stream.feed((5, 2))) == [5]


def test_the_end_admits_all_that_waits_also_what_is_far_ahead() -> None:
    stream = Stream(source(lateness=3, max_ahead=10))
    stream.feed((1, 1), (900, 1), (4, 1))
    made = stream.feed(advance=axis_end(pa.int64()))
    assert (orders(made), made.waiting, made.warnings) == ([4, 900], 0, [])


def test_without_max_ahead_one_absurd_number_does_not_make_the_others_late() -> None:
    stream = Stream(source())
    stream.feed(*[(i, 1) for i in range(100)])
    assert orders(stream.feed((10**15, 1), (101, 1))) == [101]
    assert orders(stream.feed((102, 1), (500, 1))) == [102, 500]


def test_without_max_ahead_a_time_days_beyond_the_clock_waits_one_of_the_past_does_not() -> None:
    stream = Stream(source("ts TIMESTAMP, id INT"))
    old, future = NOW - dt.timedelta(days=900), NOW + dt.timedelta(days=3)
    assert orders(stream.feed((old, 1), (NOW, 1), (future, 1))) == [old, NOW]
    assert orders(stream.feed((NOW + dt.timedelta(hours=1), 1))) == [NOW + dt.timedelta(hours=1)]


# --- numbers ---


def test_streams_of_one_type_are_merged_by_order_then_declaration() -> None:
    first, second = np.array([1, 3, 3, 7]), np.array([3, 4])
    stamps = stamp_streams([(pa.int64(), Runs.of(first)), (pa.int64(), Runs.of(second))], 10)
    assert [s.array().tolist() for s in stamps] == [[11, 12, 13, 16], [14, 15]]


def test_streams_of_two_types_come_one_after_the_other() -> None:
    stamps = stamp_streams([(pa.int64(), Runs.of(np.array([5, 6]))), (pa.float64(), Runs.of(np.array([1.0])))], 0)
    assert [s.array().tolist() for s in stamps] == [[1, 2], [3]]


@given(st.lists(st.lists(st.integers(0, 6)), min_size=1, max_size=4), st.integers(0, 9))
def test_stamps_are_a_merge(streams: list[list[int]], last: int) -> None:
    ascending = [sorted(s) for s in streams]
    stamps = stamp_streams([(pa.int64(), Runs.of(np.array(s, np.int64))) for s in ascending], last)
    merged = sorted((order, i, k) for i, s in enumerate(ascending) for k, order in enumerate(s))
    expected = {(i, k): last + 1 + n for n, (_, i, k) in enumerate(merged)}
    assert [[expected[i, k] for k in range(len(s))] for i, s in enumerate(ascending)] == [
        s.array().tolist() for s in stamps
    ]


def test_progress_of_an_epoch_has_a_step_wherever_it_grows() -> None:
    steps = source_steps(4, np.array([7, 8, 9, 11]), np.array([4, 5, 5, 6]), (12, 20))
    assert (steps.start, steps.stamp.tolist(), steps.value.tolist()) == (4, [8, 11, 12], [5, 6, 20])


# --- the rules again, in plain Python ---


@dataclass
class Rules:
    """Admission over lists of dicts, as the contract says it."""

    key: tuple[str, ...]
    lateness: float = 0
    key_span: float | None = None
    max_ahead: float | None = None
    admitted: list[dict[str, Any]] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    progress: float = -math.inf
    newest: float = -math.inf

    def feed(self, batch: list[dict[str, Any]], advance: float | None) -> tuple[list[Any], list[Any], list[Any]]:
        """What is admitted, late and rejected."""
        whole = [r for r in batch if all(r[c] is not None and r[c] == r[c] for c in ("ts", *self.key))]
        rejected = [r for r in batch if r not in whole]
        late = [r for r in whole if r["ts"] < self.progress]
        fresh = [r for r in whole if r["ts"] >= self.progress]
        kept: list[dict[str, Any]] = []
        aged = [*((0, r) for r in self.pending), *((1, r) for r in fresh)]
        for _, row in sorted(aged, key=lambda p: (p[1]["ts"], self._key(p[1]), p[0], _rank(p[1]["x"]))):
            repeats = [r for r in (*self.admitted, *kept) if self._key(r) == self._key(row)]
            if any(abs(row["ts"] - r["ts"]) <= (self.key_span or 0) for r in repeats):
                rejected.append(row)
            else:
                kept.append(row)
        start = max([self.progress, *([] if advance is None else [advance])])
        near = []
        for row in kept:
            start = row["ts"] if start == -math.inf else start
            if self.max_ahead is not None and row["ts"] - start > self.max_ahead:
                break
            near.append(row)
            start = max(start, row["ts"])
        seen = [] if advance is None else [advance]
        self.newest = max([self.newest, *seen, *(r["ts"] for r in near)])
        bound = max([self.newest - self.lateness, *seen])
        out = [r for r in near if r["ts"] <= bound]
        self.pending = [r for r in kept if r not in out]
        self.admitted += out
        self.progress = max([self.progress, *seen, *(r["ts"] for r in out)])
        return out, late, rejected

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[c] for c in self.key)


def _rank(value: float | None) -> tuple[int, float]:
    return (0, 0) if value is None else (2, 0) if value != value else (1, value)


rows = st.builds(
    lambda ts, id, x: {"ts": ts, "id": id, "x": x},
    st.sampled_from([None, *range(8), *range(4, 14), 30]),
    st.sampled_from([None, 1, 1, 2, 2, 3]),
    st.sampled_from([None, 1.0, 2.0]),
)
lives = st.lists(st.tuples(st.lists(rows, max_size=8), st.none() | st.none() | st.integers(0, 20)), max_size=5)
sources = st.one_of(
    st.fixed_dictionaries({"key": st.just(("ts", "id")), "lateness": st.sampled_from([0, 0, 1, 4]),
                           "max_ahead": st.sampled_from([None, 3, 40])}),
    st.fixed_dictionaries({"key": st.just(("id",)), "key_span": st.integers(0, 3),
                           "lateness": st.sampled_from([0, 2])}),
)  # fmt: skip


@settings(max_examples=200)
@given(options=sources, life=lives, as_doubles=st.booleans())
def test_admission_is_its_rules_in_plain_python(options: dict[str, Any], life: Any, as_doubles: bool) -> None:
    schema = SCHEMA.replace("LONG", "DOUBLE") if as_doubles else SCHEMA
    stream, rules = Stream(source(schema, **{"max_ahead": 10**6, **_given(options)})), Rules(**options)
    for batch, advance in life:
        made = stream.feed(*batch, advance=float(advance) if as_doubles and advance is not None else advance)
        admitted, late, rejected = rules.feed(batch, advance)
        assert made.rows.to_pylist() == admitted
        assert sorted(map(str, _whole(made.late.to_pylist()))) == sorted(map(str, late))
        assert len(made.rejects) == len(rejected)
        assert made.waiting == len(rules.pending)
        assert made.state.seq == len(rules.admitted)


@settings(max_examples=300)
@given(
    life=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8), st.integers(0, 6),
                  st.booleans(), st.none() | st.none() | st.integers(-3, 3)),
        max_size=7,
    ),
    lateness=st.sampled_from([0, 2, 7]),
    far=st.lists(st.sampled_from([25, 10**9]), max_size=2),
    pieces=st.integers(0, 4),
)  # fmt: skip
def test_rows_that_come_in_order_are_admitted_as_if_each_was_looked_at(
    life: list[Any], lateness: int, far: list[int], pieces: int
) -> None:
    """In memory and in pieces, with rows waiting in front, behind and among them."""
    src = source(lateness=lateness, max_ahead=10)
    quick, plain = StreamState(), StreamState()
    at = 0
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for number, (found, step, ordered, moved) in enumerate(life):
            at += step
            rows = [{"ts": at + ts, "id": id, "x": None} for ts, id in found]
            rows += [{"ts": ts, "id": 9, "x": None} for ts in far if number == 1]
            if ordered:
                rows = sorted({(r["ts"], r["id"]): r for r in rows}.values(), key=lambda r: (r["ts"], r["id"]))
            table = pa.Table.from_pylist(rows, src.schema)
            batch = in_pieces(src, table, folder, pieces) if pieces else Batch.of(src, table)
            to = None if moved is None else at + moved
            if needs_recent(quick, batch):
                quick = replace(quick, recent=plain.recent, unread=False)
            made = admit(src, quick, batch, now=NOW, advance=to)
            with patch.context() as only:
                only.setattr("clew.engine.admission._admit_as_it_stands", lambda *_: None)
                expected = admit(src, plain, Batch.of(src, table), now=NOW, advance=to)
            quick, plain = made.state, expected.state
            assert made.rows.to_pylist() == expected.rows.to_pylist()
            assert made.runs.orders().tolist() == expected.runs.orders().tolist()
            assert sorted(map(str, made.late.to_pylist())) == sorted(map(str, expected.late.to_pylist()))
            assert sorted(map(str, made.rejects)) == sorted(map(str, expected.rejects))
            assert (made.waiting, made.warnings) == (expected.waiting, expected.warnings)
            assert facts(quick) == facts(plain)


def in_pieces(src: Source, table: pa.Table, folder: str, count: int) -> Batch:
    form = Form.of(src)
    cuts = [len(table) * i // count for i in range(count + 1)]
    told = [write_pieces(folder, form, table.slice(lo, hi - lo)) for lo, hi in pairwise(cuts)]
    return Scan.of(form, told).batch


def facts(state: StreamState) -> tuple[Any, ...]:
    waiting = state.pending.to_pylist() if state.pending is not None else []
    return state.seq, state.first, state.progress, state.newest, waiting


def test_rows_behind_waiting_ones_stay_in_their_files() -> None:
    """All that came with a waiting row was read and sorted in memory."""
    src = source(lateness=5)
    with tempfile.TemporaryDirectory() as folder:
        state = admit(src, StreamState(), in_pieces(src, table_of(src, range(20)), folder, 2), now=NOW).state
        batch = in_pieces(src, table_of(src, range(17, 60)), folder, 4)
        made = admit(src, state, batch, now=NOW)
        assert made.batch.pieces[1:] == batch.pieces[1:]
        assert orders(made) == list(range(15, 55))
        assert [r.reason for r in made.rejects] == [f"duplicate key (ts={t}, id=1)" for t in (17, 18, 19)]


def test_an_advance_backwards_forgets_no_key() -> None:
    src = source()
    with tempfile.TemporaryDirectory() as folder:
        state = admit(src, StreamState(), in_pieces(src, table_of(src, range(9)), folder, 1), now=NOW).state
        state = admit(src, state, Batch.of(src, src.schema.empty_table()), now=NOW, advance=3).state
        assert needs_recent(state, Batch.of(src, table_of(src, [8])))


def table_of(src: Source, at: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist([{"ts": t, "id": 1, "x": None} for t in at], src.schema)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if v is not None}


def _whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**r, "ts": int(r["ts"])} for r in rows]


@settings(max_examples=150)
@given(options=sources, life=lives, seed=st.integers(0, 99), far=st.booleans())
def test_the_order_of_the_rows_in_a_batch_never_matters(
    options: dict[str, Any], life: Any, seed: int, far: bool
) -> None:
    given_order = Stream(source(**(_given(options) if far else {"max_ahead": 10**6, **_given(options)})))
    mixed_order = Stream(given_order.source)
    chance = random.Random(seed)
    for batch, advance in life:
        expected = given_order.feed(*batch, advance=advance)
        found = mixed_order.feed(*chance.sample(batch, len(batch)), advance=advance)
        assert found.rows.equals(expected.rows)
        assert sorted(map(str, found.late.to_pylist())) == sorted(map(str, expected.late.to_pylist()))
        assert sorted(map(str, found.rejects)) == sorted(map(str, expected.rejects))
        assert found.warnings == expected.warnings
        assert found.state.pending is not None
        assert found.state.pending.equals(expected.state.pending)
