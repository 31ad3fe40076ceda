"""Expressions that only Spark can evaluate, over rows in the driver; failing rows found by bisection."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from clew.engine.plan import Stateless
from clew.errors import BoxFailed, StoreFull
from clew.model.rows import Bools, Rows
from clew.model.schema import spark_schema
from clew.operators.base import Refused

ROW = "_row"

_CONDITION = re.compile(r"(?<![\w\]])\[[A-Z][A-Z0-9_]+(\.[A-Z0-9_]+)*\]")  # as in "[DIVIDE_BY_ZERO] Division by zero"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # what stands behind a traceback's last frame


class Catalyst:
    """Evaluates stateless steps with Spark SQL. `session` is asked for at first use."""

    def __init__(self, session: Callable[[], object]) -> None:
        self._session = session

    def run(self, step: Stateless, rows: Rows) -> tuple[Rows, tuple[Refused, ...]]:
        if not len(rows):
            return rows.with_table(step.schema.empty_table()), ()
        numbered = rows.table.append_column(ROW, pa.array(np.arange(len(rows), dtype=np.int64)))
        reasons: dict[int, str] = {}
        parts = self._bisected(step, numbered, reasons)
        index = np.concatenate([np.asarray(p.column(ROW)) for p in parts]) if parts else np.empty(0, np.int64)
        order = np.argsort(index, kind="stable")
        table = pa.concat_tables([p.drop_columns([ROW]) for p in parts]) if parts else step.schema.empty_table()
        kept = rows.take(index[order])
        made = kept.table if step.columns is None else table.take(pa.array(order)).cast(step.schema)
        bad: Bools = np.zeros(len(rows), np.bool_)
        bad[list(reasons)] = True
        refused = (step.refused(rows.filter(bad), (reasons[i] for i in sorted(reasons))),) if reasons else ()
        return kept.with_table(made), refused

    def _bisected(
        self, step: Stateless, table: pa.Table, reasons: dict[int, str], parted: bool = False
    ) -> list[pa.Table]:
        try:
            return [self._evaluate(step, table)]
        except Exception as error:  # Spark's error classes differ between classic and Connect
            if not (parted and len(table) > 1) and not self._works_on_nothing(step, table):
                raise BoxFailed(f"box '{step.box}' failed in Spark", details=[first_line(error)]) from error
            if len(table) == 1:
                reasons[int(table.column(ROW)[0].as_py())] = first_line(error)
                return []
            half = len(table) // 2
            halves = table.slice(0, half), table.slice(half)
            return [part for rows in halves for part in self._bisected(step, rows, reasons, parted=True)]

    def _works_on_nothing(self, step: Stateless, table: pa.Table) -> bool:
        """Whether the step runs without rows: if so, what failed is a row's fault, and not the query's or Spark's."""
        try:
            self._evaluate(step, table.slice(0, 0))
        except Exception:  # whatever it is, the caller has the error that counts
            return False
        return True

    def _evaluate(self, step: Stateless, table: pa.Table) -> pa.Table:
        session, form = self._session(), f"{spark_schema(step.input_schema)}, {ROW} BIGINT"
        frame = session.createDataFrame(table, form)  # type: ignore[attr-defined]
        if step.condition is not None:
            frame = frame.where(step.condition).select(ROW)
        else:
            frame = frame.selectExpr(*(f"{sql}\nAS `{name}`" for name, sql in step.columns or ()), ROW)
        return frame.toArrow()


def first_line(error: Exception) -> str:
    """What Spark says, or Python in one of its workers, without the stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling "):  # py4j's own words
        caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        lines = [*caused[-1:], *(line.removeprefix(": ") for line in lines[1:])]
    for line in lines:
        if condition := _CONDITION.search(line):
            return line[condition.start() :].split(" SQLSTATE")[0].strip()[:500]
    frames = [i for i, line in enumerate(lines) if line.startswith('File "')]
    raised = [line for line in lines[frames[-1] :] if _RAISED.match(line)] if frames else lines[:1]
    return (raised[0] if raised else type(error).__name__)[:500]


def disk_full(error: Exception) -> StoreFull | None:
    """What to tell if the disk was full for Spark, or for a task that it ran; None if that was not it."""
    if "No space left on device" not in str(error) and StoreFull.__name__ not in str(error):
        return None
    return StoreFull("the disk is full", details=[first_line(error)], hint="free some space and feed the batch again")


def failed_in_spark() -> tuple[type[Exception], ...]:
    """What Spark raises; a user gets one of clew's errors in its place."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError
