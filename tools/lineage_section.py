"""The section of `lineage-figures`: each figure of the provenance paper as a plot and a table, its own numbers too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.page_parts import Json, Plots, medians, plot, shown, table
from tools.svg_plot import lines, number

ORDER = ("off", "single", "adaptive", "exact", "interval", "rewrite")


@dataclass(frozen=True)
class Shown:
    """How a figure is drawn: what is varied, what is measured in which unit, and on which axes."""

    title: str
    x: str
    y: str
    field: str
    factor: float = 1.0
    ratio: str = "over_off"
    retrieval: str | None = None  # the ratio with retrieval too
    plus: bool = False  # whether that is drawn, for which lines are left out
    log: bool = False
    log_y: bool = False
    sizes: bool = False  # whether what is held and stored is told


SHOWN = {
    13: Shown("End to end", "rows of the window", "s", "seconds", retrieval="retrieved_over_off", plus=True,
              log_y=True),
    14: Shown("Nested aggregations", "aggregations", "s", "seconds", retrieval="retrieved_over_off", plus=True,
              log_y=True),
    15: Shown("Window size (slide 1, 25 % kept)", "rows of the window", "s", "seconds", log=True, log_y=True,
              sizes=True),
    16: Shown("Window slide (window of 100, 25 % kept)", "slide", "s", "seconds", log=True, sizes=True),
    17: Shown("Selectivity (window of 100, slide 1)", "percent kept", "s", "seconds", sizes=True),
    18: Shown("Latency", "tuples of a batch", "ms", "feed_s", 1000, "feed_over_off", retrieval="answered_over_off"),
    19: Shown("Complex", "rows of the front windows", "s", "seconds", sizes=True),
    20: Shown("Retrieval frequency", "percent of the outputs retrieved", "s", "seconds",
              retrieval="retrieved_over_off", plus=True, log=True, log_y=True),
}  # fmt: skip
ANY = -1.0  # all there are alike
LEFT_OUT = "adaptive"  # there are no more colours; the paper has it from Figure 15 on
ALSO = {"seconds": "retrieval_s", "feed_s": "why_s"}  # what is added to it where lineage is retrieved

Facts = Sequence[Json]
Columns = dict[str, list[tuple[float, float]]]


def lineage_figures(result: Json, plots: Plots) -> list[str]:
    parts = []
    for figure, how in SHOWN.items():
        rows = [row for row in result["raw"] if row["figure"] == figure]
        if rows:
            parts += _figure(figure, how, rows, plots)
    left = result["notes"]["not_run"]
    return [*parts, *_paper(result), f"Not run: {'; '.join(left)}.\n" if left else ""]


def _figure(figure: int, how: Shown, rows: Facts, plots: Plots) -> list[str]:
    made, ratio = _by_mode(rows, how.field), _by_mode(rows, how.ratio)
    drawn, tables = dict(made), [_pivot(how.x, made, ratio, how)]
    if how.retrieval:
        both = [{**r, "_both": r[how.field] + r[ALSO[how.field]]} for r in rows if r.get(ALSO[how.field]) is not None]
        more = _by_mode([r for r in both if r["mode"] != "rewrite"], "_both")
        if how.plus:
            drawn |= {f"{mode}+": points for mode, points in more.items()}
            drawn = {mode: points for mode, points in drawn.items() if not mode.startswith(LEFT_OUT)}
        tables.append(f"With the lineage retrieved{' (drawn as +)' if how.plus else ''}:\n")
        tables.append(_pivot(how.x, more, _by_mode(both, how.retrieval), how))
    if how.sizes:
        tables += _sizes(how.x, rows)
    scaled = {mode: [(x, y * how.factor) for x, y in points] for mode, points in drawn.items()}
    sub = "median" + (", + with retrieval" if how.plus else "")
    svg = lines(f"Figure {figure}: {how.title}", how.x, how.y, scaled, log=how.log, log_y=how.log_y, sub=sub)
    name = f"lineage-fig{figure}"
    return [f"### Figure {figure}: {how.title}\n", plot(plots, name, f"{how.title}, by {how.x} and mode", svg), *tables]


def _by_mode(rows: Facts, field: str) -> Columns:
    """By mode the median at each x, both in order."""
    found: Columns = {}
    for mode in ORDER:
        values = [(row["x"], row[field]) for row in rows if row["mode"] == mode and row.get(field) is not None]
        if values:
            found[mode] = sorted(medians(values))
    return found


def _pivot(x: str, values: Columns, ratios: Columns, how: Shown) -> str:
    """A row for each x: what each mode took, and how many times as much as without lineage."""
    times = {mode: dict(points) for mode, points in ratios.items()}
    cells: dict[float, dict[str, str]] = {}
    for mode, points in values.items():
        for at, value in points:
            more = "" if mode == "off" else f" ({shown(times[mode][at])}×)"
            cells.setdefault(at, {})[mode] = f"{_short(value * how.factor)} {how.y}{more}"
    same = len({tuple(row.items()) for row in cells.values()}) == 1
    return _rows(x, list(values), cells) if not same or len(cells) == 1 else _rows(x, list(values), {ANY: cells[at]})


def _sizes(x: str, rows: Facts) -> list[str]:
    rows = [row for row in rows if row["mode"] != "off"]
    stored, held = _by_mode(rows, "bytes_per_output"), _by_mode(rows, "held_for_lineage")
    cells: dict[float, dict[str, str]] = {}
    for mode in held:
        for (at, per_output), (_, memory) in zip(stored[mode], held[mode], strict=True):
            cells.setdefault(at, {})[mode] = f"{_short(per_output)} B, {_short(memory / 1000)} KB"
    return [
        "Stored for each output, and held in memory between epochs, both beyond what it is without lineage:\n",
        _rows(x, list(held), cells),
    ]


def _rows(x: str, modes: Sequence[str], cells: dict[float, dict[str, str]]) -> str:
    return table(
        (x, *modes),
        [("any" if at == ANY else number(at), *(cells[at].get(m, "") for m in modes)) for at in sorted(cells)],
    )


def _paper(result: Json) -> list[str]:
    """The numbers that the paper gives, beside what was measured in their place."""
    rows = []
    for paper in result["notes"]["paper"]:
        there = (paper["figure"], paper["x"], paper["mode"])
        here = [r for r in result["raw"] if (r["figure"], r["x"], r["mode"]) == there]
        values = [(0, r[paper["field"]]) for r in here if r.get(paper["field"]) is not None]
        ours = shown(medians(values)[0][1]) if values else "not run"
        what = "p-join, ratio" if paper["mode"] == "rewrite" else FIELDS[paper["field"]]
        rows.append((str(paper["figure"]), number(paper["x"]), paper["mode"], what, paper["told"],
                     shown(paper["value"]), ours))  # fmt: skip
    head = ("figure", "at", "mode", "what", "told in the paper", "the paper", "here")
    return ["### The paper's numbers beside these\n", table(head, rows)]


FIELDS = {
    "over_off": "generation, ratio",
    "retrieved_over_off": "with retrieval, ratio",
    "feed_over_off": "latency, ratio",
    "held_for_lineage": "held for it, bytes",
}


def _short(value: float) -> str:
    """
    >>> _short(0.01234), _short(1.25), _short(1234.5)
    ('0.012', '1.25', '1,234')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.2g}"
