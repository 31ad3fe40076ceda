"""The section of `lineage`: the provenance paper's figure beside each, and the cost of asking for more outputs."""

from __future__ import annotations

from tools.page_parts import Json, Plots, medians, plot, shown, table
from tools.svg_plot import lines

#: what Glavic et al., "Efficient Stream Provenance", §6, give for the same, as they put it
PAPER = {
    "interval_ws100": "1.16 to 1.20",
    "exact_ws100": "1.5 optimized, 1.75 to 2.13 single",
    "exact_ws20000": "about 2.3 optimized; single unstable",
    "exact_ws500000": "about 2.0",
    "exact_nested4": "48.6 s / 5.7 s = 8.5",
    "exact_complex": "2.0, at 2 rows",
    "state_bytes_ws20000": "384 KB",
    "latency_exact": "1.6",
    "lazy_crossover": "10 %",
}
PEER = (("group", "group-by"), ("join", "join"))


def lineage_aims(result: Json, plots: Plots) -> list[str]:
    found = {f["case"]: f for f in result["figures"]}
    rows = [(f"`{case}`", told, shown(found[case]["value"])) for case, told in PAPER.items() if case in found]
    parts = [
        "Beside what the paper reports, of another machine and another system:\n",
        table(("case", "the paper", "clew"), rows),
    ]
    if any(f"overhead_{kind}_peer" in found for kind, _ in PEER):
        parts += _peer(result, found)
    asked: dict[str, list[tuple[float, float]]] = {}
    for row in result["raw"]:
        if "retrieval" in row:
            asked.setdefault(row["retrieval"], []).append((row["share"] * 100, row["total_s"]))
    asked = {mode: medians(points) for mode, points in asked.items()}
    if asked:
        svg = lines("Generation and retrieval by share of outputs asked for", "percent of the outputs", "CPU s", asked,
                    log=True, sub="four nested aggregations of 10, slide 3")  # fmt: skip
        parts.append(plot(plots, "lineage-retrieval", "CPU seconds by share of outputs asked for", svg))
    return [*parts, *_asking(result)]


def _peer(result: Json, found: Json) -> list[str]:
    rows = []
    for kind, word in PEER:
        peer, read = (found.get(f"overhead_{kind}_{name}") for name in ("peer", "peer_read"))
        values = [shown(f["value"]) if f else "" for f in (found[f"overhead_{kind}"], peer, read)]
        rows.append((word, *values))
    name = result["notes"].get("peer", "the peer")
    return [
        f"Beside {name}, a relational engine that captures lineage, on the same TPC-H-like tables; each over its own "
        "plain run. That one keeps what it captures in memory, and makes it ready at the first reading; clew writes "
        "origins with the epoch, and its plain run writes the archive:\n",
        table(("query", "clew, exact over off", "capture over plain", "capture and first reading over plain"), rows),
    ]


def _asking(result: Json) -> list[str]:
    asked = [(row["why_over"], s * 1000) for row in result["raw"] if "why_over" in row for s in row["seconds"]]
    rows = [(f"{size:,}", f"{ms:.1f} ms") for size, ms in medians(asked)]
    return ["`why` of one output, median:\n", table(("input tuples in the archive", "time"), rows)] if rows else []
