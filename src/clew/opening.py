"""Opening: a store and a network become an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clew.archive.layout import MANIFEST, Layout
from clew.archive.manifest import read_manifest
from clew.archive.store import Store
from clew.engine.annotations import Annotate
from clew.engine.lineage import Modes, check_modes
from clew.engine.plan import build_plan
from clew.engine.spark_session import check_session, local_session
from clew.engine.typing import SparkTyper
from clew.engine.zones import normal_zone
from clew.errors import NetworkError, StoreSettings, nearest
from clew.network.naming import calling_spot, shown
from clew.network.network import Network
from clew.network.rewrite import rewritten
from clew.session import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANES = ("auto", "driver", "spark")
REWRITE = "rewrite"


def open(
    path: str | Path,
    network: Network,
    *,
    spark: SparkSession | None = None,
    time_zone: str = "UTC",
    durable: bool = True,
    lane: str = "auto",
    lineage: str | Mapping[str, str] = "exact",
    annotate: Annotate | str | Sequence[str] | Mapping[str, str | Sequence[str] | None] | None = None,
    grace_s: float = 300,
) -> Engine:
    """Open the store at `path` for a network, or make it; the engine is a context manager.

    A local Spark session is started when the first thing needs one, unless `spark` is given. `lane` forces where
    epochs run: `"driver"`, `"spark"`, or by size. `lineage` says what epochs note so that answers can be explained:
    `"exact"`, `"interval"`, `"off"`, or a mode by box, `"*"` for all others; `"rewrite"`, kept to compare with, lets
    the network compute it: each output has another beside it, `NAME_provenance`. `annotate` has outputs annotated while
    epochs run, which `Engine.annotated` gives: `"alarms"`, by all sources; `{"alarms": ["readings"]}`, by streams or
    boxes; an `Annotate`, which has the encoding too. `durable=False` does not wait for the disk.
    """
    if not isinstance(network, Network):
        raise NetworkError(
            f"clew.open needs a network, not {shown(network)}",
            hint="clew.open(path, net), where net = clew.Network(...)",
            at=calling_spot().text,
        )
    if lane not in LANES:
        raise NetworkError(f"no lane '{lane}'", details=[f"lanes: {', '.join(LANES)}"], hint=nearest(lane, LANES))
    zone = normal_zone(time_zone) if isinstance(time_zone, str) else None
    if zone is None:
        named = f"'{time_zone}'" if isinstance(time_zone, str) else shown(time_zone)
        raise StoreSettings(f"no time zone {named}", hint="a name like 'Europe/Paris', or '+02:00'")
    if spark is not None:
        if not hasattr(spark, "createDataFrame"):
            raise NetworkError(
                f"clew.open was given spark={shown(spark)}",
                hint="a Spark session, or leave it out: one is started",
                at=calling_spot().text,
            )
        check_session(spark, zone)
    place = Path(path).absolute()  # Spark's processes need not be where this one is
    make = not (place / MANIFEST).exists()  # a store that a crash left half made is made again
    settings = {"time_zone": zone if make else _spelt(place, zone), "ansi": True, "case_sensitive": False}
    opener = Store.create if make else Store.open
    session, modes = _Session(spark, zone), Modes.of("off" if lineage == REWRITE else lineage)
    network = rewritten(network) if lineage == REWRITE else network
    plan = build_plan(network, SparkTyper(session), zone)
    check_modes(plan, modes)
    asked = None if annotate is None else Annotate.of(annotate)
    networks = [] if asked is None else asked.networks(plan, modes)
    store = opener(place, settings, durable=durable, grace_s=grace_s)
    try:
        return Engine(plan, store, session, lane, modes, networks, asked.encoding if asked else "adaptive")
    except BaseException:
        store.close()
        raise


def _spelt(place: Path, zone: str) -> str:
    """The zone as the store spells it, if that is the same one."""
    pinned = str(read_manifest(Layout(place))["settings"].get("time_zone", zone))
    return pinned if normal_zone(pinned) == zone else zone


class _Session:
    """The Spark session, started when it is first asked for."""

    def __init__(self, spark: SparkSession | None, time_zone: str) -> None:
        self._spark, self._time_zone = spark, time_zone

    def __call__(self) -> SparkSession:
        if self._spark is None:
            self._spark = local_session(time_zone=self._time_zone)
        return self._spark
