"""A store looked into: explained without its lock, while an engine may be writing to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from clew.archive.store import Store
from clew.engine.catalyst import Catalyst
from clew.engine.evaluate import BoxStates
from clew.engine.lanes.driver import DriverLane
from clew.engine.marks import stored_boxes
from clew.engine.plan import Plan, build_plan
from clew.engine.recovery import check_continues, states_now
from clew.engine.replay import Watch
from clew.engine.typing import SparkTyper, StoredTyper
from clew.engine.zones import normal_zone
from clew.errors import StoreError
from clew.explain.explanation import Explanation
from clew.explain.forward import Held
from clew.explain.impact import Impact
from clew.explain.questions import Questions
from clew.network.network import Network
from clew.network.rebuild import missing_functions, rebuilt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[str], "SparkSession"]  # by the time zone that it must have


class Reader:
    """Explains what a store holds as of its last epoch when it was opened. It takes no lock and changes nothing.

    Without a `network` the one that the store remembers is built again; of users' functions a store knows the names
    only, and what would need one of them raises `CodeMissing`. `session` is asked for a Spark session when something
    needs one: an expression that clew cannot evaluate itself, or a frame.
    """

    def __init__(
        self, path: str | Path, network: Network | None = None, *, session: Session, watch: Watch | None = None
    ) -> None:
        self._store = Store.open(path, read_only=True)
        try:
            pinned = str(self._store.settings["time_zone"])
            zone = normal_zone(pinned) or pinned
            spark = _Once(session, zone)
            self._plan = _plan(self._store, network, SparkTyper(spark), zone)
            self._questions = Questions(self._plan, self._store, DriverLane(Catalyst(spark)), spark, watch)
        except BaseException:
            self._store.close()
            raise

    @property
    def network(self) -> Network:
        return self._plan.network

    @property
    def last_epoch(self) -> int:
        return self._store.last_epoch

    @property
    def missed(self) -> list[str]:
        """The users' functions that would have had to run for what was asked so far, and are not at hand."""
        return list(dict.fromkeys(f.__qualname__ for f in missing_functions(self.network) if f.called))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()

    def why(self, output: str, tuples: Any = None, *, of: Any = None) -> Explanation:
        """As `Engine.why`."""
        return self._questions.why(output, tuples, of)

    def impact(self, stream: str, tuples: Any, *, on: Any = None) -> Impact:
        """As `Engine.impact`; what boxes hold is had as an engine has it: from a checkpoint, and a replay behind it."""
        return self._questions.impact(stream, tuples, on, self._held)

    def _held(self) -> Held:
        if self._store.state.sources.get("finished"):
            return Held(BoxStates(), finished=True)
        questions = self._questions
        return Held(states_now(self._plan, self._store, questions.lane, questions.watch))


class _Once:
    """The session, asked for once."""

    def __init__(self, session: Session, zone: str) -> None:
        self._session, self._zone = session, zone
        self._found: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._found is None:
            self._found = self._session(self._zone)
        return self._found


def _plan(store: Store, network: Network | None, typer: SparkTyper, zone: str) -> Plan:
    """The plan of the network that is given, if the store continues with it; else of the one that it remembers."""
    known = store.state.network
    if known is None:
        raise StoreError(f"store '{store.layout.root}' has no epoch yet", hint="feed it something first")
    if network is not None:
        plan = build_plan(network, typer, zone)
        check_continues(plan, known, store)
        there = stored_boxes(known)  # what the network is to store from now on is not in the store yet
        return replace(plan, stored={stream: step for stream, step in plan.stored.items() if stream in there})
    typed = StoredTyper(known.get("typed", {}), typer)
    # the marks under which its lineage stands, also if an earlier clew made them of other facts
    return replace(build_plan(rebuilt(known), typed, zone), prints=dict(known["prints"]))


__all__ = ["Reader"]
