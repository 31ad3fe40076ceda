"""Outputs handed on, at least once, with the epoch number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.archive.disk import write_over
from clew.archive.store import Store
from clew.engine.stored import EPOCH
from clew.errors import NetworkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def add(self, name: str, output: str, to: Receiver, form: str) -> None:
        if form not in ("spark", "arrow"):
            raise NetworkError(f"no form '{form}' of a delivery", hint="'spark' or 'arrow'")
        self._receivers = [r for r in self._receivers if r.name != name]
        self._receivers.append(_Delivery(name, output, to, form))

    def deliver(self) -> None:
        """Hand on what has been committed and not been delivered, epoch by epoch."""
        for receiver in self._receivers:
            if receiver.output not in self._store.state.streams:
                continue
            done = self._served(receiver)
            folder = self._store.state.streams[receiver.output]
            if folder.epoch <= done:
                continue
            rows = self._store.read_table(receiver.output, ranges={EPOCH: (done + 1, None)})
            visible = [n for n in rows.column_names if not n.startswith("_")]
            for epoch in sorted(set(rows.column(EPOCH).to_pylist())):
                import pyarrow.compute as pc

                part = rows.filter(pc.equal(rows.column(EPOCH), epoch)).select(visible)
                receiver.to(part if receiver.form == "arrow" else self._session().createDataFrame(part), epoch)
                self._mark(receiver, epoch)
            self._mark(receiver, self._store.state.epoch)

    def _path(self, receiver: _Delivery) -> Path:
        return self._store.layout.root / "_deliveries" / (re.sub(r"[^A-Za-z0-9_.-]", "-", receiver.name) + ".json")

    def _served(self, receiver: _Delivery) -> int:
        path = self._path(receiver)
        return int(json.loads(path.read_text())["epoch"]) if path.exists() else 0

    def _mark(self, receiver: _Delivery, epoch: int) -> None:
        path = self._path(receiver)
        path.parent.mkdir(exist_ok=True)
        write_over(path, json.dumps({"output": receiver.output, "epoch": epoch}).encode(), durable=True)
