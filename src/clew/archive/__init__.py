"""The archive: everything a store holds, and the one commit by which it changes."""

from clew.archive.buckets import write_bucket
from clew.archive.gone import Gone, Hole
from clew.archive.record import EpochRecord, FileEntry, FolderChange, Merge, Pruned
from clew.archive.state import Folder, State
from clew.archive.store import Store

__all__ = [
    "EpochRecord",
    "FileEntry",
    "Folder",
    "FolderChange",
    "Gone",
    "Hole",
    "Merge",
    "Pruned",
    "State",
    "Store",
    "write_bucket",
]
