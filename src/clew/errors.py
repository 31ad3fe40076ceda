"""Every error a user can meet, with one form of message.

A message has a primary line (lower case, no full stop), then `detail` lines and
a `hint` where they help, and the place in the user's file where the box was made:

    UnknownColumn: box 'overheating.average' (window) aggregates column 'celcius', which its input does not have
      columns: ts, sensor, celsius
      hint: did you mean 'celsius'?
      at examples/overheating.py:14
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class ClewError(Exception):
    """Base of all errors that clew raises on purpose."""

    def __init__(
        self, message: str, *, details: Iterable[str] = (), hint: str | None = None, at: str | None = None
    ) -> None:
        self.message = message
        self.details = tuple(details)
        self.hint = hint
        self.at = at
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [self.message, *self.details]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        if self.at:
            lines.append(f"at {self.at}")
        return "\n  ".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.details, self.hint, self.at)


def _rebuild(
    cls: type[ClewError], message: str, details: tuple[str, ...], hint: str | None, at: str | None
) -> ClewError:
    return cls(message, details=details, hint=hint, at=at)


# --- while a network is built, before Spark starts ---


class NetworkError(ClewError, ValueError):
    """A network that cannot be built."""


class UnknownColumn(NetworkError):
    """A box names a column that its input does not have."""


class DuplicateName(NetworkError):
    """Two boxes, streams or columns want the same name."""


class LineageError(NetworkError):
    """A lineage mode that does not exist, or that a box cannot have."""


class WindowError(NetworkError):
    """A window of size or slide zero, or one whose parts do not fit."""


class NonDeterministic(NetworkError):
    """A function whose value is not a function of its arguments."""


class SyntaxProblem(NetworkError):
    """An expression that is not Spark SQL."""


class SchemaError(NetworkError):
    """A schema that cannot be read, or one that does not fit."""


class NotRewritable(NetworkError):
    """A box whose provenance no standard operators compute."""


class TypeProblem(ClewError, TypeError):
    """An expression or a box over types that do not fit; found at `open`."""


# --- stores ---


class StoreError(ClewError, RuntimeError):
    """A store that cannot be used."""


class NotAStore(StoreError):
    """A folder that holds something else."""


class StoreInUse(StoreError):
    """Another engine has the store open."""


class StoreVersion(StoreError):
    """A store written by another version of clew."""


class StoreSettings(StoreError):
    """A store opened under other pinned settings than it was made with."""


class NetworkChanged(StoreError):
    """The network does not continue what the store holds."""


class StoreFull(StoreError, OSError):
    """The disk under the store is full."""


class Fenced(StoreError):
    """Another engine has committed to the store since it was opened."""


class EncodingError(ClewError, ValueError):
    """Encoded lineage that cannot be what clew wrote, or sets that it cannot write."""


# --- running ---


class BatchError(ClewError, ValueError):
    """A batch that as a whole does not fit its stream."""


class UnknownEpoch(ClewError, LookupError):
    """No epoch of that number."""


class UnknownStream(ClewError, KeyError):
    """No stream of that name."""

    def __str__(self) -> str:
        return self._text()


class Finished(ClewError, RuntimeError):
    """Feeding after `finish()`."""


class TooOld(ClewError, LookupError):
    """What is asked for has aged out of the archive."""


class UnknownTuple(ClewError, LookupError):
    """A tuple that a stream does not have."""


class Untraced(ClewError, LookupError):
    """Lineage that was asked for and not noted when the tuples were made."""


class TooMuchAsked(ClewError, ValueError):
    """More at once than can be held."""


class NotReplayed(ClewError, RuntimeError):
    """Rows that cannot be made again, or came out otherwise."""


class CodeMissing(NotReplayed):
    """A user's function that is needed and not at hand: a store remembers its name and its mark."""


class SourceFailed(ClewError, RuntimeError):
    """A streaming source has failed or disappeared."""


class BoxFailed(ClewError, RuntimeError):
    """A box failed for a reason that is not one tuple's fault."""


class DeliveryFailed(ClewError, RuntimeError):
    """A receiver of an output has raised; the epoch is committed all the same."""


class JavaMissing(ClewError, RuntimeError):
    """No Java that Spark can use."""


@contextlib.contextmanager
def told_of(what: str, at: str) -> Iterator[None]:
    """Errors raised inside, which know of no box or stream, with what they are about and the user's line."""
    try:
        yield
    except ClewError as error:
        if error.at:
            raise
        raise type(error)(f"{what}: {error.message}", details=error.details, hint=error.hint, at=at) from error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint that offers the known name closest to `name`, if one is close.

    >>> nearest("celcius", ["ts", "celsius"])
    "did you mean 'celsius'?"
    """
    found = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f"did you mean '{found[0]}'?" if found else None
