"""The command line: what each verb prints, in which form, where, and the code it leaves with."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

import clew as streams_of
from clew.archive import Store
from clew.archive.lock import StoreLock
from clew.cli.app import app
from clew.cli.networks import load_network
from clew.cli.output import Out, cell, failures_told, plain
from clew.engine.batches import as_table
from clew.engine.file_parts import beginning_of, parts_of
from clew.errors import NetworkError, SourceFailed, TooOld
from clew.model.schema import parse_schema

NETWORK = """\
import clew

net = clew.Network("heat")
readings = net.stream("readings", "ts LONG, sensor INT, celsius DOUBLE", order="ts", key=["ts", "sensor"])
hot = readings.filter("celsius > 90").output("hot")
"""

SCHEMA = pa.schema([("ts", pa.int64()), ("sensor", pa.int32()), ("celsius", pa.float64())])


def clew(*arguments: object) -> Result:
    return CliRunner(env={"CLEW_STORE": None, "COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])


def document(*arguments: object) -> Any:
    result = clew(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def outside(*arguments: object, code: str = "from clew.cli import main; main()") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that `clew demo` made; for reading only."""
    store = tmp_path_factory.mktemp("cli") / "demo"
    result = clew("demo", "--store", store, "--rows", 24_000)
    assert result.exit_code == 0, result.output
    return store


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "net.py"
        path.write_text(text)
        return path

    return write


# --- demo, and reading what it made ---


def test_the_demo_shows_alarms_and_says_what_to_try_next(tmp_path: Path) -> None:
    result = clew("demo", "--store", tmp_path / "d", "--rows", 12_000)
    assert result.exit_code == 0, result.output
    assert re.search(r"^alarms:\d+ +\d+ +\d$", result.stdout, re.MULTILINE)
    assert "hot.sort" in result.stdout
    assert "try next" in result.stderr
    assert f"streams --store {tmp_path / 'd'}" in result.stderr


def test_every_step_the_demo_offers_works_on_its_store(tmp_path: Path) -> None:
    steps = document("demo", "--store", tmp_path / "d", "--rows", 12_000)["next"]
    assert len(steps) == 8
    for step in steps:
        words = step.split()
        words = words[next(i for i, word in enumerate(words) if word.endswith(("clew", "clew.cli"))) + 1 :]
        assert clew(*words).exit_code == 0, step


def test_the_demo_is_the_same_every_time(tmp_path: Path, made: Path) -> None:
    document("demo", "--store", tmp_path / "d", "--rows", 24_000)
    first, second = (document("show", "alarms", "--limit", 1000, "--store", s) for s in (made, tmp_path / "d"))
    assert first == second
    assert first["all_rows"] > 5


def test_the_demo_leaves_alone_what_is_there(made: Path, tmp_path: Path) -> None:
    refused = clew("demo", "--store", made)
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"StoreError: store '{made}' is there already\n  hint: --fresh makes it anew; --store DIR, another\n"
    )
    (tmp_path / "letters.txt").write_text("dear")
    assert clew("demo", "--store", tmp_path, "--fresh").exit_code == 1
    assert (tmp_path / "letters.txt").exists()


def test_the_demo_makes_anew_what_a_demo_made_and_no_other_store(file: Callable[[str], Path], tmp_path: Path) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 5))
    document("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}")
    refused = clew("demo", "--store", tmp_path / "s", "--fresh")
    assert (refused.exit_code, refused.stderr) == (
        1, f"StoreError: store '{tmp_path / 's'}' was made by no demo\n  hint: give a new folder: --store DIR\n"
    )  # fmt: skip
    assert document("show", "hot", "--store", tmp_path / "s")["all_rows"] == 5


def test_the_demo_made_anew_waits_for_no_other_engine(tmp_path: Path) -> None:
    document("demo", "--store", tmp_path / "d", "--rows", 1000)
    lock = StoreLock(tmp_path / "d" / "_lock")
    assert clew("demo", "--store", tmp_path / "d", "--fresh").stderr.startswith("StoreInUse: ")
    lock.release()
    assert document("demo", "--store", tmp_path / "d", "--fresh", "--rows", 1000)["epochs"] == 8


