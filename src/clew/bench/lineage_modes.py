"""The modes that the experiments compare: how a store is opened in each, and how the p-join is made there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from clew.bench.lineage_cost import Opener, opener
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


def held_bytes(engine: Engine) -> int:
    """What the boxes hold in memory between epochs."""
    return int(engine.progress(1)["state_bytes"].sum())


OPENERS: dict[str, Opener] = {mode: opener(mode) for mode in ("off", "exact", "interval")}
JOINS: dict[str, Callable[..., int]] = {"exact": p_join, "interval": p_join}
