"""Steps as Spark jobs, for large epochs.

Rows lie in Arrow files; a task maps its slice into memory, runs the stateless steps on it, and leaves the
rows grouped by the partition that owns them; kernel calls for each partition take them up, in place order.
Spark schedules, retries and distributes the tasks; the rows do not pass through the JVM. Small steps run
in the driver, where a job would cost more than the work.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clew.archive.buckets import write_bucket
from clew.archive.disk import writing
from clew.archive.record import FileEntry
from clew.archive.store import Store
from clew.engine import stored
from clew.engine.arrow_files import Held, decoded, map_arrow, write_arrow
from clew.engine.evaluate import KernelResult, Named, Ran
from clew.engine.lanes.driver import DriverLane, run_stateless
from clew.engine.lanes.slices import SLICE_ROWS, Numbers, Slice, Slices, handed_on
from clew.engine.lanes.tasks import run_tasks, tasks_at_once
from clew.engine.pieces import Batch
from clew.engine.plan import KernelStep, Stateless
from clew.model.rows import Ints, Rows, Stamps
from clew.model.steps import Steps
from clew.operators.base import (
    Combining,
    Emission,
    Origin,
    Refused,
    State,
    join_state,
    merge,
    owners,
    run_in_parts,
    split_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 100_000  # rows below which a step runs in the driver
FEWEST_TASKS = 4  # into which rows are cut that do not run there
TASK_ROWS = 50_000  # rows for which one more task is worth it, where there is a core for it

Did = tuple[int, tuple[Refused, ...]]
"""What a stateless step did on one slice: how many rows it left, and those on which it failed."""


class SparkLane:
    """A flow is `Slices`. Made for one epoch; its scratch folder goes with it."""

    name = "spark"

    def __init__(
        self, session: Callable[[], SparkSession], driver: DriverLane, scratch: Path, partitions: int | None
    ) -> None:
        self._session, self._driver, self._fixed = session, driver, partitions
        self._folder = scratch / uuid.uuid4().hex
        with writing("rows of this epoch", self._folder):
            self._folder.mkdir(parents=True)
        self._slice_rows = SLICE_ROWS
        self._beside = ThreadPoolExecutor(1, "clew-archive")
        self._unclaimed: dict[Future[list[FileEntry]], Path] = {}

    def close(self) -> None:
        for begun, folder in self._unclaimed.items():  # the epoch has failed: nobody will name these buckets
            if begun.exception() is None:
                for entry in begun.result():
                    (folder / entry.path).unlink(missing_ok=True)
        self._beside.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- flows ---

    def source(self, stream: str, batch: Batch, stamps: Stamps, first_seq: int) -> Slices:
        """Admitted rows, where they lie in files if they do."""
        schema = batch.form.schema
        files = [(piece.held(schema), piece.rows) for piece in batch.pieces]
        if not files and len(batch):
            files = [(Held(write_arrow(self._folder, batch.table.combine_chunks())), len(batch))]
        stamp_file = None
        if stamps.each is not None:
            stamp_file = write_arrow(self._folder, pa.table({"stamp": pa.array(stamps.each)}))
        parts: list[Slice] = []
        done = 0
        for held, found in files:
            rows = min(found, len(stamps) - done)
            if rows:
                first = done + (stamps.first if stamp_file is None else 0)
                whole = Slice(held, 0, rows, Numbers(stream, first_seq + done, first, stamp_file))
                parts += whole.cut(self._even(rows))
                done += rows
        return Slices(schema, tuple(parts))

    def stateless(self, step: Stateless, flow: Slices, shared: bool) -> tuple[Slices, tuple[Ran, ...]]:
        if flow.memory is not None:
            rows, ran = self._driver.stateless(step, flow.memory, shared)
            return Slices(step.schema, memory=rows), ran
        if not step.on_arrow:
            ready, before = self._settled(flow)
            parts = [self._driver.stateless(step, part.load(), shared) for part in ready.parts]
            made = tuple(self._in_file(rows) for rows, _ in parts if len(rows))
            ran = _all_ran((step,), [[(r.rows_out, r.refused) for r in found] for _, found in parts])
            return Slices(step.schema, made), before + ran
        waiting = Slices(step.schema, flow.parts, (*flow.pending, step))
        return self._settled(waiting) if shared else (waiting, ())

    def kernel(
        self, step: KernelStep, state: State, flows: list[Slices], progress: list[Steps]
    ) -> KernelResult[Slices]:
        total = sum(f.stored_rows for f in flows)
        alone = all(not keys for keys in step.kernel.keys)
        if total < SMALL or alone:
            loaded = [self._loaded(f) for f in flows]
            made = self._driver.kernel(step, state, [rows for rows, _ in loaded], progress)
            ran = tuple(r for _, found in loaded for r in found)
            return KernelResult(self._kept(made.flow), made.named, made.state, made.late, made.rejected, ran)
        if isinstance(step.kernel, Combining):
            combined = self._combined(step.kernel, state, flows[0], progress[0])
            if combined is not None:
                return combined
        emission, ran = self._distributed(step, state, flows, progress)
        rows, origin = merge(emission)
        named = Named(rows.stamp, rows.pos, origin)
        late = tuple(r for e in emission for r in e.late)
        rejected = tuple(r for e in emission for r in e.rejected)
        return KernelResult(self._kept(rows), named, join_state([e.state for e in emission]), late, rejected, ran)

    def count(self, flow: Slices) -> int:
        """Rows of the flow; of one with pending steps, those before them."""
        return flow.stored_rows

    def column(self, flow: Slices, column: str) -> tuple[Ints, pa.ChunkedArray]:
        rows, _ = self._loaded(flow)
        return rows.stamp, rows.table.column(column)

    def rows_of(self, flow: Slices, columns: tuple[str, ...]) -> Rows:
        return self._loaded(flow)[0].select(columns)

    def rows(self, flow: Slices) -> Rows:
        return self._loaded(flow)[0]

    def write(self, store: Store, name: str, flow: Slices, first_seq: int, epoch: int) -> list[FileEntry]:
        if flow.memory is not None:
            return self._driver.write(store, name, flow.memory, first_seq, epoch)
        return self._write(store, name, flow, first_seq, epoch, True)

    def write_ahead(
        self, store: Store, name: str, flow: Slices, first_seq: int, epoch: int
    ) -> Callable[[], list[FileEntry]]:
        """Its job runs beside those of the boxes, so that cores have work while the driver thinks."""
        begun = self._beside.submit(self._write, store, name, flow, first_seq, epoch, False)
        folder = store.layout.folder("streams", name)
        self._unclaimed[begun] = folder

        def wait() -> list[FileEntry]:
            entries = begun.result()
            del self._unclaimed[begun]
            return entries

        return wait

    def _write(
        self, store: Store, name: str, flow: Slices, first_seq: int, epoch: int, derived: bool
    ) -> list[FileEntry]:
        folder = store.layout.folder("streams", name)
        with writing("a bucket", folder):
            folder.mkdir(parents=True, exist_ok=True)
        arguments, seq = [], first_seq
        for part in flow.parts:
            arguments.append((str(folder), part, seq, epoch, derived))
            seq += len(part)
        told = run_tasks(self._session(), write_slice, arguments)
        return [FileEntry.from_json(entry) for entry in told]

    # --- parts ---

    def _tasks(self, rows: int) -> int:
        """How many tasks are worth it for so many rows: no result depends on it."""
        return self._fixed or max(FEWEST_TASKS, min(self._parallel, rows // TASK_ROWS))

    @cached_property
    def _parallel(self) -> int:
        return tasks_at_once(self._session())

    def _even(self, rows: int) -> int:
        """Slices no larger than SLICE_ROWS, and enough of them for every task to have work."""
        return max(1, min(self._slice_rows, -(-rows // self._tasks(rows))))

    def _in_file(self, rows: Rows) -> Slice:
        return Slice(Held(write_arrow(self._folder, rows.to_table().combine_chunks())), 0, len(rows))

    def _kept(self, rows: Rows) -> Slices:
        """A kernel's rows as a flow: in memory, or in files if later steps shall have them as jobs."""
        if len(rows) < SMALL:
            return Slices(rows.table.schema, memory=rows)
        return Slices(rows.table.schema, tuple(self._in_file(rows).cut(self._even(len(rows)))))

    def _settled(self, flow: Slices) -> tuple[Slices, tuple[Ran, ...]]:
        """The flow with nothing pending, and what the steps did that were."""
        if not flow.pending:
            return flow, ()
        told = run_tasks(self._session(), settle, [(str(self._folder), p, flow.pending) for p in flow.parts])
        made = [
            Slice(Held(t["path"]), 0, t["rows"], part.numbers if t["picked"] else None, t["picked"])
            for t, part in zip(told, flow.parts, strict=True)
        ]
        parts = tuple(part for part in made if len(part))
        return Slices(flow.schema, parts), _read_ran(flow.pending, told)

    def _loaded(self, flow: Slices) -> tuple[Rows, tuple[Ran, ...]]:
        if flow.memory is not None:
            return flow.memory, ()
        ready, ran = self._settled(flow)
        parts = [p.load() for p in ready.parts]
        return Rows.concat(parts) if parts else Rows.empty(ready.schema), ran

    def _distributed(
        self, step: KernelStep, state: State, flows: list[Slices], progress: list[Steps]
    ) -> tuple[list[Emission], tuple[Ran, ...]]:
        count, folder = self._tasks(sum(f.stored_rows for f in flows)), str(self._folder)
        jobs = [
            (folder, part, flow.pending, step.kernel.keys[port], count, port)
            for port, flow in enumerate(flows)
            for part in self._as_files(flow).parts
        ]
        told = run_tasks(self._session(), partition, jobs)
        of_port = [[t for t in told if t["port"] == port] for port in range(len(flows))]
        ran = tuple(r for flow, found in zip(flows, of_port, strict=True) for r in _read_ran(flow.pending, found))
        steps = [_steps_file(self._folder, s) for s in progress]
        states = [
            {name: write_arrow(folder, table) for name, table in part.items()}
            for part in split_state(step.kernel, state, count)
        ]
        schemas = [f.schema for f in flows]
        arguments = [
            (
                folder,
                step.kernel,
                schemas,
                [(t["port"], t["path"], *t["bounds"][p : p + 2]) for t in told],
                states[p],
                steps,
            )
            for p in range(count)
        ]
        return [_read_emission(t) for t in run_tasks(self._session(), reduce, arguments)], ran

    def _combined(self, kernel: Combining, state: State, flow: Slices, progress: Steps) -> KernelResult[Slices] | None:
        """The kernel over rows that tasks have summed up where they lie; None if some must be seen one by one."""
        steps = _steps_file(self._folder, progress)
        jobs = [(str(self._folder), part, flow.pending, kernel, steps) for part in self._as_files(flow).parts]
        told = run_tasks(self._session(), combine, jobs)
        if any(t["path"] is None for t in told):
            return None
        panes = [Rows.from_table(map_arrow(t["path"]).combine_chunks()) for t in told]
        made = kernel.run_combined(state, panes, [progress])
        named = Named(made.rows.stamp, made.rows.pos, made.origin)
        ran = _read_ran(flow.pending, told)
        return KernelResult(self._kept(made.rows), named, made.state, made.late, made.rejected, ran)

    def _as_files(self, flow: Slices) -> Slices:
        if flow.memory is None:
            return flow
        return Slices(flow.schema, (self._in_file(flow.memory),) if len(flow.memory) else ())


