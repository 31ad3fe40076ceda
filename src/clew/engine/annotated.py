"""Annotated streams read: as a Spark DataFrame that decodes when it is read, or one annotation alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clew.archive.store import Store
from clew.engine.annotations import INPUT, OF, TABLE, VALUE, inputs_of, one
from clew.engine.annotator import places_of_tids
from clew.engine.marks import step_mark
from clew.engine.plan import Plan
from clew.engine.stored import SEQ
from clew.errors import Untraced
from clew.model.encoded import CHAIN, DELTA
from clew.model.encodings import decode_ranges
from clew.model.ranges import running
from clew.model.rows import Ints
from clew.model.schema import spark_schema
from clew.model.tid_sets import blocks, gather

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECODED_ROWS = 4096  # at once, or a few more until a value that stands by itself


def annotated_frame(spark: SparkSession, store: Store, plan: Plan, stream: str, keys: Mapping[str, str]) -> DataFrame:
    """The tuples of an output in order, with their tids and annotations; `keys` of the streams in I in the table."""
    from pyspark.sql import functions as f

    if not keys:
        raise Untraced(
            f"output '{stream}' was never annotated",
            hint=f"clew.open(..., annotate='{stream}'): what comes then is",
        )
    folder = store.state.streams.get(stream)
    if folder is None or folder.schema is None or not folder.files:
        return _empty(spark, plan, stream, keys)
    names = [name for name in folder.schema.names if not name.startswith("_")]
    entries = store.files(stream)
    for entry in entries:
        store.check_there(stream, entry)
    files = [str(store.path_of(stream, entry)) for entry in entries]
    rows = spark.read.schema(spark_schema(folder.schema)).parquet(*files)
    sets = [_decoded(spark, store, stream, name, key, _shown_as(plan, key)) for name, key in keys.items()]
    joined = reduce(lambda left, right: left.join(right, SEQ, "left"), sets, rows)
    tid = f.concat(f.lit(f"{stream}:"), f.col(SEQ)).alias("tid")
    provenance = f.struct(*(f.col(f"`_of_{name}`").alias(name) for name in keys)).alias("provenance")
    return joined.orderBy(SEQ).select(tid, *(f.col(f"`{c}`") for c in names), provenance)


def _empty(spark: SparkSession, plan: Plan, stream: str, keys: Mapping[str, str]) -> DataFrame:
    visible = spark_schema(plan.steps[plan.stored[stream]].schema)
    sets = ", ".join(f"`{name}`: {_kind(_shown_as(plan, key))}" for name, key in keys.items())
    return spark.createDataFrame([], f"tid string, {visible}, provenance struct<{sets}>")


def _kind(box: str | None) -> str:
    return "array<bigint>" if box is None else "array<string>"


def _shown_as(plan: Plan, key: str) -> str | None:
    """The box whose rows' places a key's tids are; None of a stored stream, whose seqs they are."""
    if key in plan.stored:
        return None
    return next((step.box for name, step in plan.steps.items() if step_mark(plan, name) == key), key)


def _decoded(spark: SparkSession, store: Store, stream: str, name: str, key: str, box: str | None) -> DataFrame:
    entries = store.files(TABLE, kind="tables")
    for entry in entries:
        store.check_there(TABLE, entry, kind="tables")
    paths = [(str(store.path_of(TABLE, entry, kind="tables")),) for entry in entries]
    files = spark.createDataFrame(paths, "path string").repartition(max(1, len(paths)))
    column = f"_of_{name}"
    read = partial(_read_files, wanted={OF: stream, INPUT: key}, column=column, box=box)
    return files.mapInArrow(read, f"{SEQ} bigint, `{column}` {_kind(box)}")


def _read_files(
    batches: Iterator[pa.RecordBatch], wanted: Mapping[str, str], column: str, box: str | None
) -> Iterator[pa.RecordBatch]:
    """The annotations in the buckets of these paths; values follow each other in a bucket as they were encoded."""
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from _read_file(path, wanted, column, box)


def _read_file(path: str, wanted: Mapping[str, str], column: str, box: str | None) -> Iterator[pa.RecordBatch]:
    filters = [(name, "=", text) for name, text in wanted.items()]
    table = pq.read_table(path, columns=[SEQ, VALUE], filters=filters)
    start = 0
    while start < len(table):
        stop = _until_whole(table, start + DECODED_ROWS)
        part = table.slice(start, stop - start).combine_chunks()
        sets = decode_ranges(part.column(VALUE).combine_chunks().cast(pa.large_binary()))
        sizes = sets.hi - sets.lo
        for block in blocks(sizes):
            tids = gather(sets.base, sets.lo[block], sets.hi[block])
            lists = pa.ListArray.from_arrays(pa.array(running(sizes[block]).astype(np.int32)), _named(tids, box))
            yield pa.RecordBatch.from_arrays(
                [part.column(SEQ).combine_chunks().slice(block.start, block.stop - block.start), lists], [SEQ, column]
            )
        start = stop


def _until_whole(table: pa.Table, stop: int) -> int:
    """The next row from here on whose value is relative to none before it."""
    ahead = table.column(VALUE).slice(stop, CHAIN)
    tags = [value.as_buffer()[0] if value.is_valid else 0 for value in ahead]
    return min(stop + next((i for i, tag in enumerate(tags) if not tag & DELTA), len(tags)), len(table))


def _named(tids: Ints, box: str | None) -> pa.Array:
    """Seqs, or the names of a box's rows."""
    if box is None:
        return pa.array(tids)
    places = places_of_tids(tids)
    stamp, pos = (pa.array(a).cast(pa.string()) for a in (places.stamp, places.pos))
    return pc.binary_join_element_wise(pc.binary_join_element_wise(f"{box}@", stamp, ""), pos, ".")


def annotation_of(store: Store, plan: Plan, stream: str, seq: int, epoch: int) -> dict[str, list[str]] | None:
    """The annotation of one tuple, named as explanations name tuples."""
    keys, found = inputs_of(store, stream), one(store, stream, seq, epoch)
    if found is None:
        return None
    told: dict[str, list[str]] = {}
    for name, tids in found.items():
        box = _shown_as(plan, keys[name])
        told[name] = [f"{keys[name]}:{tid}" for tid in tids.tolist()] if box is None else _named(tids, box).to_pylist()
    return told
