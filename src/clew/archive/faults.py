"""Where a commit can be cut in two: tests kill the process at every one of these steps.

`step(name)` stands between any two durable actions. It does nothing unless the environment variable
`CLEW_FAULT` (or `trip_at`) names the step, as `"record-created"` or, for its third passing, `"record-created:3"`;
then the process ends at once, as `kill -9` would end it.
"""

from __future__ import annotations

import os

STEPS = (
    "bucket-written",  # a bucket is on disk, no record names it
    "commit-begun",  # all buckets of the epoch are there
    "buckets-synced",  # and durable
    "record-written",  # the record has a temporary name
    "record-created",  # the epoch is committed
    "record-durable",  # and survives a power failure
    "delta-written",  # one of the epoch's Delta tables is about to follow
    "delta-followed",  # all have
    "delta-checkpointed",  # a Delta log has a checkpoint, its old entries are still there
    "base-written",  # the base has a temporary name
    "base-created",  # the base is there, the records it folds too
    "records-dropped",  # the records it folds are gone
    "checkpoint-tables",  # the tables of a checkpoint are there, its manifest is not
    "checkpoint-written",  # the checkpoint is whole, no record names it
    "file-deleted",  # one of several removed files is gone
)

trip_at: str | None = os.environ.get("CLEW_FAULT") or None
_passed: dict[str, int] = {}


def step(name: str) -> None:
    """Pass the step `name`; end the process here if a test asks for it."""
    if trip_at is None:
        return
    wanted, _, nth = trip_at.partition(":")
    if name == wanted:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] == int(nth or 1):
            os._exit(137)