# --- what tasks run; module functions over plain values ---


def write_slice(argument: tuple[str, Slice, int, int, bool]) -> dict[str, Any]:
    folder, part, seq, epoch, derived = argument
    if part.numbers is None or derived:
        bucket = stored.derived_bucket(part.load(None), seq, epoch)
    else:
        bucket = stored.source_bucket(part.table(None), part.numbers.stamps_of(np.arange(len(part))), seq, epoch)
    return write_bucket(Path(folder), bucket).to_json()


def run_pending(
    part: Slice, pending: tuple[Stateless, ...], encoded: Collection[str] | None = None
) -> tuple[Rows, list[Did]]:
    """The rows of a slice behind its stateless steps; columns of text that no step looks into stay encoded."""
    rows, did = part.load(handed_on(pending) if pending else encoded), []
    for step in pending:
        rows, refused = run_stateless(step, rows)
        did.append((len(rows), refused))
    return rows.with_table(decoded(rows.table, encoded)), did


def settle(argument: tuple[str, Slice, tuple[Stateless, ...]]) -> dict[str, Any]:
    folder, part, pending = argument
    rows, did = run_pending(part, pending)
    made = part.picking(rows, folder)
    return {"path": made.held.path, "rows": len(made), "picked": made.picked, "did": _write_did(folder, did)}


