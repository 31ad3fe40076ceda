"""Which ids of callers' batches were seen, for ever: a growing set that no base has to hold whole.

Ids since the last base stand in the state; each fold moves them to a segment file `_epochs/ids-N.json`.
Once `MERGE_AT` small segments stand at the end they become one, so an id is rewritten a bounded number of times.
"""

from __future__ import annotations

from pathlib import Path

from clew.archive.disk import write_over
from clew.archive.layout import ids_epoch
from clew.archive.record import decode, encode
from clew.archive.state import State

MERGE_AT = 32
LARGE = 65_536


class SeenIds:
    """The ids of one store's segments, loaded when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, dict[str, int]] = {}

    def find(self, id: str, state: State) -> int | None:
        """The epoch of the batch with this id; None if there was none."""
        if id in state.ids:
            return state.ids[id]
        return next((found for name in state.id_segments if (found := self._load(name).get(id)) is not None), None)

    def starting(self, prefix: str, state: State) -> dict[str, int]:
        """All ids that start so, with their epochs."""
        parts = [*(self._load(name) for name in state.id_segments), state.ids]
        return {id: epoch for part in parts for id, epoch in part.items() if id.startswith(prefix)}

    def fold(self, state: State, *, durable: bool) -> None:
        """Move the state's ids to a segment; the base that the caller writes next names it."""
        if not state.ids:
            return
        name = f"ids-{state.epoch:012d}.json"
        tail = _small_tail(state.id_segments)
        taken = tail if len(tail) + 1 >= MERGE_AT else []
        ids: dict[str, int] = {}
        for segment in taken:
            ids |= self._load(segment)
        ids |= state.ids
        write_over(self._folder / name, encode({"ids": ids}), durable=durable)
        self._loaded[name] = ids
        for segment in taken:
            del self._loaded[segment], state.id_segments[segment]
        state.id_segments[name] = len(ids)
        state.ids = {}

    def sweep(self, keep: set[str]) -> None:
        """Delete segments that neither of the two bases names."""
        for path in self._folder.iterdir():
            if ids_epoch(path.name) is not None and path.name not in keep:
                path.unlink(missing_ok=True)

    def _load(self, name: str) -> dict[str, int]:
        if name not in self._loaded:
            path = self._folder / name
            self._loaded[name] = decode(path.read_bytes(), path)["ids"]
        return self._loaded[name]


def _small_tail(segments: dict[str, int]) -> list[str]:
    tail: list[str] = []
    for name, count in reversed(segments.items()):
        if count >= LARGE:
            break
        tail.insert(0, name)
    return tail