def test_streams_says_what_there_is_of_each(made: Path) -> None:
    found = {s["name"]: s for s in document("streams", "--store", made)["streams"]}
    readings, alarms = found["readings"], found["alarms"]
    assert (readings["kind"], alarms["kind"]) == ("source", "output")
    assert readings["rows"] == readings["last_seq"] == 23_992
    assert (readings["order"], readings["order_from"], readings["order_to"]) == ("ts", 0, 1999)
    assert readings["oldest_seq"] == 1
    assert readings["bytes"] > 0 < readings["buckets"]
    text = clew("streams", "--store", made)
    assert re.search(r"^readings +source +23992 +23992 +ts 0 to 1999 ", text.stdout, re.MULTILINE)
    assert "rejected" in text.stderr
    assert "rejected" not in text.stdout


def test_the_store_comes_from_the_environment(made: Path) -> None:
    result = CliRunner(env={"CLEW_STORE": str(made)}).invoke(app, ["streams"])
    assert result.stdout.startswith("stream ")


def test_show_names_tuples_by_tid_from_both_ends(made: Path) -> None:
    whole = document("show", "alarms", "--store", made, "--limit", 1000)
    head = document("show", "alarms", "--store", made, "--limit", 2)
    tail = document("show", "alarms", "--store", made, "--limit", 2, "--last")
    assert head["rows"] == whole["rows"][:2]
    assert tail["rows"] == whole["rows"][-2:]
    assert [r["tid"] for r in whole["rows"]] == [f"alarms:{i + 1}" for i in range(whole["all_rows"])]
    assert list(whole["rows"][0]) == ["tid", "ts", "sensors"]
    assert document("show", "alarms", "--store", made, "--limit", 0)["rows"] == []


def test_show_goes_back_to_an_epoch(made: Path) -> None:
    rows = [document("show", "readings", "--store", made, "--limit", 1, "--as-of", n)["all_rows"] for n in (0, 1, 8)]
    assert rows == [0, 2999, 23_992]
    wrong = clew("show", "alarms", "--store", made, "--as-of", 99)
    assert wrong.exit_code == 2
    assert "there is no epoch 99; the last is 8" in wrong.stderr


def test_rejected_and_late_keep_the_tuple_and_the_reason(made: Path) -> None:
    rejected = document("rejected", "--store", made)
    assert rejected["all_rows"] == 16
    assert {re.sub(r"\d+", "N", r["reason"]) for r in rejected["rows"]} == {
        "null or NaN in key column 'sensor'",
        "duplicate key (ts=N, sensor=N)",
    }
    assert document("rejected", "smooth", "--store", made)["all_rows"] == 0
    late = document("late", "readings", "--store", made, "--limit", 1)
    assert late["all_rows"] == 7
    assert list(late["rows"][0]) == ["epoch", "reason", "ts", "sensor", "celsius"]
    assert clew("late", "reading", "--store", made).stderr.endswith("  hint: did you mean 'readings'?\n")


def test_late_without_a_name_tells_of_every_stream_and_box(tmp_path: Path) -> None:
    net = streams_of.Network("late")
    readings = net.stream("readings", "ts LONG, x DOUBLE", order="ts", key=["ts", "x"])
    readings.map("x", at="10 - ts", name="turned").window(span=1, on="at", name="counted").agg(n="count(*)").output("o")
    with streams_of.open(tmp_path / "store", net, lane="driver", durable=False) as engine:
        engine.feed("readings", [{"ts": 1, "x": 0.5}])
        engine.feed("readings", [{"ts": 3, "x": 0.5}, {"ts": 2, "x": float("nan")}])
        engine.feed("readings", [{"ts": 2, "x": 1.5}])
    whole = document("late", "--store", tmp_path / "store")
    assert (whole["late"], whole["all_rows"]) == (None, len(whole["rows"]))
    named = {name: document("late", name, "--store", tmp_path / "store")["rows"] for name in ("readings", "counted")}
    assert [r["epoch"] for r in whole["rows"]] == sorted(r["epoch"] for r in whole["rows"])
    for name, rows in named.items():
        found = [r for r in whole["rows"] if r["name"] == name]
        assert found == [
            {"name": name, "epoch": r.pop("epoch"), "reason": r.pop("reason"), "row": json.dumps(r)} for r in rows
        ]
        assert found
    text = clew("late", "--store", tmp_path / "store", "--limit", 1)
    assert re.fullmatch(r"name +epoch +reason +row", text.stdout.splitlines()[0])
    assert document("late", "turned", "--store", tmp_path / "store")["all_rows"] == 0