def partition(
    argument: tuple[str, Slice, tuple[Stateless, ...], tuple[str, ...], int, int],
) -> dict[str, Any]:
    """Rows of a slice, those of each partition together, in place order."""
    folder, part, pending, keys, count, port = argument
    rows, did = run_pending(part, pending)
    owner = owners(rows.table, keys, count)
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(count + 1)).tolist()
    path = write_arrow(folder, rows.take(order).to_table().combine_chunks())
    return {"port": port, "path": path, "bounds": bounds, "did": _write_did(folder, did)}


def combine(
    argument: tuple[str, Slice, tuple[Stateless, ...], Combining, tuple[Any, str]],
) -> dict[str, Any]:
    """The rows of a slice summed up for a kernel; no path if it must see them one by one."""
    folder, part, pending, kernel, steps = argument
    rows, did = run_pending(part, pending, kernel.encoded)
    made = kernel.combine(rows, _read_steps(steps))
    path = None if made is None else write_arrow(folder, made.to_table().combine_chunks())
    return {"path": path, "did": _write_did(folder, did)}


def reduce(argument: Any) -> dict[str, Any]:
    """A kernel over all rows of one partition."""
    folder, kernel, schemas, blocks, state, steps = argument
    inputs = []
    for port, schema in enumerate(schemas):
        parts = [Slice(Held(path), lo, hi).load() for p, path, lo, hi in blocks if p == port and hi > lo]
        inputs.append(Rows.concat(parts) if parts else Rows.empty(schema))
    held = {name: map_arrow(path).combine_chunks() for name, path in state.items()}
    made = run_in_parts(kernel, held, inputs, [_read_steps(s) for s in steps])
    ties = pa.table(list(made.tie), names=[f"_t{i}" for i in range(len(made.tie))]) if made.tie else None
    return {
        "rows": write_arrow(folder, made.rows.to_table().combine_chunks()),
        "tie": write_arrow(folder, ties) if ties is not None else None,
        "origin": write_arrow(folder, made.origin.to_table()),
        "state": {name: write_arrow(folder, table.combine_chunks()) for name, table in made.state.items()},
        "late": _write_refused(folder, made.late),
        "rejected": _write_refused(folder, made.rejected),
    }


