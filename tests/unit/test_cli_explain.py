"""`clew why` and `clew impact`: what they answer from a store alone, and how they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_cli import clew, csv, document, outside, rows

import clew as streams_of
from clew.archive.lock import StoreLock
from clew.cli.output import Out
from clew.explain.explanation import Explanation
from clew.explain.impact import ImpactProof
from clew.explain.proof import Checked, Proof

WITH_CODE = """\
import clew


def breadth(rows):
    return max(rows["celsius"].to_pylist()) - min(rows["celsius"].to_pylist())


net = clew.Network("coded")
readings = net.stream("readings", "ts LONG, sensor INT, celsius DOUBLE", order="ts", key=["ts", "sensor"])
wide = readings.window(rows=2, slide=1, name="wide").agg(
    ts="max(ts)", breadth=clew.function(breadth, "DOUBLE", "celsius"), n="count(*)"
)
wide.window(rows=2, slide=2, name="pairs").agg(ts="max(ts)", most="max(breadth)").output("pairs")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that `clew demo` made; for reading only."""
    store = tmp_path_factory.mktemp("explain") / "demo"
    document("demo", "--store", store, "--rows", 24_000)
    return store


@pytest.fixture
def coded(tmp_path: Path) -> tuple[Path, Path]:
    """A network with a user's function, and a store that was fed by it."""
    path, store = network_file(tmp_path), tmp_path / "store"
    data = csv(tmp_path / "a.csv", [(ts, 1, float(ts * ts)) for ts in range(9)])
    document("run", path, "--store", store, "--source", f"readings={data}", "--epochs-rows", 5)
    return path, store


def network_file(folder: Path) -> Path:
    path = folder / "net.py"
    path.write_text(WITH_CODE)
    return path


def test_why_tells_what_an_alarm_is_made_of_without_spark_and_without_the_lock(made: Path) -> None:
    lock = StoreLock(made / "_lock")
    told = clew("why", "alarms", 40, "--store", made)
    found = document("why", "alarms", "alarms:40", "--store", made)
    lock.release()
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("alarms:40  ts 1846, sensors 3\n  epoch 8, completed by readings:")
    assert re.search(r"^ +└─ readings  source  \[\d+ tuples\]$", told.stdout, re.MULTILINE)
    assert told.stderr == ""
    (alarm,) = found["tuples"]
    readings = alarm["inputs"]["readings"]
    assert (alarm["tid"], alarm["epoch"]) == ("alarms:40", 8)
    assert all(1844 <= reading["ts"] <= 1850 for reading in readings)
    assert len({reading["sensor"] for reading in readings}) >= 3


def test_impact_is_the_inverse_of_why(made: Path) -> None:
    (alarm,) = document("why", "alarms", 40, "--store", made)["tuples"]
    tids = [reading["tid"] for reading in alarm["inputs"]["readings"]]
    found = document("impact", "readings", *tids, "--store", made, "--verify")
    assert [t["tid"] for t in found["tuples"]] == tids
    assert all("alarms:40" in t["outputs"]["alarms"] for t in found["tuples"])
    assert found["proof"]["holds"]
    other = document("impact", "readings", 1, "--store", made, "--on", "hot", "--on", "smooth")
    assert other["tuples"][0]["outputs"]["hot"] == []
    assert len(other["tuples"][0]["outputs"]["smooth"]) == 1


def test_impact_tells_which_boxes_still_hold_a_tuple(made: Path) -> None:
    last = document("streams", "--store", made)["streams"]
    seq = next(s["last_seq"] for s in last if s["name"] == "readings")
    assert "smooth" in document("impact", "readings", seq, "--store", made)["open"]
    assert document("impact", "readings", 1, "--store", made)["open"] == {}
    told = clew("impact", "readings", seq, "--store", made)
    assert re.search(r"^can still become part of rows of: smooth \(holds 1\)", told.stdout, re.MULTILINE)


