"""Time zones: one spelling for each offset, and the same meaning for Spark, Arrow and Python."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

UTC_NAMES = frozenset({"utc", "etc/utc", "z", "gmt", "etc/gmt", "+00:00", "-00:00", "etc/uct", "zulu", "etc/zulu"})
MOST_HOURS = 18  # Java knows no offset beyond it


def normal_zone(name: str) -> str | None:
    """The zone as a name that Spark, Arrow and Python's `tz` know, or an offset; None if there is no such zone.

    >>> normal_zone("Z"), normal_zone("+02:00"), normal_zone("+99:99")
    ('UTC', '+02:00', None)
    """
    if name.lower() in UTC_NAMES:
        return "UTC"
    try:
        tz(name)
    except (ValueError, OSError, LookupError):
        return None
    return name


def tz(name: str) -> dt.tzinfo:
    """Python's zone of that name or offset."""
    offset = re.fullmatch(r"([+-])(\d\d):([0-5]\d)", name)
    if offset is None:
        return zoneinfo.ZoneInfo(name)
    size = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    if size > dt.timedelta(hours=MOST_HOURS):
        raise ValueError(f"no offset {name}")
    return dt.timezone(size if offset[1] == "+" else -size)