def test_times_that_python_has_no_object_for_are_shown(tmp_path: Path) -> None:
    net = streams_of.Network("far")
    far = net.stream("far", "ts TIMESTAMP, d DATE", order="ts", key="ts", max_ahead="1 day")
    far.filter("d is not null").output("o")
    day = pa.array([10**7, 11_574_074], pa.int32()).cast(pa.date32())
    moment = pa.array([10**18, 10**12], pa.int64()).cast(pa.timestamp("us", "UTC"))
    with streams_of.open(tmp_path / "store", net, lane="driver", durable=False) as engine:
        engine.feed("far", pa.table({"ts": moment.slice(0, 1), "d": day.slice(0, 1)}))
        engine.feed("far", pa.table({"ts": moment.slice(1), "d": day.slice(1)}))
    (row,) = document("show", "far", "--store", tmp_path / "store")["rows"]
    assert row == {"tid": "far:1", "ts": "33658-09-27T01:46:40.000000Z", "d": "29349-01-26"}
    (late,) = document("late", "far", "--store", tmp_path / "store")["rows"]
    assert late["ts"] == "1970-01-12T13:46:40+00:00"
    assert clew("show", "o", "--store", tmp_path / "store").stdout.splitlines()[1].endswith("29349-01-26")
    assert clew("streams", "--store", tmp_path / "store").exit_code == 0


def test_progress_tells_epochs_and_boxes(made: Path) -> None:
    epochs = document("progress", "--store", made, "--epochs", 3)["epochs"]
    assert [e["epoch"] for e in epochs] == [6, 7, 8]
    assert epochs[0]["boxes"]["smooth"]["state_rows"] > 0
    assert epochs[0]["rows_in"] == epochs[0]["boxes"]["readings"]["rows_in"] == 3002
    text = clew("progress", "--store", made).stdout
    assert re.fullmatch(r"epoch +at \(UTC\) +rows in +ms +rejected +late +waiting +checkpoint", text.splitlines()[0])
    assert re.search(r"^alarms.window +\d+", text, re.MULTILINE)


def test_reading_takes_no_lock(made: Path) -> None:
    lock = StoreLock(made / "_lock")
    assert clew("streams", "--store", made).exit_code == 0
    lock.release()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("show", "alrms"),
            "UnknownStream: the store has no stream 'alrms'\n  streams: alarms, readings\n"
            "  hint: did you mean 'alarms'?\n",
        ),
        *(
            (
                (verb, "alrms"),
                "UnknownStream: store '{store}' has no stream or box 'alrms'\n  streams and boxes: "
                "readings, smooth.filter, smooth, hot.sort, hot, alarms.window, alarms\n"
                "  hint: did you mean 'alarms'?\n",
            )
            for verb in ("rejected", "late")
        ),
    ],
)
def test_failures_are_told_in_one_form(made: Path, arguments: tuple[str, ...], text: str) -> None:
    result = clew(*arguments, "--store", made)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", text.format(store=made))


def test_a_folder_that_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    result = clew("streams", "--store", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"NotAStore: '{tmp_path / 'nowhere'}' is not a clew store\n  there is no such")


# --- check and graph ---


def test_check_shows_the_network(file: Callable[[str], Path]) -> None:
    result = clew("check", file(NETWORK))
    assert result.exit_code == 0
    assert re.search(r"^hot +filter +celsius > 90 +readings +output hot$", result.stdout, re.MULTILINE)
    assert result.stderr == "network 'heat' is well built: 2 boxes, all expressions are typed\n"


