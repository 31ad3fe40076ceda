"""clew: stream queries on Apache Spark whose every answer can be traced, corrected and replayed."""

from clew.errors import ClewError
from clew.network.network import Network
from clew.network.stream import Stream, function
from clew.session import Engine, FarAheadWarning, open

__all__ = ["ClewError", "Engine", "FarAheadWarning", "Network", "Stream", "function", "open"]
