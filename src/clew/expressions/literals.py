"""DATE and TIMESTAMP literals in their full form, on the axes of their types."""

from __future__ import annotations

import datetime as dt
import re

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?")


def date_literal(text: str) -> int | None:
    """Days since 1970 of `YYYY-MM-DD`; None for any other form.

    >>> date_literal("1970-01-31")
    30
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days
    except ValueError:
        return None


def timestamp_literal(text: str) -> int | None:
    """Microseconds since 1970 UTC of `YYYY-MM-DD hh:mm:ss[.ffffff]`; None for any other form.

    >>> timestamp_literal("1970-01-01 00:00:01.5")
    1500000
    """
    if not _TIMESTAMP.fullmatch(text):
        return None
    head, _, fraction = text.partition(".")
    try:
        moment = dt.datetime.fromisoformat(f"{head}.{fraction.ljust(6, '0')}")
    except ValueError:
        return None
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