def test_check_gives_the_network_as_json(file: Callable[[str], Path]) -> None:
    found = document("check", file(NETWORK))
    assert found["ok"]
    assert found["typed_at_open"] == []
    assert [b["name"] for b in found["network"]["boxes"]] == ["readings", "hot"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            'bad = readings.filter("celcius > 3")',
            "UnknownColumn: box 'heat.bad' (filter) filters by column 'celcius', which its input does not have\n"
            "  columns: ts, sensor, celsius\n  hint: did you mean 'celsius'?\n  at {file}:6\n",
        ),
        (
            'bad = readings.filter("celsius + 3")',
            "TypeProblem: box 'heat.bad' (filter) filters by 'celsius + 3', which is DOUBLE, not BOOLEAN\n"
            "  at {file}:6\n",
        ),
        ("x = 1 / 0", "NetworkError: '{file}' cannot be run\n  ZeroDivisionError: division by zero\n  at {file}:6\n"),
        (
            "x = = 1",
            "NetworkError: '{file}' cannot be run\n  SyntaxError: invalid syntax (net.py, line 6)\n  at {file}:6\n",
        ),
    ],
)
def test_check_says_what_is_wrong_and_where(file: Callable[[str], Path], line: str, text: str) -> None:
    path = file(f"{NETWORK}{line}\n")
    result = clew("check", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == text.format(file=path)
    as_json = clew("check", path, "--json")
    assert as_json.exit_code == 1
    error = json.loads(as_json.stdout)["error"]
    assert text.startswith(f"{error['kind']}: ")
    assert error["at"] == f"{path}:6"


def test_a_pyspark_column_without_a_session_is_told_as_that(
    file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    path = file(f"{NETWORK}from pyspark.sql import functions as F\nhot = readings.filter(F.col('celsius') > 2)\n")
    result = clew("check", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"NetworkError: '{path}' makes a pyspark Column before a Spark session is started\n"
        "  hint: write it as text, or start one above it: pyspark.sql.SparkSession.builder.getOrCreate()\n"
        f"  at {path}:7\n"
    )


def test_check_shows_a_traceback_when_asked(file: Callable[[str], Path]) -> None:
    result = clew("check", file("x = 1 / 0"), "-v")
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("net.py:1\n")


def test_check_names_the_boxes_that_spark_will_type(file: Callable[[str], Path]) -> None:
    more = 'r = readings.map("ts", r="soundex(string(celsius))")\nbehind = r.filter("r = 1")\n'
    result = clew("check", file(NETWORK + more))
    assert result.exit_code == 0
    assert result.stderr.endswith("2 boxes are typed by Spark at open: r, behind\n")


def test_a_file_is_read_up_to_where_it_opens_a_store(file: Callable[[str], Path], tmp_path: Path) -> None:
    store = tmp_path / "never"
    path = file(f"{NETWORK}with clew.open({str(store)!r}, net) as engine:\n    engine.feed('readings', undefined)\n")
    assert load_network(path).name == "heat"
    assert not store.exists()


def test_what_a_file_prints_is_no_data(file: Callable[[str], Path]) -> None:
    result = clew("graph", file(f"{NETWORK}print('hello')\n"), "--form", "json")
    assert json.loads(result.stdout)["name"] == "heat"
    assert result.stderr == "hello\n"


def test_one_of_several_networks_is_chosen_by_name(file: Callable[[str], Path]) -> None:
    path = file(f'{NETWORK}other = clew.Network("other")\n')
    assert load_network(path, "other").name == "other"
    wrong = clew("check", path)
    assert wrong.exit_code == 2
    assert "has several networks, say which: heat, other" in wrong.stderr
    with pytest.raises(NetworkError, match="defines no network"):
        load_network(file("x = 1"))


def test_two_networks_of_one_name_are_refused(file: Callable[[str], Path]) -> None:
    path = file(f'{NETWORK}same = net\nlater = clew.Network("other")\nother = clew.Network("heat")\n')
    for name in ((), ("--network", "heat")):
        wrong = clew("check", path, *name)
        assert (wrong.exit_code, wrong.stderr) == (
            1, f"NetworkError: '{path}' has two networks of the name 'heat'\n  hint: give one another name\n"
        )  # fmt: skip
    assert load_network(path, "other").name == "other"


def test_what_lies_beside_a_file_hides_nothing_that_is_installed(
    file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_network.py").write_text("found = 1\n")
    before = [*sys.path]
    load_network(file(f"import beside_the_network\n{NETWORK}"))
    assert sys.path == [*before, str(tmp_path)]


def test_a_drawing_that_cannot_be_written_is_a_failure(file: Callable[[str], Path], tmp_path: Path) -> None:
    to = tmp_path / "nowhere" / "net.svg"
    result = clew("graph", file(NETWORK), "--out", to)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"'{to}' cannot be written: No such file or directory\n"


def test_graph_draws_in_three_forms(file: Callable[[str], Path], tmp_path: Path) -> None:
    path = file(NETWORK)
    assert clew("graph", path).stdout.startswith("flowchart LR\n")
    assert document("graph", path)["name"] == "heat"
    result = clew("graph", path, "--form", "svg", "--out", tmp_path / "net.svg")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert (tmp_path / "net.svg").read_text().startswith("<svg ")


# --- run ---


def rows(first: int, count: int) -> list[tuple[int, int, float]]:
    return [(ts, 1, 90.5 + ts % 2) for ts in range(first, first + count)]


def csv(path: Path, *parts: list[tuple[int, int, float]]) -> Path:
    lines = [",".join(map(str, row)) for part in parts for row in part]
    path.write_text("ts,sensor,celsius\n" + "\n".join(lines) + "\n")
    return path


def test_run_feeds_a_file_once_however_it_is_cut(file: Callable[[str], Path], tmp_path: Path) -> None:
    data, store = csv(tmp_path / "a.csv", rows(0, 25)), tmp_path / "s"
    base = ("run", file(NETWORK), "--store", store, "--source", f"readings={data}")
    first = document(*base, "--epochs-rows", 10)
    assert (first["epochs"], first["admitted"], first["outputs"], first["before"]) == (3, 25, {"hot": 25}, 0)
    again = document(*base, "--epochs-rows", 7)
    assert (again["epochs"], again["admitted"], again["before"]) == (0, 0, 25)
    csv(data, rows(0, 25), rows(25, 5))
    grown = document(*base)
    assert (grown["epochs"], grown["admitted"], grown["rejected"], grown["before"]) == (1, 5, 0, 25)
    assert document("streams", "--store", store)["streams"][0]["order_to"] == 29


def test_a_file_that_has_moved_is_known_by_its_prefix(file: Callable[[str], Path], tmp_path: Path) -> None:
    base = ("run", file(NETWORK), "--store", tmp_path / "s", "--id-prefix", "day 1/")
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        data = csv(tmp_path / folder / "a.csv", rows(0, 5))
        document(*base, "--source", f"readings={data}")
    with Store.open(tmp_path / "s", read_only=True) as store:
        (id,) = store.ids()
    assert re.fullmatch(r'clew run \{"readings":\["day 1/a\.csv",0,5,"[0-9a-f]{16}"\]\}', id)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (rows(7, 25), "does not begin as it did when it was fed"),
        (rows(0, 3), "has fewer records than were fed from it: 3, not 5"),
        ([], "does not begin as it did when it was fed"),
    ],
)
def test_a_file_that_was_replaced_is_refused(
    file: Callable[[str], Path], tmp_path: Path, second: list[tuple[int, int, float]], said: str
) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 5))
    base = ("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}")
    assert document(*base)["admitted"] == 5
    csv(data, second)
    refused = clew(*base)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"SourceFailed: '{data}' {said}\n"
        "  hint: a file may change at its end only; give another one another name, or another --id-prefix\n"
    )
    assert document(*base, "--id-prefix", "second ")["before"] == 0


