"""What an epoch leaves beside the streams: origins, rejected and late tuples, and which table they stand in.

The late tuples of a box stand in tables of its own, one for each input. A table is a box's by its mark: it stays with
a box that is given another name, and a box that means something else has another table, also under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from clew.archive.record import EpochRecord
from clew.archive.state import Folder, State
from clew.archive.store import Store
from clew.engine import stored
from clew.engine.batches import Reject
from clew.engine.evaluate import Pass
from clew.engine.lineage import Modes, log_mark, logged_inputs, traced_steps
from clew.engine.marks import step_mark
from clew.engine.plan import Plan
from clew.model.places import Places
from clew.model.rows import STAMP
from clew.operators.base import Refused

_LATE = "late."


def add(store: Store, record: EpochRecord, name: str, table: pa.Table) -> None:
    """Add rows to one of clew's own tables."""
    if len(table):
        record.folder("tables", name).add.append(store.write_bucket("tables", name, table))


def add_late(store: Store, plan: Plan, record: EpochRecord, box: str, table: pa.Table, port: int = 0) -> None:
    """Add late tuples of a source or a box to the table that is its own."""
    if not len(table):
        return
    mark = plan.prints[box]
    name = late_table(store.state, plan.prints, box, port, table.schema)
    if name is None:
        name = f"{_LATE}{box}" + (f".{port}" if port else "")
        if name in store.state.tables:
            name += f"-{mark[:8]}"
    add(store, record, name, table)
    record.folder("tables", name).meta = {"box": box, "mark": mark, "port": port}


def add_made(
    store: Store,
    plan: Plan,
    modes: Modes,
    record: EpochRecord,
    passes: Sequence[Pass[Any]],
    refused: Mapping[str, list[Reject]] | None = None,
) -> None:
    """Add what the boxes left beside in these passes, and what was `refused` at the sources."""
    number = record.epoch
    _add_index(store, record, [part for made in passes for part in _index(made, plan, modes).items()])
    rejected: dict[str, list[Refused]] = {}
    late: dict[tuple[str, int, pa.Schema], list[pa.Table]] = {}
    for made in passes:
        for box, parts in made.rejected.items():
            rejected.setdefault(box, []).extend(parts)
        for box, parts in made.late.items():
            for part in parts:
                places = Places(part.rows.stamp, part.rows.pos)
                table = stored.late_table(part.rows.table, list(part.reasons), places, number)
                late.setdefault((box, part.port, table.schema), []).append(table)
    add(store, record, "rejected", stored.rejected_table(dict(refused or {}), rejected, number))
    for (box, port, _), tables in late.items():
        add_late(store, plan, record, box, pa.concat_tables(tables), port)


def _add_index(store: Store, record: EpochRecord, index: list[tuple[str, pa.Table]]) -> None:
    """Add to the origin index: few rows to the record, until there are enough of them for a bucket."""
    held = [] if record.lineage.get("flushed") else store.state.lineage.get("rows", [])
    count = sum(len(table) for _, table in index)
    before = sum(len(columns[STAMP]) for _, columns in held)
    if count < stored.FEW and count + before < stored.HELD:
        record.lineage["rows"] = record.lineage.get("rows", []) + stored.index_json(index)
        return
    if held:
        index = stored.index_from_json(held) + index
        record.lineage["flushed"] = True
    for part in stored.origins_parts(index):
        add(store, record, part.name, part.table)
        change = record.folder("tables", part.name)
        change.schema, change.meta = part.schema, part.meta


def _index(made: Pass[Any], plan: Plan, modes: Modes) -> dict[str, pa.Table]:
    traced = traced_steps(plan, modes)
    named = {step_mark(plan, step): rows for step, rows in made.named.items() if step in traced}
    logged = logged_inputs(plan, modes)  # annotations ask about further inputs
    logs = {log_mark(plan, of): known for of, known in made.logs.items() if of in logged}
    return stored.index_parts(named, logs)


def late_table(
    state: State, prints: Mapping[str, str], box: str, port: int = 0, schema: pa.Schema | None = None
) -> str | None:
    """The table of a box's late tuples at an input; None if there is none.

    `prints` are the marks of the network's boxes. A table of a store that knew no marks is the box's by its name, if
    it has the schema.
    """
    found = [n for n, f in _late(state) if (f.meta.get("mark"), f.meta.get("port")) == (prints.get(box), port)]
    for name in found:
        if state.tables[name].meta["box"] == box:
            return name
    for name in found:  # the box had another name then
        if prints.get(state.tables[name].meta["box"]) != prints.get(box):
            return name
    plain = f"{_LATE}{box}" + (f".{port}" if port else "")
    folder = state.tables.get(plain)
    if folder is None or "mark" in folder.meta or not _fits(folder.schema, schema):
        return None
    return plain


def late_tables(state: State, prints: Mapping[str, str], name: str) -> list[str]:
    """All tables with late tuples of a box: its own if the network has it, then those of boxes that had its name."""
    own = [table for port in (0, 1, 2) if name in prints and (table := late_table(state, prints, name, port))]
    taken = set(prints.values())
    had = [n for n, f in _late(state) if late_name(state, {}, n) == name and f.meta.get("mark") not in taken]
    return [*own, *(table for table in had if table not in own)]


def late_tables_of_all(state: State) -> list[str]:
    """All tables with late tuples."""
    return [name for name, _ in _late(state)]


def late_name(state: State, prints: Mapping[str, str], table: str) -> str:
    """Whose late tuples stand in a table: the box as the network calls it, or the name that it had."""
    meta = state.tables[table].meta
    if "mark" not in meta:
        name, _, port = table.removeprefix(_LATE).rpartition(".")
        return name if port in ("1", "2") and name else table.removeprefix(_LATE)
    had = str(meta["box"])
    if prints.get(had) == meta["mark"]:
        return had
    return next((box for box, mark in prints.items() if mark == meta["mark"]), had)


def late_names(state: State) -> list[str]:
    """The boxes, as they were called, that have late tuples in the store."""
    return list(dict.fromkeys(late_name(state, {}, table) for table, _ in _late(state)))


def _late(state: State) -> list[tuple[str, Folder]]:
    return [(name, folder) for name, folder in state.tables.items() if name.startswith(_LATE) and folder.files]


def _fits(known: pa.Schema | None, schema: pa.Schema | None) -> bool:
    return known is None or schema is None or _kinds(known) == _kinds(schema)


def _kinds(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Columns as they are stored: a dictionary is a way to hold one in memory."""
    plain = (f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema)
    return list(zip(schema.names, plain, strict=True))
