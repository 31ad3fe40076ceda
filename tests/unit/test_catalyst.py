"""Rows on which Spark fails are found by trying parts, with few tries; a Spark that has died is no row's fault."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from clew.engine.catalyst import ROW, Catalyst
from clew.engine.plan import Stateless
from clew.errors import BoxFailed
from clew.model.rows import Rows

SCHEMA = pa.schema([("x", pa.int64())])
FILTER = Stateless("box", "box", ("s",), SCHEMA, SCHEMA, "UTC", condition="x % 2 = 0")
MAP = Stateless("box", "box", ("s",), SCHEMA, SCHEMA, "UTC", columns=(("x", "x + 1"),))


class Fails(Catalyst):
    """In place of Spark: it fails on rows of which `x` is among `bad`, and once it has died on all."""

    def __init__(self, bad: set[int], dies_after: int = 10**9) -> None:
        super().__init__(lambda: None)
        self.bad, self.dies_after, self.tries = bad, dies_after, 0

    def _evaluate(self, step: Stateless, table: pa.Table) -> pa.Table:
        self.tries += 1
        found = table.column("x").to_pylist()
        for x in found:
            if x in self.bad:
                raise ValueError(f"no {x}")
        if self.tries > self.dies_after:
            raise ConnectionError("gone")
        if step.condition is not None:
            return table.filter(pa.array([x % 2 == 0 for x in found], pa.bool_())).select([ROW])
        return table.set_column(0, "x", pa.array([x + 1 for x in found], pa.int64()))


def numbered(count: int) -> Rows:
    index = np.arange(count)
    return Rows(pa.table({"x": index}), index + 1, np.zeros(count, np.int64), index)


@pytest.mark.parametrize("bad", [set(), {0}, {99}, {50, 51}, {3, 17, 18, 60, 98}, set(range(100)), set(range(40, 100))])
@pytest.mark.parametrize("step", [FILTER, MAP], ids=["filter", "map"])
def test_rows_that_fail_are_told_apart_and_the_others_go_on(step: Stateless, bad: set[int]) -> None:
    rows, refused = Fails(bad).run(step, numbered(100))
    good = [x for x in range(100) if x not in bad]
    kept = good if step is MAP else [x for x in good if x % 2 == 0]
    assert (rows.stamp - 1).tolist() == kept
    assert rows.table.column("x").to_pylist() == ([x + 1 for x in kept] if step is MAP else kept)
    found = [(r.rows.table.column("x").to_pylist(), r.reasons) for r in refused]
    assert found == ([(sorted(bad), tuple(f"no {x}" for x in sorted(bad)))] if bad else [])


@pytest.mark.parametrize(("at", "tries"), [(0, 23), (1023, 14), (512, 22)])
def test_one_row_among_a_thousand_takes_a_try_or_two_a_halving(at: int, tries: int) -> None:
    spark = Fails({at})
    spark.run(MAP, numbered(1024))
    assert spark.tries == tries  # among them the whole, and none of the rows before and after


def test_a_spark_that_dies_in_the_search_is_no_rows_fault() -> None:
    with pytest.raises(BoxFailed) as caught:
        Fails({3}, dies_after=6).run(MAP, numbered(64))
    assert str(caught.value) == "box 'box' failed in Spark\n  gone"


def test_a_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("clew.engine.catalyst.TELL_EVERY_S", 0)
    with caplog.at_level(logging.WARNING, "clew"):
        Fails({2}).run(FILTER, numbered(4))
    assert caplog.messages == [
        "box 'box' fails on rows in Spark: 0 found by trying parts, 4 of 4 rows still in doubt",
        "box 'box' fails on rows in Spark: 0 found by trying parts, 2 of 4 rows still in doubt",
    ]