def test_a_store_that_does_not_say_how_its_files_began_is_gone_on_with(
    file: Callable[[str], Path], tmp_path: Path
) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 7))
    with streams_of.open(tmp_path / "s", load_network(file(NETWORK)), durable=False) as engine:
        engine.feed(
            "readings", [{"ts": 0, "sensor": 1, "celsius": 9.5}] * 5, id=f'clew run {{"readings":["{data}",0,5]}}'
        )
    done = document("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}")
    assert (done["before"], done["admitted"]) == (5, 2)


def test_run_finishes_when_asked(file: Callable[[str], Path], tmp_path: Path) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 5))
    base = ("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}", "--finish")
    text = clew(*base)
    assert text.stdout.split() == ["output", "new", "rows", "hot", "5"]
    assert text.stderr.startswith("5 tuples admitted in 2 epochs, ")
    again = clew(*base)
    assert (again.exit_code, again.stdout.split()) == (0, ["output", "new", "rows", "hot", "0"])
    assert again.stderr.startswith("0 tuples admitted in 0 epochs, ")
    csv(data, rows(0, 6))
    more = clew(*base)
    assert more.exit_code == 1
    assert more.stderr.startswith("Finished: the sources have ended")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("readings", "is not NAME=PATH"),
        ("reading=a.csv", "has no source stream 'reading'; sources: readings"),
        ("readings=nowhere.csv", "there is no 'nowhere.csv'"),
    ],
)
def test_run_refuses_wrong_sources(file: Callable[[str], Path], tmp_path: Path, source: str, said: str) -> None:
    result = clew("run", file(NETWORK), "--store", tmp_path / "s", "--source", source)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("every", ["bananas", "available_now", "-1 seconds", ""])
