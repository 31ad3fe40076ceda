"""Expressions that only Spark can evaluate, over rows in the driver; failing rows found by bisection."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from clew.engine.plan import Stateless
from clew.errors import BoxFailed, StoreFull
from clew.model.rows import Bools, Rows
from clew.model.schema import spark_schema
from clew.operators.base import Refused

ROW = "_row"
TELL_EVERY_S = 5

log = logging.getLogger("clew")

_CONDITION = re.compile(r"(?<![\w\]])\[[A-Z][A-Z0-9_]+(\.[A-Z0-9_]+)*\]")  # as in "[DIVIDE_BY_ZERO] Division by zero"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # what stands behind a traceback's last frame


@dataclass(eq=False)
class _Search:
    """The search for rows on which a step fails: what it made of the others, and why it failed on which."""

    box: str
    rows: int
    parts: list[pa.Table] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    failed: Exception | None = None
    passed: int = 0
    told_at: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        """Say every few seconds how far it is: each try is a job of Spark."""
        now = time.monotonic()
        if now - self.told_at < TELL_EVERY_S:
            return
        self.told_at = now
        left = self.rows - len(self.reasons) - self.passed
        log.warning(
            "box '%s' fails on rows in Spark: %d found by trying parts, %d of %d rows still in doubt",
            self.box, len(self.reasons), left, self.rows,
        )  # fmt: skip


class Catalyst:
    """Evaluates stateless steps with Spark SQL. `session` is asked for at first use."""

    def __init__(self, session: Callable[[], object]) -> None:
        self._session = session

    def run(self, step: Stateless, rows: Rows) -> tuple[Rows, tuple[Refused, ...]]:
        if not len(rows):
            return rows.with_table(step.schema.empty_table()), ()
        numbered = rows.table.append_column(ROW, pa.array(np.arange(len(rows), dtype=np.int64)))
        search = self._searched(step, numbered)
        parts, reasons = search.parts, search.reasons
        index = np.concatenate([np.asarray(p.column(ROW)) for p in parts]) if parts else np.empty(0, np.int64)
        order = np.argsort(index, kind="stable")
        table = pa.concat_tables([p.drop_columns([ROW]) for p in parts]) if parts else step.schema.empty_table()
        kept = rows.take(index[order])
        made = kept.table if step.columns is None else table.take(pa.array(order)).cast(step.schema)
        bad: Bools = np.zeros(len(rows), np.bool_)
        bad[list(reasons)] = True
        refused = (step.refused(rows.filter(bad), (reasons[i] for i in sorted(reasons))),) if reasons else ()
        return kept.with_table(made), refused

    def _searched(self, step: Stateless, table: pa.Table) -> _Search:
        """What the step makes of the rows, but for those on which it fails."""
        search = _Search(step.box, len(table))
        try:
            search.parts.append(self._evaluate(step, table))
        except Exception as error:  # Spark's error classes differ between classic and Connect
            self._check_blame(step, table, error)
            self._narrow(step, table, search, tried=False)
            if search.failed is not None:
                self._check_blame(step, table, search.failed)
        return search

    def _narrow(self, step: Stateless, table: pa.Table, search: _Search, tried: bool) -> None:
        """Find those on which the step fails by themselves among rows on which it fails together."""
        if len(table) == 1:
            if not tried:
                self._works_on(step, table, search)
            return
        search.tell()
        first, second = table.slice(0, len(table) // 2), table.slice(len(table) // 2)
        if self._works_on(step, first, search):
            self._narrow(step, second, search, tried=False)  # so that it must fail on the second
            return
        self._narrow(step, first, search, tried=True)
        if not self._works_on(step, second, search):
            self._narrow(step, second, search, tried=True)

    def _works_on(self, step: Stateless, table: pa.Table, search: _Search) -> bool:
        try:
            search.parts.append(self._evaluate(step, table))
            search.passed += len(table)
        except Exception as error:  # as above
            if len(table) == 1:
                search.reasons[int(table.column(ROW)[0].as_py())] = first_line(error)
                search.failed = error
            return False
        return True

    def _check_blame(self, step: Stateless, table: pa.Table, error: Exception) -> None:
        """`BoxFailed` if what failed is not a row's fault, but the query's or Spark's."""
        if not self._works_on_nothing(step, table):
            raise BoxFailed(f"box '{step.box}' failed in Spark", details=[first_line(error)]) from error

    def _works_on_nothing(self, step: Stateless, table: pa.Table) -> bool:
        """Whether the step runs without rows."""
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
