"""The journal: epoch records in `_epochs/`, and the bases into which they are folded.

Opening reads the newest base that is whole and the records behind it. Every `fold_every` epochs a new base is
written; records that the base before it already holds are deleted, so there are never more than two bases
and `2 * fold_every` records.
"""

from __future__ import annotations

from clew.archive import faults
from clew.archive.disk import sync_folder, write_new, write_over, writing
from clew.archive.ids import SeenIds
from clew.archive.layout import Layout, base_epoch, record_epoch
from clew.archive.record import EpochRecord, decode, encode
from clew.archive.state import State
from clew.errors import Fenced, StoreError

FOLD_EVERY = 32
_TRIES = 5


class Journal:
    """The records of one store."""

    def __init__(self, layout: Layout, *, durable: bool = True, fold_every: int | None = None) -> None:
        self.layout = layout
        self.durable = durable
        self.fold_every = fold_every or FOLD_EVERY
        self.ids = SeenIds(layout.epochs)
        self._base = 0
        self._base_segments: set[str] = set()

    def load(self) -> State:
        """The fold of all records. A reader beside a writer starts again if records are folded under it."""
        for _ in range(_TRIES - 1):
            try:
                return self._load()
            except FileNotFoundError:
                continue
        try:
            return self._load()
        except FileNotFoundError as error:
            raise StoreError("the store lacks an epoch record", details=[f"file: {error.filename}"]) from error

    def _load(self) -> State:
        records, bases = self._listing()
        state, damage = State(), None
        for epoch in sorted(bases, reverse=True):
            path = self.layout.base(epoch)
            try:
                state = State.from_json(decode(path.read_bytes(), path))
                break
            except StoreError as error:
                damage = damage or error
        # A damaged base is no loss while the records that it folds are still there.
        if damage is not None and not {*range(state.epoch + 1, max(bases) + 1)} <= records:
            raise damage
        self._base, self._base_segments = state.epoch, set(state.id_segments)
        for epoch in range(state.epoch + 1, max(records, default=0) + 1):
            path = self.layout.record(epoch)
            state.apply(EpochRecord.from_json(decode(path.read_bytes(), path)))
        return state

    def create(self, record: EpochRecord) -> None:
        """Create the record: the commit. `Fenced` if another engine has committed this epoch, or gone past it."""
        path = self.layout.record(record.epoch)
        with writing("an epoch record", path):
            try:
                write_new(path, encode(record.to_json()), durable=self.durable, between="record-written")
            except FileExistsError:
                raise self._fenced(record.epoch) from None
        records, bases = self._listing()
        if max(*records, *bases, 0) > record.epoch:
            # The others' record of this epoch is folded and deleted already; no reader looks at this one.
            path.unlink()
            raise self._fenced(record.epoch)
        faults.step("record-created")

    def check_not_fenced(self, epoch: int) -> None:
        """`Fenced` if another engine has committed this epoch, or gone past it."""
        records, bases = self._listing()
        if max(*records, *bases, 0) >= epoch:
            raise self._fenced(epoch)

    def settle(self, epoch: int) -> None:
        """Make the record just created survive a power failure."""
        if self.durable:
            try:
                sync_folder(self.layout.epochs)
            except OSError as error:
                raise StoreError(
                    f"epoch {epoch} is committed, but may not survive a power failure",
                    details=[f"folder: {self.layout.epochs}", f"cause: {error}"],
                    hint="open the store again, and look at the disk",
                ) from error
        faults.step("record-durable")

    def fold_due(self, epoch: int) -> bool:
        return epoch - self._base >= self.fold_every

    def fold(self, state: State) -> None:
        """Write `state` as a base, and delete what the base before it holds."""
        path = self.layout.base(state.epoch)
        before = self._base
        with writing("the folded records", path):
            self.ids.fold(state, durable=self.durable)
            write_over(path, encode(state.to_json()), durable=self.durable, between="base-written")
        faults.step("base-created")
        keep = self._base_segments | set(state.id_segments)
        self._base, self._base_segments = state.epoch, set(state.id_segments)
        records, bases = self._listing()
        for epoch in sorted(records):
            if epoch <= before:
                self.layout.record(epoch).unlink(missing_ok=True)
        for epoch in bases:
            if epoch < before:
                self.layout.base(epoch).unlink(missing_ok=True)
        self.ids.sweep(keep)
        faults.step("records-dropped")

    def _listing(self) -> tuple[set[int], set[int]]:
        names = [path.name for path in self.layout.epochs.iterdir()]
        records = {epoch for name in names if (epoch := record_epoch(name)) is not None}
        bases = {epoch for name in names if (epoch := base_epoch(name)) is not None}
        return records, bases

    def _fenced(self, epoch: int) -> Fenced:
        return Fenced(
            f"another engine has committed epoch {epoch} to store '{self.layout.root}'",
            details=["this engine's epoch is not in the store"],
            hint="open the store again",
        )
