"""What can be asked of a store's lineage: of an engine, and of a reader that only looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clew.archive.store import Store
from clew.engine.lanes.driver import DriverLane
from clew.engine.plan import Plan
from clew.engine.replay import Watch
from clew.explain.answers import answers, stored_stream, targets_of
from clew.explain.explanation import Explanation
from clew.explain.forward import Held
from clew.explain.impact import Impact, impact, reached_by
from clew.explain.trace import Tracer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, eq=False)
class Questions:
    """Asks a store in terms of a network's plan. `watch` is told how far replays are."""

    plan: Plan
    store: Store
    lane: DriverLane
    session: Callable[[], SparkSession]
    watch: Watch | None = None

    def why(self, output: str, tuples: Any, of: Any) -> Explanation:
        stream, tracer = stored_stream(self.plan, output), self._tracer()
        return Explanation(answers(tracer, stream, tuples), targets_of(self.plan, of), tracer, self.session)

    def impact(self, stream: str, tuples: Any, on: Any, held: Callable[[], Held]) -> Impact:
        """`held`: what boxes hold; asked once it is known that there is something to ask about."""
        tracer, targets = self._tracer(), reached_by(self.plan, on)
        found = answers(tracer, stored_stream(self.plan, stream), tuples)
        return impact(tracer, found, targets, held(), self.session)

    def _tracer(self) -> Tracer:
        return Tracer(self.plan, self.store, self.lane, self.watch)
