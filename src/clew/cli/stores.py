"""`streams`, `show`, `rejected`, `late`, `progress`: a store read without Spark and without its lock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.output import MISSING, Json, Out, count, plain, size

if TYPE_CHECKING:
    from clew.archive.layout import Kind
    from clew.archive.state import Folder
    from clew.archive.store import Store

StoreOption = Annotated[
    Path, typer.Option("--store", envvar="CLEW_STORE", metavar="DIR", help="The store's folder.", show_default=True)
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many rows.")]
LastOption = Annotated[bool, typer.Option("--last", help="The last rows, not the first.")]
STORE = Path("store")


def streams(out: Out, store: StoreOption = STORE) -> None:
    """List the streams of a store, and what there is of each."""
    with opened(store) as found:
        listed = [_stream(found, name) for name in found.state.streams]
        beside = _beside(found)
    network = (found.state.network or {}).get("name")
    modes = found.state.lineage.get("modes", [])
    if out.json:
        facts = {"store": str(store), "network": network, "epoch": found.last_epoch}
        out.document({**facts, "lineage": [{"from_epoch": e, "modes": m} for e, m in modes], "streams": listed})
        return
    what = f"network '{network}', {count(found.last_epoch, 'epoch')}{_lineage(modes)}" if network else "no epoch yet"
    out.say(f"store '{store}': {what}", style="dim")
    columns = ("stream", "kind", "rows", "last seq", "order", "buckets", "bytes", "oldest kept")
    out.table(columns, [_stream_row(stream) for stream in listed])
    if beside:
        out.say(", ".join(sorted(f"{count(rows, 'row')} {what}" for what, rows in beside.items())), style="dim")


def show(
    out: Out,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A source, an output or a kept stream.")],
    store: StoreOption = STORE,
    as_of: Annotated[int | None, typer.Option("--as-of", metavar="N", help="As it was after epoch N.")] = None,
    limit: LimitOption = 20,
    last: LastOption = False,
) -> None:
    """Show tuples of a stream, each with its tid."""
    with opened(store) as found:
        found.state.folder("streams", stream)
        if as_of is not None and not 0 <= as_of <= found.last_epoch:
            raise typer.BadParameter(f"there is no epoch {as_of}; the last is {found.last_epoch}", param_hint="--as-of")
        rows, all_rows = tuples(found, stream, limit, last=last, as_of=as_of)
        epoch = found.last_epoch if as_of is None else as_of
    if out.json:
        out.document({"stream": stream, "epoch": epoch, "all_rows": all_rows, "rows": rows})
    else:
        _print_rows(out, rows, all_rows, last)


def tuples(
    store: Store, stream: str, limit: int, *, last: bool = False, as_of: int | None = None
) -> tuple[list[Json], int]:
    """Some tuples of a stream, each under its tid, and how many there are in all."""
    import pyarrow.compute as pc

    from clew.model.values import python_rows

    seqs = store.read_table(stream, ["_seq"], as_of=as_of).column("_seq")
    wanted = _cut(seqs, limit, last)
    if not len(wanted):
        return [], len(seqs)
    bounds = pc.min_max(wanted).as_py()
    table = store.read_table(stream, ranges={"_seq": (bounds["min"], bounds["max"])}, as_of=as_of)
    return [{"tid": f"{stream}:{row['_seq']}", **_visible(row)} for row in python_rows(table)], len(seqs)


def rejected(
    out: Out,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A stream or a box; all without it.")] = None,
    store: StoreOption = STORE,
    limit: LimitOption = 20,
    last: LastOption = False,
) -> None:
    """Show tuples that could not be admitted, or made a box fail: whole, with the reason."""
    with opened(store) as found:
        rows = _side_rows(found, "rejected")
        _check_name(name, store, [*_boxes(found), *(str(row["name"]) for row in rows)])
    rows = [{"name": r["name"], "epoch": r["_epoch"], "reason": r["reason"], "row": r["row"]} for r in rows
            if name in (None, r["name"])]  # fmt: skip
    _give_rows(out, rows, limit, last, {"rejected": name})


def late(
    out: Out,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A source or a box; all without it.")] = None,
    store: StoreOption = STORE,
    limit: LimitOption = 20,
    last: LastOption = False,
) -> None:
    """Show tuples that came too late for a stream, or for every open window of a box."""
    from clew.engine.asides import late_name, late_names, late_tables, late_tables_of_all

    with opened(store) as found:
        _check_name(name, store, [*_boxes(found), *late_names(found.state)])
        prints = _prints(found)
        tables = late_tables(found.state, prints, name) if name is not None else late_tables_of_all(found.state)
        late = [(late_name(found.state, prints, table), r) for table in tables for r in _side_rows(found, table)]
    if name is not None:
        rows = [{"epoch": r["_epoch"], "reason": r["_reason"], **_visible(r)} for _, r in late]
    else:  # rows of different columns: each as text, as rejected ones are
        rows = [{"name": box, "epoch": r["_epoch"], "reason": r["_reason"], "row": _row_text(_visible(r))}
                for box, r in sorted(late, key=lambda found: found[1]["_epoch"])]  # fmt: skip
    _give_rows(out, rows, limit, last, {"late": name})


def progress(
    out: Out,
    store: StoreOption = STORE,
    epochs: Annotated[int, typer.Option("--epochs", min=1, metavar="N", help="The newest so many epochs.")] = 5,
) -> None:
    """Show what the newest epochs did, and what each box did in them."""
    with opened(store) as found:
        recent = found.state.recent[-epochs:]
        sources = [b["name"] for b in (found.state.network or {}).get("boxes", ()) if b["kind"] == "source"]
    listed = [_epoch(record, sources) for record in recent]
    if out.json:
        out.document({"store": str(store), "epochs": listed})
        return
    if not listed:
        out.say("no epoch yet")
        return
    _print_epochs(out, listed)
    out.text("")
    _print_boxes(out, listed)


def opened(store: Path) -> Store:
    """A store for reading only: no lock, and it may be written to meanwhile."""
    from clew.archive.store import Store

    return Store.open(store, read_only=True)


def _boxes(store: Store) -> list[str]:
    return [box["name"] for box in (store.state.network or {}).get("boxes", ())]


def _check_name(name: str | None, store: Path, known: list[str]) -> None:
    from clew.errors import UnknownStream, nearest

    known = list(dict.fromkeys(known))
    if name not in (None, *known):
        raise UnknownStream(
            f"store '{store}' has no stream or box '{name}'",
            details=[f"streams and boxes: {', '.join(known) or 'none'}"],
            hint=nearest(str(name), known),
        )


def _prints(store: Store) -> dict[str, str]:
    """The marks of the boxes of the store's network."""
    prints: dict[str, str] = (store.state.network or {}).get("prints", {})
    return prints