def test_run_refuses_what_is_no_time(file: Callable[[str], Path], tmp_path: Path, every: str) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 5))
    result = clew("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}", "--every", every)
    assert result.exit_code == 2
    assert f"'{every}' does not say how often to make an epoch, as '5 seconds' does" in result.stderr
    assert not (tmp_path / "s").exists()


def test_a_new_store_is_given_a_time_zone(file: Callable[[str], Path], tmp_path: Path) -> None:
    net = file(
        'import clew\nnet = clew.Network("t")\nnet.stream("s", "at TIMESTAMP", order="at", key="at").output("o")\n'
    )
    (tmp_path / "a.csv").write_text("at\n2024-01-01 10:00:00\n")
    base = ("run", net, "--store", tmp_path / "s", "--source", f"s={tmp_path / 'a.csv'}")
    document(*base, "--time-zone", "Europe/Paris")
    (row,) = document("show", "o", "--store", tmp_path / "s")["rows"]
    assert row["at"].startswith("2024-01-01T09:00:00")
    assert document(*base)["before"] == document(*base, "--time-zone", "Europe/Paris")["before"] == 1
    other = clew(*base, "--time-zone", "UTC")
    assert (other.exit_code, other.stderr.split(":")[0]) == (1, "StoreSettings")
    assert clew("run", net, *base[4:], "--store", tmp_path / "t", "--time-zone", "Nowhere").stderr == (
        "StoreSettings: no time zone 'Nowhere'\n  hint: a name like 'Europe/Paris', or '+02:00'\n"
    )


def test_run_keeps_what_cannot_be_read(file: Callable[[str], Path], tmp_path: Path) -> None:
    lines = ["ts,sensor,celsius", "1,1,95.5", "2,1,warm", "3,1", "", '4,1," 96 "', "5,,97"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text('{"ts": 6, "SENSOR": 1, "celsius": 98, "odd": 1}\nwhat\n[7]\n')
    for name in ("a.csv", "b.jsonl"):
        base = ("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={tmp_path / name}")
        assert document(*base, "--epochs-rows", 2)["before"] == 0
        assert document(*base)["admitted"] == 0
    shown = document("show", "readings", "--store", tmp_path / "s")["rows"]
    assert [(r["ts"], r["celsius"]) for r in shown] == [(1, 95.5), (4, 96.0), (6, 98.0)]
    reasons = [r["reason"] for r in document("rejected", "--store", tmp_path / "s")["rows"]]
    assert sorted(reasons) == [
        "column 'celsius' is DOUBLE, got str 'warm'",
        "malformed row: line 2 is no JSON object",
        "malformed row: line 3 is no JSON object",
        "malformed row: line 4 has 2 fields, not 3",
        "null or NaN in key column 'sensor'",
    ]


def test_a_header_that_lacks_a_column_is_refused_whole(file: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,sensor,celcius\n1,1,1\n")
    result = clew("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={tmp_path / 'a.csv'}")
    assert result.exit_code == 1
    assert result.stderr == (
        f"BatchError: '{tmp_path / 'a.csv'}' lacks column 'celsius'\n  it has: ts, sensor, celcius\n"
        "  the stream has: ts, sensor, celsius\n  hint: did you mean 'celcius'?\n"
    )


def test_a_header_of_another_separator_is_said_to_be_one(file: Callable[[str], Path], tmp_path: Path) -> None:
    data = tmp_path / "a.csv"
    for between, hint in (
        (";", "its fields are parted by ';', not by a comma"),
        ("\t", "its fields are parted by tabs, not by a comma; name it .tsv"),
    ):
        data.write_text(between.join(("ts", "sensor", "celsius")) + "\n")
        result = clew("run", file(NETWORK), "--store", tmp_path / "s", "--source", f"readings={data}")
        assert result.exit_code == 1
        assert result.stderr.endswith(f"  hint: {hint}\n")


# --- files as batches ---


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("skip", [0, 3, 4, 10])
def test_parts_cover_a_file_from_any_position(tmp_path: Path, form: str, skip: int) -> None:
    path, table = written(tmp_path, form)
    parts = list(parts_of(path, SCHEMA, 4, skip))
    found = [row for p in parts for row in (p.rows if isinstance(p.rows, list) else p.rows.cast(SCHEMA).to_pylist())]
    assert found == table.to_pylist()[skip:]
    assert [p.start for p in parts[1:]] == [p.end for p in parts[:-1]]
    assert [p.end - p.start for p in parts] == [len(p.rows) for p in parts]
    assert skip >= 10 or (parts[0].start, parts[-1].end, parts[-1].read) == (skip, 10, 1.0)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_a_file_with_fewer_records_than_were_fed_is_refused(tmp_path: Path, form: str) -> None:
    path, _ = written(tmp_path, form)
    with pytest.raises(SourceFailed) as failed:
        list(parts_of(path, SCHEMA, 4, 11))
    assert failed.value.message == f"'{path}' has fewer records than were fed from it: 10, not 11"


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "jsonl.gz"])
def test_how_a_file_begins_stays_while_it_grows(tmp_path: Path, form: str) -> None:
    begins = [beginning_of(written(tmp_path, form, first, count)[0]) for first, count in ((0, 1), (0, 10), (1, 10))]
    assert begins[0] == begins[1] != begins[2]


