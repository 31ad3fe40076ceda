"""The Spark lane gives the same bits as the driver's, and tasks may run as often as they like.

First every kind of box alone, its tasks run in this process; then tasks that run twice or fail; then all of it as real
jobs, with workers that die.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.every_box import BOXES, every_box, life, one_box, rows, sources
from tests.spark.lanes import Task, distribute_everything, stray_files, tasks_here

import clew
from clew.engine.catalyst import Catalyst
from clew.engine.lanes.driver import DriverLane
from clew.engine.lanes.slices import SLICE_ROWS
from clew.engine.lanes.spark import SparkLane
from clew.engine.lanes.tasks import tasks_at_once
from clew.errors import BoxFailed
from clew.network.stream import Stream
from clew.testing.laws import act, contents, run, same

ROOT = Path(__file__).parents[2]
ON_ARROW = [name for name in BOXES if not name.endswith("_of_spark")]


@pytest.mark.parametrize("name", ON_ARROW)
def test_a_box_in_tasks_is_the_box_in_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    expected = run(one_box(name), life(), tmp_path / "driver")
    distribute_everything(monkeypatch)
    jobs = tasks_here(monkeypatch)
    same(expected, run(one_box(name), life(), tmp_path / "tasks", lane="spark"), "lanes")
    assert len(jobs) > 4


@pytest.mark.parametrize("partitions", [1, 7])
def test_how_many_partitions_there_are_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    net = every_box(["join_left", "clock_window", "user_function", "resample", "latch"])
    expected = run(net, life(), tmp_path / "driver")
    distribute_everything(monkeypatch)
    tasks_here(monkeypatch)
    monkeypatch.setattr("clew.session.PARTITIONS", partitions)
    same(expected, run(net, life(), tmp_path / "tasks", lane="spark"), f"{partitions} partitions")


TASKS = [(10, 1, 4), (10, 64, 4), (10**6, 1, 4), (10**6, 8, 8), (10**6, 64, 20), (10**8, 64, 64)]


@pytest.mark.parametrize(("rows", "at_once", "tasks"), TASKS)
def test_tasks_are_as_many_as_rows_and_cores_make_worthwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int, tasks: int
) -> None:
    monkeypatch.setattr("clew.engine.lanes.spark.tasks_at_once", lambda _: at_once)
    lane = SparkLane(lambda: None, DriverLane(Catalyst(lambda: None)), tmp_path, None)  # type: ignore[arg-type,return-value]
    assert lane._tasks(rows) == tasks
    assert lane._even(rows) == min(SLICE_ROWS, -(-rows // tasks))


def test_a_session_says_how_many_tasks_it_runs_at_once(spark: SparkSession) -> None:
    assert tasks_at_once(spark) == spark.sparkContext.defaultParallelism == 2


def good(s: Stream) -> Stream:
    """Two boxes that fail on some rows and leave out others, one behind the other."""
    return s.filter("10 / id > 1", name="good").map("ts", "id", "g", ratio="60 / (id - 3)", name="ratio")


BEHIND: dict[str, Callable[[Stream, Stream], Stream]] = {
    "kernel": lambda s, _: s.window(rows=4, by="g", name="box").agg(n="count(*)", r="sum(10 / (id - 5))"),
    "kernel_that_combines": lambda s, _: s.window(span=6, by="g", name="box").agg(n="count(*)", r="sum(10 / (id - 5))"),
    "kernel_without_keys": lambda s, _: s.sort("id", slack=4, name="box"),
    "kernel_of_two_inputs": lambda s, t: s.join(good_too(t), within=2, by="g", suffix="_t", name="box"),
    "kernel_twice": lambda s, _: s.join(s, within=2, by="g", suffix="_t", name="box"),
    "map_of_spark": lambda s, _: s.map("ts", mark="sha2(coalesce(g, ''), 256)", name="box"),
    "output": lambda s, _: s,
}


def good_too(t: Stream) -> Stream:
    return t.filter("10 / id > 2", name="good_too").map("ts", "g", near="60 / (id - 4)", name="near")


def measured(engine: clew.Engine) -> list[tuple[str, int, int]]:
    boxes = engine.progress(1).groupby("box")[["rows_in", "rows_out"]].sum()
    return [(str(box), int(row["rows_in"]), int(row["rows_out"])) for box, row in boxes.iterrows()]


@pytest.mark.parametrize("behind", BEHIND)
def test_rejected_rows_and_counts_are_those_of_their_boxes_in_whichever_lane(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    net = clew.Network("rejected")
    s, t = sources(net, lateness=2)
    BEHIND[behind](good(s), t).output("o")
    spark = request.getfixturevalue("spark") if behind.endswith("_of_spark") else None
    found = {}
    for lane in ("driver", "spark"):
        if lane == "spark":
            distribute_everything(monkeypatch)
            if spark is None:
                tasks_here(monkeypatch)
        counts = []
        with clew.open(tmp_path / lane, net, durable=False, lane=lane, spark=spark) as engine:
            for action in life(3):
                act(engine, action)
                counts.append(measured(engine))
            found[lane] = contents(engine._store), counts
    same(found["driver"][0], found["spark"][0], "lanes")
    assert found["driver"][1] == found["spark"][1]
    named = {row[0] for row in found["driver"][0]["rejected"]}
    assert {"name='good'", "name='ratio'"} <= named


@pytest.mark.parametrize("lane", ["driver", "spark"])
def test_windows_that_fail_are_told_in_the_users_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    distribute_everything(monkeypatch)
    tasks_here(monkeypatch)
    net = clew.Network("words")
    ticks = net.stream("s", "t LONG, g STRING, p LONG, v LONG", order="t", key="t")
    both = ticks.window(rows=2, by="g", name="w").agg(vwap="sum(p * v) / sum(v)", top="sum( p )")
    both.filter("vwap > 0").output("o")
    large = [{"t": t, "g": "a", "p": 2**62, "v": 1} for t in (1, 2)]
    empty = [{"t": t, "g": "b", "p": 1, "v": 0} for t in (3, 4)]
    found = run(net, [{"s": large + empty}], tmp_path / "s", lane=lane)
    row = '{"g": "a", "sum(p * v)": null, "sum(v)": 2, "top": null}'
    assert found["rejected"] == [
        ("name='w'", f"reason={reason!r}", f"row={row!r}", f"_stamp={stamp}")
        for reason, row, stamp in (
            ("DIVIDE_BY_ZERO in 'sum(p * v) / sum(v)'", '{"g": "b", "sum(p * v)": 0, "sum(v)": 0, "top": 2}', 4),
            ("sum( p ) is beyond BIGINT", row, 2),
            ("sum(p * v) is beyond BIGINT", row, 2),
        )
    ]


@pytest.mark.parametrize("lane", ["driver", "spark"])
def test_how_many_rows_a_call_takes_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    net = every_box(ON_ARROW)
    expected = run(net, life(3), tmp_path / "whole")
    distribute_everything(monkeypatch)
    tasks_here(monkeypatch)
    monkeypatch.setattr("clew.operators.base.CALL_ROWS", 7)
    same(expected, run(net, life(3), tmp_path / "parts", lane=lane), "parts")


def test_lanes_may_alternate_from_epoch_to_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = every_box(["join_where", "tuple_window", "landmark", "count_window", "sort"])
    expected = run(net, life(), tmp_path / "driver")
    distribute_everything(monkeypatch)
    tasks_here(monkeypatch)
    lanes = set()
    for number, action in enumerate(life()):
        lane = "driver" if number % 2 else "spark"
        with clew.open(tmp_path / "both", net, durable=False, lane=lane) as engine:
            act(engine, action)
            lanes |= set(engine.progress(1)["lane"])
            found = contents(engine._store)
    assert lanes == {"driver", "spark"}
    same(expected, found, "lanes in turn")


# --- attempts ---


def twice(task: Task, argument: Any) -> Any:
    """A speculative attempt finishes second and wins."""
    task(argument)
    return task(argument)


def first_of_two(task: Task, argument: Any) -> Any:
    """A speculative attempt finishes second and loses."""
    result = task(argument)
    task(argument)
    return result


@pytest.mark.parametrize("attempts", [twice, first_of_two])
def test_speculative_attempts_leave_no_second_rows_and_no_stray_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: Callable[[Task, Any], Any]
) -> None:
    net = every_box(["join_left", "clock_window", "filter_that_fails", "user_function"])
    expected = run(net, life(), tmp_path / "driver")
    distribute_everything(monkeypatch)
    tasks_here(monkeypatch, attempts)
    same(expected, run(net, life(), tmp_path / "tasks", lane="spark"), attempts.__name__)
    with clew.open(tmp_path / "tasks", net, durable=False, grace_s=0, lane="driver") as engine:
        assert stray_files(engine._store) == []
        same(expected, contents(engine._store), "opened again")


def test_a_job_that_fails_costs_its_epoch_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = every_box(["join_left", "clock_window"])
    expected = run(net, life(), tmp_path / "driver")
    distribute_everything(monkeypatch)
    left = [0]

    def breaks(task: Task, argument: Any) -> Any:
        mine = left[0] = left[0] - 1  # a source's tasks run beside those of the boxes
        result = task(argument)
        if mine == 0:
            raise PySparkException("[GONE] The executor is gone. SQLSTATE: XX")
        return result

    tasks_here(monkeypatch, breaks)
    with clew.open(tmp_path / "tasks", net, durable=False, grace_s=0, lane="spark") as engine:
        for number, action in enumerate(life()):
            for nth in (1, 3):
                left[0] = nth
                with pytest.raises(BoxFailed) as failed:
                    act(engine, action)
                assert str(failed.value) == (
                    f"epoch {number + 1} failed in Spark\n  [GONE] The executor is gone.\n"
                    "  hint: nothing of it is kept: feed it again"
                )
                assert engine.last_epoch == number
            left[0] = 0
            act(engine, action)
        same(expected, contents(engine._store), "after jobs that failed")
    with clew.open(tmp_path / "tasks", net, durable=False, grace_s=0, lane="driver") as engine:
        assert stray_files(engine._store) == []


# --- jobs ---


def jobs_of(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_every_kind_of_box_as_real_jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = clew.Network("jobs")
    s, t = sources(net, lateness=2)
    for name in ("map_of_spark", "join_where_left", "clock_window", "user_function"):
        BOXES[name](s, t).output(f"o_{name}")
    actions = [{"s": rows(1, 0, 90), "t": rows(2, 0, 40)}, {"s": rows(3, 20, 90), "t": rows(4, 20, 40)}]
    expected = run(net, actions, tmp_path / "driver", spark=spark)
    distribute_everything(monkeypatch)
    before = jobs_of(spark)
    same(expected, run(net, actions, tmp_path / "jobs", lane="spark", spark=spark), "lanes")
    assert jobs_of(spark) - before > 15


DYING = """
import os, sys
from pathlib import Path
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
import clew
from clew.engine.spark_session import local_session
from clew.testing.laws import run, same, act, contents
from tests.spark.every_box import life, sources
from tests.spark.lanes import distribute_everything, stray_files