# --- streams ---


def _beside(store: Store) -> dict[str, int]:
    """How many rows stand beside the streams, by what they are."""
    from clew.engine.asides import late_name

    found: dict[str, int] = {}
    for name, folder in store.state.tables.items():
        kind, _, of = name.partition(".")
        if folder.rows and kind in ("rejected", "late", "pending"):
            of = late_name(store.state, _prints(store), name) if kind == "late" else of
            what = f"{kind} at {of}" if of else kind
            found[what] = found.get(what, 0) + folder.rows
    return found


def _lineage(modes: list[Any]) -> str:
    """The mode in which lineage is noted; of several, since when."""
    if not modes:
        return ""
    since, now = modes[-1]
    boxes = ", ".join(f"{mode} for '{box}'" for box, mode in now.items() if box != "*")
    return f", lineage {now['*']}{f' ({boxes})' if boxes else ''}{f' since epoch {since}' if len(modes) > 1 else ''}"


def _stream(store: Store, name: str) -> Json:
    folder, network = store.state.streams[name], store.state.network or {}
    outputs, kept = network.get("outputs", {}), network.get("kept", {})
    boxes = {box["name"]: box for box in network.get("boxes", ())}
    kind = "output" if name in outputs else "kept" if name in kept else "source"
    box = boxes.get(name) if kind == "source" else boxes.get({**outputs, **kept}[name])
    low, high = _order_range(folder)
    return {
        "name": name,
        "kind": kind,
        "box": box["name"] if box else None,
        "rows": folder.rows,
        "last_seq": folder.seq,
        "order": folder.order,
        "order_from": low,
        "order_to": high,
        "buckets": len(folder.files),
        "bytes": sum(entry.bytes for entry in folder.files.values()),
        "oldest_seq": _oldest_seq(folder),
        "aged_out": folder.gone.rows if folder.gone else 0,
    }


def _order_range(folder: Folder) -> tuple[object, object]:
    from clew.model.axis import from_axis

    if folder.order is None or folder.schema is None:
        return None, None
    bounds = [entry.stats[folder.order] for entry in folder.files.values() if folder.order in entry.stats]
    lows = [low for low, _, _ in bounds if low is not None]
    highs = [high for _, high, _ in bounds if high is not None]
    if not lows:
        return None, None
    kind = folder.schema.field(folder.order).type
    return from_axis(min(lows), kind), from_axis(max(highs), kind)


