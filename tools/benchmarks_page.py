"""docs/benchmarks.md and its plots, made from the JSON that `clew bench NAME --json docs/benchmarks/NAME.json` writes.

    python -m tools.benchmarks_page      # write them; what is out of date goes

The page shows the benchmarks whose JSON is there.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.lineage_aims import lineage_aims
from tools.lineage_section import lineage_figures
from tools.page_parts import Json, Plots
from tools.page_parts import medians as _medians
from tools.page_parts import plot as _plot
from tools.page_parts import shown as _number
from tools.page_parts import table as _table
from tools.svg_plot import bars, lines, number

DOCS = Path(__file__).resolve().parent.parent / "docs"
ORDER = ("throughput", "windows", "small-epochs", "recovery", "lineage", "lineage-figures")

HEAD = """\
# Benchmarks

What `clew bench` measured on the machine named below. This page and its plots are made from the JSON files in
[benchmarks](benchmarks) by `make figures`; nothing here is written by hand. To measure on your machine:
`clew bench --list` names the benchmarks, `clew bench NAME` runs one, `--quick` within a minute,
`--json FILE` keeps every sample.

A figure is a ratio of two measurements of one run, taken in turn, or a count, so that it says the same on a faster
machine. Its value is the median of its rounds; from low to high is the interval that holds the median in nine of
ten runs. An aim is met only if the unfavourable end of the interval meets it. Where nothing may go wrong even once
(rows lost, rows twice), value and interval are those of all rounds, and the worst one counts.
"""


def page(folder: Path) -> dict[str, str]:
    """The files of the page by their names under `docs`, from the JSON files in `folder`."""
    found = {name: json.loads(path.read_text()) for name in ORDER if (path := folder / f"{name}.json").exists()}
    plots: Plots = {}
    parts = [HEAD, _summary(found.values())]
    for name, result in found.items():
        parts.append(_section(name, result, plots))
    return {"benchmarks.md": "\n".join(parts), **{f"benchmarks/{name}": svg for name, svg in plots.items()}}


def _summary(results: Any) -> str:
    rows = [(f"[{r['bench']}](#{r['bench']})", *_figure(f)) for r in results for f in r["figures"]]
    return _table(("benchmark", "case", "value", "low to high", "unit", "aim", "met"), rows)


def _section(name: str, result: Json, plots: Plots) -> str:
    what = {case["name"]: case["what"] for case in result["cases"]}
    first, _, about = str(result["about"]).strip().partition("\n")
    rows = [(*_figure(f), what[f["case"]]) for f in result["figures"]]
    parts = [f"## {name}\n", f"{first.rstrip('.')}.\n", f"{about.strip()}\n" if about.strip() else "", _where(result),
             _table(("case", "value", "low to high", "unit", "aim", "met", "what it is"), rows)]  # fmt: skip
    missed = [f["case"] for f in result["figures"] if f["met"] is False]
    if missed:
        parts.append(f"Not met: {', '.join(f'`{m}`' for m in missed)}.\n")
    parts += MORE[name](result, plots)
    return "\n".join(part for part in parts if part)


def _where(result: Json) -> str:
    at = result["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in at["packages"].items())
    load = f" Load when it began: {at['load']:.1f}." if "load" in at else ""
    quick = " **A quick run: few rounds and small sizes.**" if result["quick"] else ""
    return (
        f"Measured {result['started_at'][:10]} in {result['seconds']:.0f} s: {at['cores']} cores"
        f"{', ' + at['processor'] if at.get('processor') else ''}, "
        f"{at['memory_bytes'] / 2**30:.0f} GiB, {at['system']} {at['machine']}, Python {at['python']}, "
        f"{packages}.{load}{quick}\n"
    )


def _figure(figure: Json) -> tuple[str, ...]:
    aim = "" if figure["aim"] is None else f"{'≥' if figure['better'] == 'higher' else '≤'} {figure['aim']:g}"
    met = {None: "", True: "yes", False: "no"}[figure["met"]]
    return (f"`{figure['case']}`", _number(figure["value"]), f"{_number(figure['low'])} to {_number(figure['high'])}",
            figure["unit"], aim, met)  # fmt: skip


# --- what each benchmark shows beside its figures ---


def _throughput(result: Json, plots: Plots) -> list[str]:
    small, large = result["notes"]["sizes"]
    labels = {"clew": "clew", "spark": "Spark that keeps its input", "plain": "Spark that keeps nothing"}
    groups: dict[str, dict[str, float]] = {}
    for query in dict.fromkeys(x["query"] for x in result["raw"] if "query" in x):
        rounds = [x["seconds"] for x in result["raw"] if x.get("query") == query]
        for system in rounds[0]:
            grown = statistics.median(s[system][str(large)] - s[system][str(small)] for s in rounds)
            if grown > 0:  # else what it costs is lost in the noise
                groups.setdefault(query, {})[labels.get(system, system)] = (large - small) / grown
    if not groups:
        return []
    sub = f"slope from {number(small)} to {number(large)}, median"
    svg = bars("Throughput through Structured Streaming", "tuples per second", groups, sub=sub)
    return [_plot(plots, "throughput", "Tuples per second by query and system", svg)]


def _windows(result: Json, plots: Plots) -> list[str]:
    costs = [((x["aggregate"], x["size"]), x["us_per_tuple"]) for x in result["raw"] if "aggregate" in x]
    series: dict[str, list[tuple[float, float]]] = {}
    for (aggregate, size), cost in sorted(_medians(costs)):
        series.setdefault(aggregate.replace("_", ", "), []).append((size, cost))
    above = [(x["memory_of"], x["above_empty_bytes"] / 1e6) for x in result["raw"] if "memory_of" in x]
    memory = sorted((size, mb) for size, mb in _medians(above) if isinstance(size, int))
    rows, x = f"{result['notes']['tuples']:,} tuples, median", "rows of the window"
    return [
        _plot(plots, "windows-cost", "Cost of a tuple by size of the window and aggregate",
              lines("What a tuple costs in a sliding window", x, "µs a tuple", series, log=True, sub=rows)),
        _plot(plots, "windows-memory", "Memory by size of the window",
              lines("Memory above an empty worker", x, "MB", {"avg": memory}, log=True, sub=f"peak, {rows}")),
    ]  # fmt: skip


def _small_epochs(result: Json, plots: Plots) -> list[str]:
    names = {"late_over_early": "from an empty store", "late_over_early_full": "the window full from the start"}
    rounds = {label: [x for x in result["raw"] if x["case"] == case] for case, label in names.items()}
    times = {
        label: _medians([(i, ms) for x in found for i, ms in enumerate(x["epoch_ms"], start=1)])
        for label, found in rounds.items()
    }
    files = {
        label: _medians([(int(epoch), count) for x in found for epoch, count in x["files_after"].items()])
        for label, found in rounds.items()
    }
    parts = [
        _plot(plots, "small-epochs-ms", "Milliseconds of each epoch",
              lines("Epochs of 100 tuples", "epoch", "ms", times, marks=False, sub="median of the rounds")),
        _plot(plots, "small-epochs-files", "Files in the store after each epoch",
              lines("Files and log entries in the store", "epoch", "files", files, marks=False)),
    ]  # fmt: skip
    for long in (x for x in result["raw"] if x["case"] == "long"):
        parts += _long(long, result["notes"]["bounded_by"], plots)
    return parts


def _long(long: Json, bounds: Mapping[str, str], plots: Plots) -> list[str]:
    many = f"{long['epochs']:,} epochs"
    count = [(int(epoch), files) for epoch, files in long["files_after"].items()]
    cost = [(int(epoch), ms) for epoch, ms in long["mean_ms"].items()]
    rows = [(kind, str(first), str(second)) for kind, (first, second) in long["most_in_each_half"].items()]
    return [
        f"What bounds the files, over {many}: the second half has no more of any kind than its bound allows.\n",
        _table(("files", "bounded by"), list(bounds.items())),
        _table(("files", "most in the first half", "most in the second half"), rows),
        _plot(plots, "small-epochs-long-files", f"Files over {many}",
              lines(f"Files and log entries over {many}", "epoch", "files", {"files": count}, marks=False)),
        _plot(plots, "small-epochs-long-ms", f"Milliseconds of an epoch over {many}",
              lines(f"An epoch over {many}", "epoch", "ms", {"mean of 100": cost}, marks=False)),
    ]  # fmt: skip


def _recovery(result: Json, plots: Plots) -> list[str]:
    rows, seconds = [], []
    for found in result["raw"]:
        label = "feed " + found["killed"] if found["case"] == "feed" else "run: " + found["killed"]
        taken = found["ready_s"] if found["case"] == "feed" else found["seconds_to_next_epoch"]
        rows.append((label, str(found["last_epoch"]), str(found["lost"]), str(found["twice"]), f"{taken:.2f} s"))
        seconds.append((found["killed"].removeprefix("at "), found["ready_s"]))
    svg = bars(
        "From open to ready after a kill", "s", {where: {"open": s} for where, s in _medians(seconds)},
        sub="where it was killed; median", slanted=True,
    )  # fmt: skip
    columns = ("killed", "last epoch in the store", "rows lost", "rows twice", "ready, or next epoch")
    return [_plot(plots, "recovery", "Seconds from open to ready by where it was killed", svg), _table(columns, rows)]


MORE: dict[str, Callable[[Json, Plots], list[str]]] = {
    "throughput": _throughput, "windows": _windows, "small-epochs": _small_epochs, "recovery": _recovery,
    "lineage": lineage_aims, "lineage-figures": lineage_figures,
}  # fmt: skip


def write(docs: Path) -> list[str]:
    """Write the page; the names of what has changed. Plots that no longer belong to it are deleted."""
    made = page(docs / "benchmarks")
    changed = [name for name, text in made.items() if not (docs / name).exists() or (docs / name).read_text() != text]
    for name in changed:
        (docs / name).write_text(made[name])
    stale = [path for path in (docs / "benchmarks").glob("*.svg") if f"benchmarks/{path.name}" not in made]
    for path in stale:
        path.unlink()
    return [*changed, *(f"benchmarks/{path.name}" for path in stale)]


if __name__ == "__main__":
    print("\n".join(write(DOCS)) or "all up to date", file=sys.stderr)
