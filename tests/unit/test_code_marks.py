"""Marks of user functions: they change when the function does, and with nothing else."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clew
from clew.engine.plan import fingerprints
from clew.errors import NetworkError
from clew.network.code import code_mark

Rows = Any
PRINTS = "from clew.network.code import code_mark\nprint(code_mark(f))\n"


def printed(folder: Path, code: str, *options: str, seed: int = 0) -> str:
    """The mark that a fresh Python finds for the `f` of a file."""
    (folder / "f.py").write_text(code + PRINTS, "utf-8")
    env = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, *options, "f.py"], cwd=folder, env=env, capture_output=True, check=True)
    return ran.stdout.decode().strip()


IN_SET = 'def f(v):\n    return v in {"alpha", "beta", "gamma", "delta"}\n'
WORDS = 'WORDS = {"alpha", "beta", "gamma"}\ndef f(v):\n    return v in WORDS\n'


@pytest.mark.parametrize("code", [IN_SET, WORDS, f"exec({IN_SET!r})\n"], ids=["a set", "a global", "without source"])
def test_a_mark_is_the_same_in_every_process(tmp_path: Path, code: str) -> None:
    assert len({printed(tmp_path, code, seed=seed) for seed in range(4)}) == 1


def test_other_bytecode_for_the_same_source_is_the_same_mark(tmp_path: Path) -> None:
    code = "def f(v):\n    assert v, v\n    return [lambda w: w + v for _ in range(3)]\n"
    assert printed(tmp_path, code) == printed(tmp_path, code, "-O")


def test_a_mark_of_bytecode_names_the_python_that_made_it(tmp_path: Path) -> None:
    version = f"(Python {sys.version_info[0]}.{sys.version_info[1]})"
    assert printed(tmp_path, f"exec({IN_SET!r})\n").endswith(version)
    assert version not in printed(tmp_path, IN_SET)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "def f(v):\n    return v + 1\n",
            "# more\n\ndef f(v: int) -> int:\n    'One more.'\n\n    return (v+1)  # more\n",
        ),
        ("f = lambda v: v + 1\n", "f = (\n    lambda v:\n        v + 1)\n"),
        ("g, f = lambda v: v - 1, lambda v: v + 1\n", "f, g = lambda v: v + 1, lambda v: v - 1\n"),
        ("def f(v):\n    return v\nunused = 1\n", "def f(v):\n    return v\nunused = 2\n"),
    ],
    ids=["comments, annotations, docstrings", "lines", "what stands beside it", "globals that it does not use"],
)
def test_a_mark_stays_with_what_changes_nothing(tmp_path: Path, one: str, other: str) -> None:
    assert printed(tmp_path, one) == printed(tmp_path, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(v):\n    return v + 1\n", "def f(v):\n    return v + 2\n"),
        ("def f(v):\n    return v + 1\n", "def f(v):\n    return v - 1\n"),
        ("def f(v):\n    return [w + 1 for w in v]\n", "def f(v):\n    return [w + 2 for w in v]\n"),
        ("def f(v):\n    return map(lambda w: w + 1, v)\n", "def f(v):\n    return map(lambda w: w + 2, v)\n"),
        ("f, g = lambda v: v + 1, lambda v: v - 1\n", "g, f = lambda v: v + 1, lambda v: v - 1\n"),
        ("LIMIT = 1\ndef f(v):\n    return v > LIMIT\n", "LIMIT = 2\ndef f(v):\n    return v > LIMIT\n"),
        ("g = lambda v: 1\ndef f(v):\n    return g(v)\n", "g = lambda v: 2\ndef f(v):\n    return g(v)\n"),
        ("exec('f = lambda v: v + 1')\n", "exec('f = lambda v: v + 2')\n"),
        ("exec('f = lambda v: [w + 1 for w in v]')\n", "exec('f = lambda v: [w + 2 for w in v]')\n"),
    ],
    ids=[
        "a constant", "an operation", "a comprehension", "a lambda inside", "two on a line",
        "a global", "another function", "without source", "without source, inside",
    ],
)  # fmt: skip
def test_a_mark_changes_with_the_function(tmp_path: Path, one: str, other: str) -> None:
    assert printed(tmp_path, one) != printed(tmp_path, other)


def above(limit: Any) -> Callable[[Rows], Any]:
    return lambda rows: rows > limit


def with_default(limit: Any) -> Callable[[Rows], Any]:
    def call(rows: Rows, limit: Any = limit) -> Any:
        return rows > limit

    return call


def with_keyword(limit: Any) -> Callable[[Rows], Any]:
    def call(rows: Rows, *, limit: Any = limit) -> Any:
        return rows > limit

    return call


def compare(limit: Any, rows: Rows) -> Any:
    return rows > limit


class Above:
    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def __call__(self, rows: Rows) -> Any:
        return rows > self.limit

    def call(self, rows: Rows) -> Any:
        return rows > self.limit


@dataclass(frozen=True)
class Limit:
    at: Any

    def __call__(self, rows: Rows) -> Any:
        return rows > self.at


def wrapped(limit: Any) -> Callable[[Rows], Any]:
    return functools.lru_cache(above(limit))


WAYS: dict[str, Callable[[Any], Callable[[Rows], Any]]] = {
    "a closure": above,
    "a closure in a closure": lambda limit: above(above(limit)),
    "a default": with_default,
    "a keyword default": with_keyword,
    "a partial": lambda limit: functools.partial(compare, limit),
    "a named partial": lambda limit: functools.partial(compare, limit=limit),
    "an object": Above,
    "a dataclass": Limit,
    "a method": lambda limit: Above(limit).call,
    "an object in a closure": lambda limit: above(Limit(limit)),
    "a cached function": lambda limit: wrapped(limit),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (1, 1.0), (1, True), ("1", 1), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), ({"a", "b"}, {"a", "c"})],
)
def test_a_mark_changes_with_the_values_that_a_function_carries(
    way: Callable[[Any], Callable[[Rows], Any]], one: Any, other: Any
) -> None:
    assert code_mark(way(one)) == code_mark(way(one))
    assert code_mark(way(one)) != code_mark(way(other))
    assert "Python" not in code_mark(way(one))


def test_the_order_of_sets_and_of_dicts_does_not_count() -> None:
    assert code_mark(above({"a": 1, "b": 2})) == code_mark(above({"b": 2, "a": 1}))
    assert code_mark(above({1, 2, 33})) == code_mark(above({33, 2, 1}))


def test_what_is_installed_counts_by_its_name() -> None:
    assert code_mark(above(pa.concat_tables)) != code_mark(above(pa.table))
    assert code_mark(above(object())) == code_mark(above(object()))
    assert code_mark(above(clew.Network("a"))) == code_mark(above(clew.Network("b")))


def endless(rows: Rows) -> Any:
    return other_end(rows)


def other_end(rows: Rows) -> Any:
    return endless(rows)


def test_functions_that_call_each_other_have_marks() -> None:
    assert code_mark(endless) == code_mark(endless) != code_mark(other_end)


def applied(call: Callable[..., Any], **options: Any) -> str:
    net = clew.Network("n")
    made = net.stream("s", "t LONG", order="t", key="t").apply(call, "t LONG", **options)
    return fingerprints(net)[made.name]


def aggregated(call: Callable[..., Any], **options: Any) -> str:
    net = clew.Network("n")
    made = net.stream("s", "t LONG", order="t", key="t").window(rows=2).agg(x=clew.function(call, "LONG", **options))
    return fingerprints(net)[made.name]


@pytest.mark.parametrize("printed_as", [applied, aggregated])
def test_a_version_stands_for_the_code(printed_as: Callable[..., str]) -> None:
    assert printed_as(above(1)) != printed_as(above(2))
    assert printed_as(above(1), version=1) == printed_as(above(2), version="1")
    assert len({printed_as(above(1)), printed_as(above(1), version=1), printed_as(above(1), version=2)}) == 3
    for call in (functools.partial(compare, 1), Above(1)):
        assert printed_as(call) == printed_as(call)


def test_a_network_shows_the_mark_or_the_version() -> None:
    net = clew.Network("n")
    s = net.stream("s", "t LONG", order="t", key="t")
    s.apply(Above(1), "t LONG", version=3, name="by_version")
    s.apply(Above(1), "t LONG", name="by_code")
    graph = net.graph("json")
    assert isinstance(graph, dict)
    functions = {box["name"]: box.get("function") for box in graph["boxes"]}
    assert functions["by_version"] == {"function": "Above", "code": "version 3"}
    assert functions["by_code"] == {"function": "Above", "code": code_mark(Above(1))}


@pytest.mark.parametrize("version", ["", True, 1.5])
def test_a_version_is_a_text_or_a_number(version: Any) -> None:
    net = clew.Network("n")
    s = net.stream("s", "t LONG", order="t", key="t")
    with pytest.raises(NetworkError) as raised:
        s.apply(above(1), "t LONG", version=version, name="a")
    assert raised.value.message == f"box 'n.a' (apply) has version={version!r}"
    assert raised.value.hint == "a text or a whole number"
    with pytest.raises(NetworkError) as raised:
        clew.function(above(1), "LONG", version=version)
    assert raised.value.message == f"clew.function has version={version!r}"