def test_explanations_prove_themselves_and_say_what_would_be_without(made: Path) -> None:
    told = clew("why", "alarms", 3, "--store", made, "--verify", "--counterfactual")
    assert told.exit_code == 0, told.output
    assert "\nholds  alarms:3: reproduced, 1 equal of 1 needed, made again" in told.stdout
    assert re.search(r"\nalarms:3 without the \d+ tuples it is made of: \w+", told.stdout)
    found = document("why", "alarms", 3, "--store", made, "--verify", "--counterfactual")
    assert found["proof"]["holds"]
    assert found["counterfactual"]["tuples"][0]["tid"] == "alarms:3"


def test_a_proof_that_fails_is_told_and_exits_with_1(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Proof((Checked("alarms:3", reproduced=False, equal=0, needed=1, made_again=True),), 10, 0)
    monkeypatch.setattr(Explanation, "verify", lambda _: failing)
    told = clew("why", "alarms", 3, "--store", made, "--verify")
    assert told.exit_code == 1
    assert "FAILS  alarms:3: NOT reproduced" in told.stdout
    as_json = clew("why", "alarms", 3, "--store", made, "--verify", "--json")
    assert as_json.exit_code == 1
    assert not json.loads(as_json.stdout)["proof"]["holds"]
    monkeypatch.setattr("clew.explain.impact.Impact.verify", lambda _: ImpactProof(1, ("alarms:1 is not made of it",)))
    told = clew("impact", "readings", 3, "--store", made, "--verify")
    assert (told.exit_code, told.stdout.splitlines()[-1]) == (1, "alarms:1 is not made of it")


def test_a_condition_chooses_tuples_and_a_limit_cuts_them(made: Path) -> None:
    whole = document("show", "alarms", "--store", made, "--limit", 1000)["rows"]
    high = [row["tid"] for row in whole if row["sensors"] > 3]
    found = document("why", "alarms", "--where", "sensors > 3", "--store", made, "--limit", 2)
    assert [t["tid"] for t in found["tuples"]] == high[:2]
    assert found["all_tuples"] == len(high) > 2
    told = clew("why", "alarms", "--where", "sensors > 3", "--store", made, "--limit", 7)
    assert [line.split()[0] for line in told.stdout.splitlines() if line.startswith("alarms:")] == high[:7]
    assert told.stderr == f"7 of {len(high)} tuples; --limit N shows more\n"
    unlimited = document("impact", "alarms", "--where", "sensors > 3", "--store", made)
    assert len(unlimited["tuples"]) == 5
    assert len(document("why", "alarms", *range(1, 9), "--store", made)["tuples"]) == 8
    assert clew("why", "alarms", "--where", "sensors > 99", "--store", made).exit_code == 0


def test_of_tells_it_in_terms_of_an_inner_box(made: Path) -> None:
    (alarm,) = document("why", "alarms", 40, "--of", "hot", "--store", made)["tuples"]
    assert list(alarm["inputs"]) == ["hot"]
    assert all(row["celsius"] > 90 for row in alarm["inputs"]["hot"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("why", "alarms", 99),
            "UnknownTuple: stream 'alarms' has no tuple alarms:99\n  it has alarms:1 to alarms:42\n",
        ),
        (
            ("impact", "readings", "alarms:3"),
            "UnknownTuple: 'alarms:3' is no tuple of stream 'readings'\n"
            "  hint: a number, a tid like 'readings:3', several of these, or a condition in SQL\n",
        ),
        (
            ("why", "alrms", 3),
            "UnknownStream: network 'overheating' stores no stream 'alrms'\n"
            "  stored streams: readings, alarms\n  hint: did you mean 'alarms'?\n",
        ),
        (
            ("why", "hot", 3),
            "UnknownStream: network 'overheating' stores no stream 'hot'\n  stored streams: readings, alarms\n"
            "  hint: box 'hot' is not stored: give it a .keep() or an .output(...)\n",
        ),
        (
            ("why", "alarms", 3, "--of", "smoth"),
            "UnknownStream: network 'overheating' has no stream or box 'smoth'\n  streams and boxes: "
            "readings, alarms, smooth.filter, smooth, hot.sort, hot, alarms.window\n  hint: did you mean 'smooth'?\n",
        ),
        (
            ("why", "alarms", "--where", "sensor > 3"),
            "UnknownColumn: the question about stream 'alarms' asks for column 'sensor', which its input does not "
            "have\n  columns: ts, sensors\n  hint: did you mean 'sensors'?\n",
        ),
    ],
)
def test_what_is_not_there_is_told_in_one_form(made: Path, arguments: tuple[Any, ...], text: str) -> None:
    result = clew(*arguments, "--store", made)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("why", "alarms"), "give either tuples, by number or tid, or --where SQL"),
        (("impact", "readings", 3, "--where", "ts = 1"), "give either tuples, by number or tid, or --where SQL"),
        (("why", "alarms", 3, "--network", "n"), "it chooses a network of a file: give --network-file FILE"),
        (("why", "alarms", 3, "--network-file", "nowhere.py"), "does not exist"),
    ],
)
def test_wrong_use_exits_with_2(made: Path, arguments: tuple[Any, ...], text: str) -> None:
    result = clew(*arguments, "--store", made)
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_store_without_an_epoch_has_nothing_to_explain(tmp_path: Path) -> None:
    streams_of.open(tmp_path / "s", streams_of.Network("n"), durable=False).close()
    result = clew("why", "alarms", 1, "--store", tmp_path / "s")
    assert result.stderr == (
        f"StoreError: store '{tmp_path / 's'}' has no epoch yet\n  hint: feed it something first\n"
    )  # fmt: skip


