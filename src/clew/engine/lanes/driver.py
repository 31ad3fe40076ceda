"""Steps in the driver's own process: for small epochs, replays and lookups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from clew.archive.record import FileEntry
from clew.archive.store import Store
from clew.engine import stored
from clew.engine.catalyst import Catalyst
from clew.engine.evaluate import KernelResult, Named, Ran
from clew.engine.pieces import Batch
from clew.engine.plan import KernelStep, Stateless, compiled, plain_name
from clew.expressions.compile import Evaluated
from clew.model.rows import Bools, Ints, Rows, Stamps
from clew.model.steps import Steps
from clew.operators.base import Refused, State, run_in_parts


class DriverLane:
    """A flow is `Rows` in memory."""

    name = "driver"

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def source(self, stream: str, batch: Batch, stamps: Stamps, first_seq: int) -> Rows:
        return stored.source_rows(stream, batch.table, stamps.array(), first_seq)

    def stateless(self, step: Stateless, flow: Rows, shared: bool) -> tuple[Rows, tuple[Ran, ...]]:
        del shared
        rows, refused = run_stateless(step, flow) if step.on_arrow else self._catalyst.run(step, flow)
        return rows, (Ran(step, len(rows), refused),)

    def kernel(self, step: KernelStep, state: State, flows: list[Rows], progress: list[Steps]) -> KernelResult[Rows]:
        made = run_in_parts(step.kernel, state, flows, progress)
        rows = made.rows
        return KernelResult(rows, Named(rows.stamp, rows.pos, made.origin), made.state, made.late, made.rejected)

    def count(self, flow: Rows) -> int:
        return len(flow)

    def column(self, flow: Rows, column: str) -> tuple[Ints, pa.ChunkedArray]:
        return flow.stamp, flow.table.column(column)

    def rows_of(self, flow: Rows, columns: tuple[str, ...]) -> Rows:
        return flow.select(columns)

    def rows(self, flow: Rows) -> Rows:
        return flow

    def write(self, store: Store, name: str, flow: Rows, first_seq: int, epoch: int) -> list[FileEntry]:
        return [store.write_bucket("streams", name, stored.derived_bucket(flow, first_seq, epoch))] if len(flow) else []

    def write_ahead(
        self, store: Store, name: str, flow: Rows, first_seq: int, epoch: int
    ) -> Callable[[], list[FileEntry]]:
        def write() -> list[FileEntry]:
            bucket = stored.source_bucket(flow.table, flow.stamp, first_seq, epoch)
            return [store.write_bucket("streams", name, bucket)] if len(flow) else []

        return write

    def close(self) -> None:
        """Nothing is held."""


def run_stateless(step: Stateless, rows: Rows) -> tuple[Rows, tuple[Refused, ...]]:
    """A filter or projection over Arrow; rows on which it fails are refused with Spark's reason."""
    if step.condition is not None:
        made = compiled(step.condition, step.input_schema, step.zone)
        assert made is not None
        keep, seen = made.keep(rows.table)
        if seen.failed is None or not seen.failed.any():
            return rows.filter(keep), ()
        return rows.filter(keep & ~seen.failed), (_refused(step, rows, [(step.condition, seen)]),)
    columns, failures = [], []
    for name, sql in step.columns or ():
        plain = _plain_column(sql, rows.table)
        if plain is not None:
            columns.append(plain)
            continue
        made = compiled(sql, step.input_schema, step.zone)
        assert made is not None, name
        seen = made.evaluate(rows.table)
        columns.append(seen.values)
        if seen.failed is not None and seen.failed.any():
            failures.append((sql, seen))
    fields = [f.with_type(c.type) for f, c in zip(step.schema, columns, strict=True)]  # text may be encoded
    made_rows = rows.with_table(pa.table(columns, schema=pa.schema(fields)))
    if not failures:
        return made_rows, ()
    bad = _any_failed(failures)
    return made_rows.filter(~bad), (_refused(step, rows, failures),)


def _plain_column(sql: str, table: pa.Table) -> pa.ChunkedArray | None:
    name = plain_name(sql)
    return table.column(name) if name in table.column_names else None


def _any_failed(failures: list[tuple[str, Evaluated]]) -> Bools:
    masks = [seen.failed for _, seen in failures if seen.failed is not None]
    failed: Bools = np.logical_or.reduce(masks)
    return failed


def _refused(step: Stateless, rows: Rows, failures: list[tuple[str, Evaluated]]) -> Refused:
    bad = _any_failed(failures)
    reasons = []
    for i in np.flatnonzero(bad).tolist():
        sql, seen = next((s, e) for s, e in failures if e.failed is not None and e.failed[i])
        reasons.append(f"{seen.reason(i)} in '{sql}'")
    return step.refused(rows.filter(bad), reasons)