def _oldest_seq(folder: Folder) -> int | None:
    lows = [entry.stats["_seq"][0] for entry in folder.files.values() if "_seq" in entry.stats]
    return min((int(low) for low in lows if low is not None), default=None)


def _stream_row(stream: Json) -> tuple[object, ...]:
    from clew.cli.output import cell

    low, high = stream["order_from"], stream["order_to"]
    order = f"{stream['order']} {cell(low)} to {cell(high)}" if low is not None else MISSING
    oldest = MISSING if stream["oldest_seq"] is None else stream["oldest_seq"]
    numbers = (stream["rows"], stream["last_seq"], order, stream["buckets"], size(stream["bytes"]), oldest)
    return (stream["name"], stream["kind"], *numbers)


# --- rows ---


def _side_rows(store: Store, name: str) -> list[Json]:
    from clew.model.values import python_rows

    kind: Kind = "tables"
    if name not in store.state.tables or store.state.tables[name].schema is None:
        return []
    return python_rows(store.read_table(name, kind=kind))


def _visible(row: Json) -> Json:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _row_text(row: Json) -> str:
    return json.dumps(plain(row), ensure_ascii=False, allow_nan=False)


def _cut(rows: Any, limit: int, last: bool) -> Any:
    return rows[max(len(rows) - limit, 0) :] if last else rows[:limit]


def _give_rows(out: Out, rows: list[Json], limit: int, last: bool, head: Json) -> None:
    some = _cut(rows, limit, last)
    if out.json:
        out.document({**head, "all_rows": len(rows), "rows": some})
    else:
        _print_rows(out, some, len(rows), last)


def print_table(out: Out, rows: list[Json]) -> None:
    """Rows as a table of all their columns."""
    if rows:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        out.table(columns, [[row.get(name, MISSING) for name in columns] for row in rows])


def _print_rows(out: Out, rows: list[Json], all_rows: int, last: bool) -> None:
    print_table(out, rows)
    if len(rows) < all_rows:
        other = "" if last else "; --last shows the last ones"
        out.say(f"{len(rows):,} of {count(all_rows, 'row')}; --limit N shows more{other}", style="dim")
    elif not rows:
        out.say("no rows", style="dim")


# --- progress ---


def _epoch(record: Json, sources: list[str]) -> Json:
    boxes = {name: seen for name, seen in record["boxes"].items() if name != "*"}
    whole = record["boxes"].get("*", {})
    return {
        "epoch": record["epoch"],
        "at": record["created_at"],
        "id": record["id"],
        "rows_in": sum(boxes[name]["rows_in"] for name in sources if name in boxes),
        "ms": whole.get("ms"),
        "lag_ms": whole.get("lag_ms"),
        "rejected": whole.get("rejected", 0),
        "late": whole.get("late", 0),
        "waiting": sum(seen.get("waiting", 0) for seen in boxes.values()),
        "checkpoint": record["checkpoint"] is not None,
        "boxes": boxes,
    }


def _print_epochs(out: Out, listed: list[Json]) -> None:
    rows = [
        (e["epoch"], e["at"][:19].replace("T", " "), e["rows_in"], round(e["ms"] or 0), e["rejected"], e["late"],
         e["waiting"], "yes" if e["checkpoint"] else MISSING)
        for e in listed
    ]  # fmt: skip
    out.table(("epoch", "at (UTC)", "rows in", "ms", "rejected", "late", "waiting", "checkpoint"), rows)


def _print_boxes(out: Out, listed: list[Json]) -> None:
    """Each box over all epochs shown; its state as of the last."""
    total: dict[str, Json] = {}
    for epoch in listed:
        for name, seen in epoch["boxes"].items():
            sums = total.setdefault(name, {"rows_in": 0, "rows_out": 0, "ms": 0.0, "lanes": []})
            for key in ("rows_in", "rows_out", "ms"):
                sums[key] += seen.get(key, 0)
            sums |= {"state_rows": seen.get("state_rows", 0), "state_bytes": seen.get("state_bytes", 0)}
            sums["lanes"] = list(dict.fromkeys([*sums["lanes"], seen.get("lane", "")]))
    rows = [
        (name, s["rows_in"], s["rows_out"], round(s["ms"]), s["state_rows"] or MISSING,
         size(s["state_bytes"]) if s["state_rows"] else MISSING, ", ".join(s["lanes"]))
        for name, s in total.items()
    ]  # fmt: skip
    out.table(("box", "rows in", "rows out", "ms", "state rows", "state", "lane"), rows)