# --- users' functions ---


def test_why_needs_no_code_to_tell_which_tuples(coded: tuple[Path, Path]) -> None:
    path, store = coded
    told, whole = (clew("why", "pairs", 2, "--store", store, *more) for more in ((), ("--network-file", path)))
    assert (told.exit_code, whole.exit_code) == (0, 0), told.output + whole.output
    assert "(their values are not stored, and cannot be made again)" in told.stdout
    assert told.stderr == "rows that 'breadth' made are shown with --network-file FILE: a store holds no code\n"
    assert "ts 4, breadth 7, n 2" in whole.stdout
    assert whole.stderr == ""
    alone, given = (
        document("why", "pairs", 2, "--store", store, *more)["tuples"] for more in ((), ("--network-file", path))
    )
    assert alone == given
    assert [row["tid"] for row in alone[0]["inputs"]["readings"]] == ["readings:3", "readings:4", "readings:5"]


@pytest.mark.parametrize("arguments", [("why", "pairs", 2, "--verify"), ("impact", "readings", 8)])
def test_what_needs_a_users_function_says_which_and_the_way_out(
    coded: tuple[Path, Path], arguments: tuple[Any, ...]
) -> None:
    path, store = coded
    alone = clew(*arguments, "--store", store)
    assert (alone.exit_code, alone.stdout, alone.stderr) == (
        1, "", "CodeMissing: function 'breadth' would have to run, and a store does not hold a function's code\n"
        "  hint: say where it is: --network-file FILE on the command line, in Python the network itself\n",
    )  # fmt: skip
    given = clew(*arguments, "--store", store, "--network-file", path, "--network", "coded")
    assert given.exit_code == 0, given.output


def test_a_network_that_is_not_the_stores_is_refused(coded: tuple[Path, Path], tmp_path: Path) -> None:
    path, store = coded
    other = tmp_path / "other.py"
    other.write_text(path.read_text().replace("rows=2, slide=2", "rows=3, slide=2"))
    refused = clew("why", "pairs", 2, "--store", store, "--network-file", other)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"NetworkChanged: stream 'pairs' of store '{store}' was made by another network\n")


