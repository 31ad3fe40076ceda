"""What the benchmarks measure is what they say: windows are full, files are counted, kills kill, losses are seen."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import clew
from clew.archive.faults import STEPS as ALL_STEPS
from clew.bench import recovery, recovery_work, small_epochs, windows
from clew.bench.core import Samples
from clew.bench.windows import Feed, Timed, Worker, timed, window_plan

# --- windows ---


def test_every_size_of_window_is_fed_the_same_and_emits_what_fills_it() -> None:
    calls = list(Feed(3, 2_000))
    found = timed((5, 50), "avg", calls)
    kept = np.concatenate([t.column("value").to_numpy()[t.column("kind").to_numpy() < 25] for _, t in calls])
    assert {size: made.emitted for size, made in found.items()} == {5: len(kept) - 4, 50: len(kept) - 49}
    means = np.convolve(kept, np.ones(50) / 50, "valid")
    assert found[50].total == pytest.approx(means.sum())
    assert all(len(made.seconds) == 3 for made in found.values())
    assert all(s == tuple(sorted(s)) for s in (made.seconds for made in found.values()))


def test_the_first_call_is_left_out_of_the_cost() -> None:
    assert Timed((5.0, 6.0, 7.0), 0, 0.0).per_tuple(1_000) == pytest.approx(2.0 / 2_000)


@pytest.mark.parametrize("aggregate", list(windows.AGGREGATES))
def test_every_aggregate_runs_without_spark(aggregate: str) -> None:
    (first, table) = next(iter(Feed(1, 400)))
    rows = Worker(window_plan(10, aggregate)).call(first, table)
    assert len(rows) > 50


# --- small epochs ---


def test_files_are_counted_by_what_they_are(tmp_path: Path) -> None:
    seconds, files = small_epochs.feed_all(tmp_path / "s", 0, 8)
    assert (len(seconds), sorted(files)) == (8, [4, 8])
    assert files[8] == small_epochs.files_by_kind(tmp_path / "s")
    assert files[8]["buckets of readings"] == 8
    assert files[8]["epoch records"] == 8
    assert files[8].total() == sum(path.is_file() for path in (tmp_path / "s").rglob("*"))


def test_a_filled_window_emits_in_every_epoch(tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", small_epochs.network(), lane="driver") as engine:
        engine.feed("readings", small_epochs.batch(0, small_epochs.WINDOW))
        epoch = engine.feed("readings", small_epochs.batch(small_epochs.WINDOW, small_epochs.ROWS))
    assert epoch.outputs == {"averages": small_epochs.ROWS}


# --- recovery ---


def test_what_is_missing_and_what_is_too_much_are_counted() -> None:
    table = pa.table({"_seq": [1, 2, 3], "x": ["a", "b", None]})
    whole = {"s": table, "t": table}
    assert recovery.differences(whole, {"s": table, "t": table}) == (0, 0)
    assert recovery.differences(whole, {"s": table.slice(1), "t": table}) == (1, 0)
    assert recovery.differences(whole, {"s": pa.concat_tables([table, table.slice(2)]), "t": table}) == (0, 1)
    other = table.set_column(1, "x", pa.array(["a", "c", None]))
    assert recovery.differences(whole, {"s": other, "t": table}) == (1, 1)
    assert recovery.differences(whole, {"s": table}) == (3, 0)
    assert recovery.differences({"s": table}, whole) == (0, 3)


def test_batches_hold_tuples_that_wait_and_none_that_are_late(tmp_path: Path) -> None:
    with clew.open(tmp_path / "s", recovery_work.network(), lane="driver", durable=False) as engine:
        done = [engine.feed("readings", recovery_work.batch(n, 3)) for n in (1, 2, 3)]
    assert all(epoch.waiting > 0 for epoch in done)
    assert sum(epoch.late + epoch.rejected for epoch in done) == 0
    assert sum(sum(e.admitted.values()) for e in done) + done[-1].waiting == 3 * recovery_work.ROWS
    assert done[-1].outputs["high"] > 0
    assert done[-1].outputs["minutes"] > 0


def test_the_steps_that_kill_are_steps_of_a_commit() -> None:
    assert {*recovery.STEPS, *recovery.QUICK_STEPS} <= {*ALL_STEPS}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five epochs, killed in the third."""
    monkeypatch.setattr(recovery, "EPOCHS", 5)
    monkeypatch.setattr(recovery, "KILLED", 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> recovery.Contents:
    store = tmp_path_factory.mktemp("whole") / "s"
    with recovery.started("feed", store, 5, 0) as child:
        child.to_the_end()
    return recovery.contents(store)


@pytest.mark.usefixtures("short")
def test_a_feed_ends_at_a_step_and_goes_on(tmp_path: Path, whole: recovery.Contents) -> None:
    samples = Samples()
    recovery._feed_round(tmp_path / "s", "record-created", random.Random(1), whole, samples, 0)
    assert (samples.cases["lost"], samples.cases["twice"]) == ([0], [0])
    assert samples.raw[0]["killed"] == "at record-created"
    assert samples.raw[0]["last_epoch"] == 3
    assert not (tmp_path / "s").exists()


@pytest.mark.usefixtures("short")
def test_a_step_that_is_not_passed_is_no_kill(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"step 'base-created' is not passed in epoch 3"):
        recovery._struck_at_step(tmp_path / "s", "base-created")


def test_a_child_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "letters.txt").write_text("dear")
    with (
        pytest.raises(AssertionError, match=r"it ended without 'ready .*(StoreError|NotAStore)"),
        recovery.started("feed", tmp_path / "s", 5, 0) as child,
    ):
        child.until("ready")
