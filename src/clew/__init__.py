"""clew: stream queries on Apache Spark, exact, durable and replayable."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clew.engine.annotations import Annotate
    from clew.errors import ClewError
    from clew.network.network import Network
    from clew.network.stream import Stream, function
    from clew.opening import open
    from clew.session import Engine, FarAheadWarning

__all__ = ["Annotate", "ClewError", "Engine", "FarAheadWarning", "Network", "Stream", "function", "open"]

# Imported when first asked for: a network can be built and checked in a fraction of the time Spark takes to import.
_HOMES = {
    "Annotate": "clew.engine.annotations",
    "ClewError": "clew.errors",
    "Network": "clew.network.network",
    "Stream": "clew.network.stream",
    "function": "clew.network.stream",
    "Engine": "clew.session",
    "FarAheadWarning": "clew.session",
    "open": "clew.opening",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'clew' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