place, master = Path(sys.argv[1]), SparkSession.Builder.master
SparkSession.Builder.master = lambda self, _: master(self, "local[2,3]")

def dies(rows):
    task = TaskContext.get()
    if task is not None and task.attemptNumber() == 0:
        with open(place / "deaths", "a") as file:
            file.write("x")
        os._exit(9)
    return len(rows)

def network(call):
    net = clew.Network("dying")
    s, t = sources(net, lateness=2)
    s.window(rows=3, by="g").agg(ts="max(ts)", n=clew.function(call, "INT", columns=["id"])).output("o")
    return net

spark = local_session(cores=2, memory="1g")
assert spark.sparkContext.master == "local[2,3]"
actions = life(2, 40)[:2]
expected = run(network(dies), actions, place / "driver", lane="driver")
distribute_everything(pytest.MonkeyPatch())
with clew.open(place / "jobs", network(dies), spark=spark, lane="spark", durable=False, grace_s=0) as engine:
    for action in actions:
        act(engine, action)
    same(expected, contents(engine._store), "workers that die")
    assert stray_files(engine._store) == [], stray_files(engine._store)
print("deaths", len((place / "deaths").read_text()))
spark.stop()
"""


def test_a_task_whose_worker_dies_is_tried_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    word, count = done.stdout.split()[-2:]
    assert word == "deaths"
    assert int(count) >= 3