def _read_emission(told: dict[str, Any]) -> Emission:
    ties = map_arrow(told["tie"]).combine_chunks() if told["tie"] else None
    return Emission(
        Rows.from_table(map_arrow(told["rows"]).combine_chunks()),
        tuple(c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in ties.columns)
        if ties is not None
        else (),
        Origin.from_table(map_arrow(told["origin"]).combine_chunks()),
        {name: map_arrow(path) for name, path in told["state"].items()},
        read_refused([told["late"]]),
        read_refused([told["rejected"]]),
    )


def _all_ran(steps: Sequence[Stateless], did: Sequence[Sequence[Did]]) -> tuple[Ran, ...]:
    """What steps did, from what each did on every slice."""
    return tuple(
        Ran(step, sum(part[i][0] for part in did), tuple(r for part in did for r in part[i][1]))
        for i, step in enumerate(steps)
    )


def _write_did(folder: str, did: Sequence[Did]) -> list[tuple[int, list[dict[str, Any]]]]:
    return [(rows, _write_refused(folder, refused)) for rows, refused in did]


def _read_ran(steps: Sequence[Stateless], told: Sequence[dict[str, Any]]) -> tuple[Ran, ...]:
    return _all_ran(steps, [[(rows, read_refused([refused])) for rows, refused in t["did"]] for t in told])


def _write_refused(folder: str, refused: Sequence[Refused]) -> list[dict[str, Any]]:
    return [
        {"path": write_arrow(folder, r.rows.to_table().combine_chunks()), "reasons": list(r.reasons), "port": r.port}
        for r in refused
        if len(r.rows)
    ]


def read_refused(told: list[list[dict[str, Any]]]) -> tuple[Refused, ...]:
    return tuple(
        Refused(Rows.from_table(map_arrow(t["path"]).combine_chunks()), tuple(t["reasons"]), t["port"])
        for part in told
        for t in part
    )


def _steps_file(folder: Path, steps: Steps) -> tuple[Any, str]:
    table = pa.table({"stamp": pa.array(steps.stamp), "value": pa.array(steps.value)})
    return steps.start, write_arrow(folder, table)


def _read_steps(given: tuple[Any, str]) -> Steps:
    start, path = given
    table = map_arrow(path).combine_chunks()
    return Steps(start, np.asarray(table.column("stamp")), np.asarray(table.column("value")))