# --- lineage modes ---


def test_run_notes_lineage_in_the_modes_asked_for(tmp_path: Path) -> None:
    path, store = network_file(tmp_path), tmp_path / "store"
    data = csv(tmp_path / "a.csv", rows(0, 9))
    source = ("--store", store, "--source", f"readings={data}")
    document("run", path, *source, "--lineage", "off")
    refused = clew("why", "pairs", 1, "--store", store)
    assert refused.exit_code == 1
    assert re.fullmatch(
        r"Untraced: box 'pairs' has no lineage of what it made at stamp \d+\n"
        r"  nothing was noted from stamp 1 to 9\n  its modes: from epoch 1 on: off\n"
        r"  hint: open the store with lineage='exact' or 'interval': what comes then can be explained\n",
        refused.stderr,
    )
    assert clew("streams", "--store", store).stderr == f"store '{store}': network 'coded', 1 epoch, lineage off\n"
    csv(tmp_path / "a.csv", rows(0, 19))
    document("run", path, *source, "--lineage", "exact", "--lineage", "pairs=interval")
    told = document("streams", "--store", store)["lineage"]
    assert told == [
        {"from_epoch": 1, "modes": {"*": "off"}},
        {"from_epoch": 2, "modes": {"*": "exact", "pairs": "interval"}},
    ]
    assert clew("streams", "--store", store).stderr.endswith(
        "lineage exact (interval for 'pairs') since epoch 2\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("modes", "text"),
    [
        (("exat",), "no mode 'exat'; modes: exact, interval, off"),
        (("rewrite",), "no mode 'rewrite'; modes: exact, interval, off"),
        (("wide=",), "no mode ''; modes: exact, interval, off"),
        (("off", "exact"), "a mode for all boxes is given twice"),
        (("wide=off", "wide=exact"), "a mode for box 'wide' is given twice"),
    ],
)
def test_modes_that_are_none_are_wrong_use(tmp_path: Path, modes: tuple[str, ...], text: str) -> None:
    data = csv(tmp_path / "a.csv", rows(0, 1))
    given = [word for mode in modes for word in ("--lineage", mode)]
    result = clew("run", network_file(tmp_path), "--store", tmp_path / "s", "--source", f"readings={data}", *given)
    assert result.exit_code == 2
    assert text in result.stderr
    assert not (tmp_path / "s").exists()


def test_a_replay_tells_how_far_it_is(coded: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    @contextmanager
    def watched(_out: Out, _label: str, total: float) -> Iterator[Callable[[float, str], None]]:
        yield lambda done, _: shares.append(done / total)

    monkeypatch.setattr("clew.engine.replay.WATCHED", 2)
    monkeypatch.setattr(Out, "progress", watched)
    path, store = coded
    assert clew("why", "pairs", 4, "--store", store, "--network-file", path, "--verify").exit_code == 0
    assert (len(shares), shares[-1], shares) == (len({*shares}), 1.0, sorted(shares))
    assert len(shares) > 2


def test_looking_starts_no_spark_and_does_not_import_it(made: Path) -> None:
    code = (
        "import sys\nfrom clew.cli import main\n"
        "try:\n    main()\nfinally:\n    print('pyspark' in sys.modules, 'pandas' in sys.modules, file=sys.stderr)"
    )
    for arguments in (("why", "alarms", "3", "--verify"), ("impact", "readings", "3")):
        ran = outside(*arguments, "--store", made, code=code)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.split()[0] == "False"


def test_of_nothing_that_is_asked_about_nothing_is_told(made: Path) -> None:
    for verb, stream, condition in (("why", "alarms", "sensors > 99"), ("impact", "readings", "ts < 0")):
        found = document(verb, stream, "--where", condition, "--store", made, "--verify")
        assert (found["tuples"], found["proof"]["holds"]) == ([], True)
        assert clew(verb, stream, "--where", condition, "--store", made).exit_code == 0