def test_how_a_parquet_file_begins_is_known_whatever_its_columns(tmp_path: Path) -> None:
    far = pa.array([10**18], pa.timestamp("us"))
    table = pa.table({
        "dict": pa.array(["x"]).dictionary_encode(), "far": far, "span": pa.array([5], pa.duration("ns")),
        "b": [b"\xff"], "struct": pa.StructArray.from_arrays([far], ["far"]), "time": pa.array([5], pa.time64("ns")),
    })  # fmt: skip
    path, marks = tmp_path / "a.parquet", set()
    for columns in (table.column_names, ["struct"], ["far"]):
        pq.write_table(table.select(columns), path)
        marks.add(beginning_of(path))
    assert len(marks) == 3


def written(folder: Path, form: str, first: int = 0, count: int = 10) -> tuple[Path, pa.Table]:
    path = folder / f"a.{form}"
    table = pa.table(list(zip(*rows(first, count), strict=True)), schema=SCHEMA)
    if form == "parquet":
        pq.write_table(table, path)
    elif form.startswith("jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    else:
        text = csv(path, rows(first, count)).read_text()
        path.write_text(text.replace(",", "\t") if form == "tsv" else text)
    return path, table


def test_decimals_of_json_keep_their_digits(tmp_path: Path) -> None:
    schema = parse_schema("m DECIMAL(20, 10), l ARRAY<DECIMAL(20, 10)>, x DOUBLE, y ARRAY<DOUBLE>")
    path = tmp_path / "a.jsonl"
    digits = "1234567890.0123456789"
    path.write_text(f'{{"m": {digits}, "l": [{digits}, 1e2, null], "x": 0.1, "y": [0.1, 2]}}\n')
    (part,) = parts_of(path, schema, 10)
    made, rejects = as_table(part.rows, schema, "s")
    assert (rejects, made.to_pylist()) == (
        [], [{"m": Decimal(digits), "l": [Decimal(digits), Decimal(100), None], "x": 0.1, "y": [0.1, 2.0]}]
    )  # fmt: skip


def test_a_csv_field_of_a_list_is_json(tmp_path: Path) -> None:
    schema = parse_schema("ts LONG, l ARRAY<DECIMAL(20, 10)>, t ARRAY<STRING>")
    path = tmp_path / "a.csv"
    path.write_text('ts,l,t\n1,"[1234567890.0123456789, 2]","[""a"", null]"\n2,,\n3,1|2,\n4,,"{}"\n5,"[""x""]",\n')
    (part,) = parts_of(path, schema, 10)
    made, rejects = as_table(part.rows, schema, "s")
    assert made.to_pylist() == [
        {"ts": 1, "l": [Decimal("1234567890.0123456789"), Decimal(2)], "t": ["a", None]},
        {"ts": 2, "l": None, "t": None},
    ]
    assert [r.reason for r in rejects] == [
        "column 'l' is ARRAY<DECIMAL(20,10)>, got str '1|2'",
        "column 't' is ARRAY<STRING>, got str '{}'",
        "column 'l' is ARRAY<DECIMAL(20,10)>, got list ['x']",
    ]


def test_csv_fields_become_values_of_the_column(tmp_path: Path) -> None:
    schema = pa.schema([
        ("b", pa.bool_()), ("t", pa.timestamp("us", tz="UTC")), ("n", pa.timestamp("us")), ("d", pa.date32()),
        ("m", pa.decimal128(6, 2)), ("s", pa.string()), ("x", pa.float64()),
    ])  # fmt: skip
    path = tmp_path / "a.csv"
    path.write_text(
        "b,t,n,d,m,s,x\n"
        "True,2024-01-01T10:00:00+01:00,2024-01-01T10:00:00,2024-01-01,1.25,a,NaN\n"
        "0,2024-01-01 10:00:00,2024-01-01 10:00:00,2024-01-02,-3, b ,1e3\n"
        ",,,,,,\n"
    )
    (part,) = parts_of(path, schema, 10)
    rows, rejects = as_table(part.rows, schema, "s", "Europe/Paris")
    assert not rejects
    assert rows.column("t")[0] == rows.column("t")[1]
    assert [cell(v) for v in rows.slice(0, 1).to_pylist()[0].values()] == [
        "true", "2024-01-01T09:00:00+00:00", "2024-01-01T10:00:00", "2024-01-01", "1.25", "a", "NaN",
    ]  # fmt: skip
    assert rows.slice(2, 1).to_pylist()[0] == dict.fromkeys("btndmx") | {"s": ""}
    assert rows.slice(1, 1).column("s").to_pylist() == [" b "]


def test_a_file_that_breaks_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    for read in (beginning_of, lambda path: list(parts_of(path, SCHEMA, 10))):
        with pytest.raises(SourceFailed, match=r"a\.parquet' cannot be read to its end") as failed:
            read(tmp_path / "a.parquet")
        assert failed.value.hint == "put it right under its name, then run again; what was fed before is kept"


# --- the rest ---


def test_every_verb_has_json_and_verbose() -> None:
    verbs = [command.callback.__name__ for command in app.registered_commands if command.callback]
    assert {"demo", "run", "check", "graph", "streams", "show", "rejected", "late", "progress", "doctor"} <= {*verbs}
    for name in verbs:
        text = clew(name, "--help").stdout
        assert "--json" in text, name
        assert "--verbose" in text, name


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped; all that was committed is kept\n"),
        (BrokenPipeError(), 141, ""),
        (TooOld("it has aged out", hint="look later"), 1, "TooOld: it has aged out\n  hint: look later\n"),
        (OSError("no disk\nat all"), 1, "OSError: no disk\n  hint: -v shows the traceback\n"),
    ],
)
def test_a_failure_leaves_its_code_and_one_message(
    error: BaseException, code: int, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.dup2", lambda *_: None)
    with pytest.raises(typer.Exit) as left, failures_told(Out()):
        raise error
    assert left.value.exit_code == code
    assert capfd.readouterr().err == said


def test_json_has_words_for_what_json_has_not() -> None:
    assert plain([float("nan"), float("-inf"), b"\x01", None, (1, True)]) == ["NaN", "-Infinity", "01", None, [1, True]]
    assert cell("two\nlines\x1b[2J") == "two\\nlines\\x1b[2J"


def test_wrong_use_is_told_apart_from_failure() -> None:
    assert [clew(*a).exit_code for a in (("nope",), ("show",), ("graph", "x.py", "--form", "gif"))] == [2, 2, 2]


def test_a_check_needs_neither_spark_nor_pandas_nor_delta(file: Callable[[str], Path]) -> None:
    code = """
import sys
from clew.cli import main
try:
    main()
finally:
    heavy = {"pyspark", "pandas", "deltalake"} & set(sys.modules)
    print("heavy:", *heavy, file=sys.stderr)
"""
    good = outside("check", file(NETWORK), code=code)
    assert (good.returncode, good.stderr.splitlines()[-1]) == (0, "heavy:")
    assert outside("check", file("x = 1"), code=code).returncode == 1
    assert outside("check", "nowhere.py", code=code).returncode == 2


def test_a_reader_that_leaves_early_is_no_failure(made: Path) -> None:
    code = "from clew.cli import main; main()"
    command = [sys.executable, "-c", code, "show", "readings", "--limit", "20000", "--store", str(made)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"tid ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_what_stdout_cannot_take_is_a_failure(made: Path) -> None:
    command = [sys.executable, "-c", "from clew.cli import main; main()", "show", "readings", "--store", str(made)]
    for limit in ("1", "20000"):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*command, "-n", limit], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "stdout cannot be written: No space left on device\n")


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert clew("--version").stdout == f"clew {version('clew')}\n"
