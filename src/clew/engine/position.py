"""Where a run goes on: Spark's checkpoint of its query, kept in the store under the names of the sources."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clew.archive.disk import write_over, writing
from clew.archive.store import Store
from clew.errors import SourceFailed


@dataclass(frozen=True)
class Position:
    """The folder of a query; beside what Spark keeps there, what its sources are."""

    names: tuple[str, ...]
    place: Path

    @staticmethod
    def of(store: Store, names: Iterable[str]) -> Position:
        known = tuple(sorted(names))
        return Position(known, store.layout.streaming / "+".join(known))

    @property
    def begun(self) -> bool:
        """Whether a batch has been taken."""
        return any((self.place / "offsets").glob("[0-9]*"))

    @property
    def start_anew(self) -> str:
        """What to do where it cannot be gone on."""
        return f"delete '{self.place}' to start at the beginning of {self._sources}"

    def query_id(self) -> str:
        """Spark's own name of the query: new if its checkpoint was lost, so that no batch is taken for an old one."""
        return str(json.loads((self.place / "metadata").read_text().splitlines()[0])["id"])

    def take(self, sources: Mapping[str, str]) -> None:
        """Note what the sources are; `SourceFailed` if the position belongs to others, or is damaged."""
        known = self._known() if self.begun else {}
        for name, what in sources.items():
            if known.get(name, what) != what:
                raise SourceFailed(
                    f"source '{name}' was {known[name]} in earlier runs, and is now {what}",
                    details=["where a run goes on is kept in the store under the names of its sources"],
                    hint=f"give the same source, or {self.start_anew}: what it has in common with the old one "
                    "is then late or a duplicate",
                )
        self._check_metadata()
        if known != sources:
            with writing("where a run goes on", self._record):
                self.place.mkdir(parents=True, exist_ok=True)
                write_over(self._record, json.dumps(sources).encode(), durable=False)

    @property
    def _record(self) -> Path:
        return self.place / "clew-sources.json"

    @property
    def _sources(self) -> str:
        return f"source{'s' if len(self.names) > 1 else ''} {', '.join(map(repr, self.names))}"

    def _known(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._record.read_text()))
        except (OSError, ValueError):  # a position of before there was this record, or cut off
            return {}

    def _check_metadata(self) -> None:
        file = self.place / "metadata"
        try:
            self.query_id()
        except (OSError, ValueError, LookupError, TypeError) as error:
            if self.begun:
                raise SourceFailed(
                    f"where a run of {self._sources} goes on cannot be read",
                    details=[f"file: {file}", "cause: " + ("it is empty" if file.exists() else "it is missing")],
                    hint=f"{self.start_anew}: what was fed before is then late or a duplicate",
                ) from error
            for left in (file, file.with_name(".metadata.crc")):  # of a run that was cut off before its first batch
                left.unlink(missing_ok=True)
