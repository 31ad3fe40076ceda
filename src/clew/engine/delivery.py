"""Outputs handed on, at least once, with the epoch number."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from clew.archive.disk import write_over
from clew.archive.layout import folder_name
from clew.archive.store import Store
from clew.engine.catalyst import first_line
from clew.engine.stored import EPOCH
from clew.errors import DeliveryFailed, DuplicateName, NetworkError, StoreError
from clew.model.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONGEST_NAME = 200  # file systems take 255 bytes

Receiver = Callable[[Any, int], None]


@dataclass(frozen=True)
class _Delivery:
    name: str
    output: str
    to: Receiver
    form: str


class Deliveries:
    """Receivers of outputs, and how far each has been served; the mark is moved after the receiver returns."""

    def __init__(self, store: Store, session: Callable[[], SparkSession]) -> None:
        self._store, self._session = store, session
        self._receivers: list[_Delivery] = []
        self._thread: int | None = None  # the one that delivers

    def add(self, name: str, output: str, to: Receiver, form: str) -> None:
        if form not in ("spark", "arrow"):
            raise NetworkError(f"no form '{form}' of a delivery", hint="'spark' or 'arrow'")
        if not callable(to):
            raise NetworkError(f"a delivery goes to a function of (rows, epoch), not to {to!r}")
        if len(folder_name(name)) > LONGEST_NAME:
            raise NetworkError(f"'{name[:40]}...' is too long a name for a delivery")
        new = _Delivery(name, output, to, form)
        known = {r.name: r.output for r in self._receivers}
        of = known.get(name) or self._marked(new).get("output", output)
        if of != output:
            raise DuplicateName(
                f"delivery '{name}' is of output '{of}', and cannot be of '{output}' too",
                details=["how far it has been served is kept under its name"],
                hint="give it another name: deliver(..., name=...)",
            )
        self._receivers = [r for r in self._receivers if r.name != name]
        self._receivers.append(new)

    def deliver(self) -> None:
        """Hand on what has been committed and not been delivered, epoch by epoch, to every receiver.

        `DeliveryFailed` if one raises, or cannot be served: it is tried again next time; the others are served first.
        """
        if self.in_receiver:  # it has fed; what came of that follows when it has returned
            return
        self._thread = threading.get_ident()
        try:
            done = -1
            while done < (done := self._store.state.epoch):
                self._serve_all()
        finally:
            self._thread = None

    @property
    def in_receiver(self) -> bool:
        """Whether it is a receiver that is calling."""
        return self._thread == threading.get_ident()

    def _serve_all(self) -> None:
        failed: list[DeliveryFailed] = []
        for receiver in self._receivers:
            try:
                self._serve(receiver)
            except DeliveryFailed as error:
                failed.append(error)
        if failed:
            raise failed[0] from failed[0].__cause__

    def _serve(self, receiver: _Delivery) -> None:
        epoch = self._store.state.epoch
        try:
            done, folder = self._served(receiver), self._store.state.streams.get(receiver.output)
            if folder is None or folder.epoch <= done:
                return
            epoch = done + 1
            rows = self._store.read_table(receiver.output, ranges={EPOCH: (epoch, None)})
            visible = [n for n in rows.column_names if not n.startswith("_")]
            for epoch in sorted(set(rows.column(EPOCH).to_pylist())):
                new = rows.filter(pc.equal(rows.column(EPOCH), epoch)).select(visible)
                receiver.to(new if receiver.form == "arrow" else self._frame(new), epoch)
                self._mark(receiver, epoch)
        except Exception as error:  # whatever it is, the epochs stand, and the other receivers are to be served
            raise self._failed(receiver, epoch, error) from error

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._session().createDataFrame(rows, spark_schema(rows.schema))

    def _failed(self, receiver: _Delivery, epoch: int, error: Exception) -> DeliveryFailed:
        details, hint = (error.details, error.hint) if isinstance(error, StoreError) else ((), None)
        return DeliveryFailed(
            f"delivery '{receiver.name}' of output '{receiver.output}' failed at epoch {epoch}",
            details=[
                f"cause: {type(error).__name__}: {first_line(error)}",
                *details,
                f"all epochs up to {self._store.state.epoch} are committed: do not feed them again",
            ],
            hint=hint or "its rows from this epoch on are delivered again with the next epoch, or at the next open",
        )

    def _path(self, receiver: _Delivery) -> Path:
        return self._store.layout.deliveries / f"{folder_name(receiver.name)}.json"

    def _served(self, receiver: _Delivery) -> int:
        return int(self._marked(receiver).get("epoch", 0))

    def _marked(self, receiver: _Delivery) -> dict[str, Any]:
        """What is kept of a delivery: its output, and the last epoch that was served."""
        path = self._path(receiver)
        try:
            found = json.loads(path.read_text())
            return {"output": str(found["output"]), "epoch": int(found["epoch"])}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise StoreError(
                "the store has a damaged file",
                details=[f"file: {path}", f"cause: {type(error).__name__}: {error}"],
                hint=f"delete it: then all epochs of '{receiver.output}' are delivered to '{receiver.name}' again",
            ) from error

    def _mark(self, receiver: _Delivery, epoch: int) -> None:
        path = self._path(receiver)
        path.parent.mkdir(exist_ok=True)
        write_over(path, json.dumps({"output": receiver.output, "epoch": epoch}).encode(), durable=True)
