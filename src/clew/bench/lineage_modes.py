"""The modes that the experiments compare: how a store is opened in each, and how the p-join is made there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import clew
from clew.bench.lineage_cost import Opener, opener
from clew.engine.annotations import INPUT, OF, TABLE, VALUE
from clew.engine.stored import SEQ
from clew.model.encodings import Encoding, decode_ranges
from clew.model.tid_sets import gather
from clew.network.network import Network
from clew.session import Engine

OUTPUT = "result"


def p_join(engine: Engine, tuples: Any = None) -> int:
    """Lineage of outputs, of all if none are named, and its p-join (§4.3) as Arrow tables; the rows that it has."""
    found = engine.why(OUTPUT, tuples)
    joined = 0
    for source in engine.network.sources:
        layer, inputs = found.layer(source), found.inputs(source).table
        joined += len(side_by_side(found.answers.table, layer.owner, inputs, layer.row, source))
    return joined


def side_by_side(outputs: pa.Table, owner: np.ndarray, inputs: pa.Table, row: np.ndarray, source: str) -> pa.Table:
    """Each output beside each input that it is made of."""
    left, right = outputs.take(pa.array(owner)), inputs.take(pa.array(row))
    named = right.rename_columns([f"{source}_{column}" for column in right.column_names])
    return pa.Table.from_arrays([*left.columns, *named.columns], [*left.column_names, *named.column_names])


def annotated_join(engine: Engine, tuples: Any = None) -> int:
    """The same from the annotations that the outputs carry."""
    store, outputs, joined = engine.why(OUTPUT, tuples).tracer.store, engine.why(OUTPUT, tuples).answers.table, 0
    for source in engine.network.sources:
        if tuples is None:
            values = store.read_table(TABLE, [VALUE], equals={OF: OUTPUT, INPUT: source}, kind="tables").column(VALUE)
            sets = decode_ranges(values.combine_chunks().cast(pa.large_binary()))
            tids, owner = gather(sets.base, sets.lo, sets.hi), np.repeat(np.arange(len(sets)), sets.hi - sets.lo)
        else:
            named = [(engine.annotation(OUTPUT, one) or {})[source] for one in tuples]
            tids = np.array([int(tid.rpartition(":")[2]) for each in named for tid in each], np.int64)
            owner = np.repeat(np.arange(len(named)), [len(each) for each in named])
        inputs = store.read_table(source, ranges={SEQ: (int(tids.min()), int(tids.max()))})
        row = tids - inputs.column(SEQ)[0].as_py()
        joined += len(side_by_side(outputs, owner, inputs.select(_visible(inputs)), row, source))
    return joined


def _visible(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if not name.startswith("_")]


def held_bytes(engine: Engine) -> int:
    """What the boxes hold in memory between epochs, and the annotations of what they hold."""
    annotator = engine._runtime.annotator
    return int(engine.progress(1)["state_bytes"].sum()) + (annotator.held_bytes if annotator else 0)


def annotating(encoding: Encoding) -> Opener:
    """Opens a store whose output is annotated in an encoding, and the smaller index beside it, as it must have one."""

    def open_(place: Path, network: Network) -> Engine:
        annotate = clew.Annotate(OUTPUT, encoding)
        return clew.open(place, network, lineage="interval", lane="driver", durable=False, annotate=annotate)

    return open_


OPENERS: dict[str, Opener] = {
    **{mode: opener(mode) for mode in ("off", "exact", "interval")},
    "single": annotating("single"),
    "adaptive": annotating("adaptive"),
}
JOINS: dict[str, Callable[..., int]] = {
    "exact": p_join, "interval": p_join, "single": annotated_join, "adaptive": annotated_join,
}  # fmt: skip
