"""The p-join: output tuples with the input tuples that they are made of, as a DataFrame.

⋈̸ of Glavic et al., "Efficient Stream Provenance", §4.3: an output tuple is repeated for each tuple of its provenance.
Names of tuples are at hand; the tuples themselves are read from the archive when the frame is, and only those that
its filters leave ("lazy retrieval", §5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from clew.engine.stored import SEQ
from clew.model.rows import POS, STAMP
from clew.model.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from clew.explain.explanation import Explanation

ANSWER, ROW = "_answer", "_input"


@dataclass(frozen=True)
class Header:
    """What the columns of a p-join are called; one whose name the output has already gets `_` behind it."""

    tid: str
    input: str
    of: Mapping[str, tuple[str, ...]]  # of each stream: its tids, then its columns

    @staticmethod
    def of_names(explanation: Explanation, names: Sequence[str]) -> Header:
        taken = {c.lower() for c in explanation.answers.table.column_names}

        def free(name: str) -> str:
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
            return name

        tid, kind = free("tid"), free("input") if len(names) > 1 else "input"
        schemas = {name: explanation.plan.steps[explanation.targets[name]].schema for name in names}
        of = {n: tuple(free(f"{n}_{c}") for c in ("tid", *schema.names)) for n, schema in schemas.items()}
        return Header(tid, kind, of)


def joined(explanation: Explanation, names: list[str]) -> DataFrame:
    """The p-join with the tuples of some streams; of several, rows of all, null in the columns of the others."""
    header = Header.of_names(explanation, names)
    parts = [_joined(explanation, name, header, len(names) > 1) for name in names]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def _joined(explanation: Explanation, name: str, header: Header, several: bool) -> DataFrame:
    from pyspark.sql import functions as f

    outputs, links = _outputs(explanation, header.tid), _links(explanation, name)
    stream, called = explanation.stored_as(name), header.of[name]
    inputs = _remade(explanation, name, called) if stream is None else _archived(explanation, name, stream, called)
    on = [ROW] if stream is None else _place(explanation, stream)
    found = outputs.join(f.broadcast(links), ANSWER).join(inputs, on)
    first = [f.lit(name).alias(header.input)] if several else []
    hidden = {ANSWER, ROW, STAMP, POS}
    columns = [f.col(f"`{c}`") for c in (*outputs.columns, *inputs.columns) if c not in hidden]
    return found.select(*first, *columns)


def _outputs(explanation: Explanation, called: str) -> DataFrame:
    answers = explanation.answers
    count = len(answers)
    tids = pa.array([answers.tid(i) for i in range(count)], pa.string())
    table = answers.table.add_column(0, called, tids).append_column(ANSWER, pa.array(np.arange(count)))
    return _frame(explanation, table)


def _links(explanation: Explanation, name: str) -> DataFrame:
    layer = explanation.layer(name)
    places = layer.places.take(layer.row)
    columns = {ANSWER: layer.owner, ROW: layer.row, STAMP: places.stamp, POS: places.pos}
    stream = explanation.stored_as(name)
    wanted = [ANSWER, *([ROW] if stream is None else _place(explanation, stream))]
    return _frame(explanation, pa.table({c: pa.array(columns[c], pa.int64()) for c in wanted}))


def _archived(explanation: Explanation, name: str, stream: str, called: tuple[str, ...]) -> DataFrame:
    """The tuples of a stored stream that can be among them: of the buckets that reach over their stamps."""
    from pyspark.sql import functions as f

    store, places = explanation.tracer.store, explanation.layer(name).places
    folder = store.state.streams.get(stream)
    if folder is None or folder.schema is None or not len(places):
        return _empty(explanation, name, stream, called)
    low, high = int(places.stamp.min()), int(places.stamp.max())
    entries = [e for e in store.files(stream) if e.overlaps(STAMP, low, high)]
    for entry in entries:
        store.check_there(stream, entry)
    files = [str(store.path_of(stream, entry)) for entry in entries]
    reader = explanation.session().read.schema(spark_schema(folder.schema))
    frame = reader.parquet(*files).where(f.col(STAMP).between(low, high))
    tid = f.concat(f.lit(f"{stream}:"), f.col(SEQ)).alias(called[0])
    names = explanation.plan.steps[explanation.targets[name]].schema.names
    visible = [f.col(f"`{c}`").alias(alias) for c, alias in zip(names, called[1:], strict=True)]
    return frame.select(*_place(explanation, stream), tid, *visible)


def _empty(explanation: Explanation, name: str, stream: str, called: tuple[str, ...]) -> DataFrame:
    schema = explanation.plan.steps[explanation.targets[name]].schema
    fields = [*(pa.field(c, pa.int64()) for c in _place(explanation, stream)), pa.field(called[0], pa.string())]
    fields += [pa.field(alias, c.type) for c, alias in zip(schema, called[1:], strict=True)]
    return explanation.session().createDataFrame([], spark_schema(pa.schema(fields)))


def _remade(explanation: Explanation, name: str, called: tuple[str, ...]) -> DataFrame:
    rows = explanation.inputs(name)
    table = rows.table.rename_columns(list(called[1:]))
    return _frame(explanation, table.append_column(ROW, pa.array(np.arange(len(rows)))))


def _frame(explanation: Explanation, table: pa.Table) -> DataFrame:
    return explanation.session().createDataFrame(table, spark_schema(table.schema))


def _place(explanation: Explanation, stream: str) -> list[str]:
    """The columns that say where a tuple stands: of a source's the stamp alone."""
    return [STAMP] if stream in explanation.plan.sources else [STAMP, POS]
