"""Annotations as they are asked for, and as they are stored.

The table `annotations` has a row for each annotated tuple and stream in I: the output, the stream, the tuple's seq,
its epoch, and the set as one encoded value (`clew.model.encodings`). Values may be relative to those before them of
the same output and stream; each bucket starts anew, and compaction puts buckets one behind the other as they are.
Of a stream with tids the set holds seqs, of an inner box places as numbers (`place_tids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pyarrow as pa

from clew.archive.record import EpochRecord
from clew.archive.store import Store
from clew.engine.annotating import in_order, take
from clew.engine.annotator import Annotator
from clew.engine.instrument import Instrumented, instrumented
from clew.engine.lineage import Modes
from clew.engine.plan import Plan
from clew.engine.stored import EPOCH, SEQ
from clew.errors import LineageError, nearest
from clew.model.encoded import CHAIN
from clew.model.encodings import Encoding, decode_one, encode
from clew.model.rows import Ints
from clew.model.tid_sets import Ranges
from clew.network.naming import shown

TABLE = "annotations"
OF, INPUT, VALUE = "of", "input", "value"
SCHEMA = pa.schema(
    [(OF, pa.string()), (INPUT, pa.string()), (SEQ, pa.int64()), (EPOCH, pa.int64()), (VALUE, pa.binary())]
)
BUCKET_TIDS = 4_000_000  # written out: 32 MB


@dataclass(frozen=True)
class Annotate:
    """Which outputs are annotated while a run goes on: P(O, I), and in which encoding.

    `outputs`: an output or kept stream, several, or each with the streams or boxes of its I; all sources that lead to
    it if none are named. `encoding`: `"adaptive"`, `"interval"`, `"delta"`, `"lz"`, or `"single"`, the plain list, to
    compare with.
    """

    outputs: str | Iterable[str] | Mapping[str, str | Iterable[str] | None]
    encoding: Encoding = "adaptive"
    _each: Mapping[str, tuple[str, ...] | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.encoding not in get_args(Encoding):
            raise LineageError(
                f"annotations cannot be encoded as {_named(self.encoding)}",
                details=[f"encodings: {', '.join(get_args(Encoding))}"],
                hint=nearest(str(self.encoding), get_args(Encoding)),
            )
        given = [self.outputs] if isinstance(self.outputs, str) else self.outputs
        if not isinstance(given, Iterable):
            raise LineageError(f"annotate={shown(given)} names no output", hint="annotate={'output': ['source', ...]}")
        pairs = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
        each = {name: None if of is None else (of,) if isinstance(of, str) else tuple(of) for name, of in pairs.items()}
        object.__setattr__(self, "_each", each)

    @staticmethod
    def of(given: object) -> Annotate:
        """From what `clew.open` takes."""
        return given if isinstance(given, Annotate) else Annotate(given)  # type: ignore[arg-type]

    def networks(self, plan: Plan, modes: Modes) -> list[Instrumented]:
        """The parts of a network that carry what is asked for; `LineageError` names what cannot be annotated."""
        steps = {**plan.ends, **plan.stored}
        found = instrumented(plan, self._resolved(plan), steps)
        for step in (step for network in found for step in network.kernels):
            if modes[step.box] == "off":
                raise LineageError(
                    f"annotations pass box '{step.box}', of which no lineage is written: a restart would lose them",
                    hint="lineage='exact' or 'interval', for this box at least",
                )
        return found

    def _resolved(self, plan: Plan) -> dict[str, tuple[str, ...]]:
        """By output the streams of its I."""
        leads, found = leading(plan), dict[str, tuple[str, ...]]()
        for stream, names in self._each.items():
            if stream not in plan.stored or stream in plan.sources:
                outputs = [name for name in plan.stored if name not in plan.sources]
                raise LineageError(
                    f"network '{plan.network.name}' has no output {_named(stream)} to annotate",
                    details=[f"outputs and kept streams: {', '.join(outputs)}"],
                    hint=nearest(stream, outputs) if isinstance(stream, str) else None,
                )
            before = leads[stream]
            found[stream] = tuple(n for n in plan.sources if n in before) if names is None else names
            if not found[stream]:
                raise LineageError(f"output '{stream}' shall be annotated by no stream", hint="None means all sources")
            for name in found[stream]:
                if name not in before:
                    raise LineageError(
                        f"output '{stream}' is not made of {_named(name)}, by which it shall be annotated",
                        details=[f"it is made of: {', '.join(sorted(before))}"],
                        hint=nearest(name, before) if isinstance(name, str) else None,
                    )
        return found


def _named(name: object) -> str:
    return f"'{name}'" if isinstance(name, str) else shown(name)


def leading(plan: Plan) -> dict[str, frozenset[str]]:
    """For each stored stream all streams and boxes that its rows can be made of."""
    behind: dict[str, frozenset[str]] = {}
    for step in plan.steps.values():
        own = {step.box} if plan.ends[step.box] == step.name else set()
        own |= {stream for stream, of in plan.stored.items() if of == step.name}
        behind[step.name] = frozenset(own).union(*(behind[i] for i in step.inputs))
    return {stream: behind[step] for stream, step in plan.stored.items()}


def add_annotations(
    store: Store,
    record: EpochRecord,
    annotator: Annotator,
    made: Mapping[str, Mapping[str, Ranges]],
    first_seq: Mapping[str, int],
) -> None:
    """Add the annotations of an epoch's rows, by output and stream, in buckets that bound the memory it takes."""
    change = record.folder("tables", TABLE)
    for stream, columns in made.items():
        keys = annotator.inputs_of(stream)
        change.meta = {**change.meta, stream: keys}
        for name, column in columns.items():
            for part in _parts(column.hi - column.lo):
                index = np.arange(part.start, part.stop)
                values = encode(in_order(take(column, index)), annotator.encoding).cast(pa.binary())
                same = [_repeated(text, len(index)) for text in (stream, keys[name])]
                numbers = [pa.array(first_seq[stream] + index), pa.array(np.full(len(index), record.epoch))]
                table = pa.table([*same, *numbers, values], schema=SCHEMA)
                change.add.append(store.write_bucket("tables", TABLE, table))


def _parts(sizes: Ints) -> list[slice]:
    """Rows together as long as their sets, written out, are not too much."""
    ends, found, start = np.cumsum(sizes), [], 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + BUCKET_TIDS, side="right")))
        found.append(slice(start, stop))
        start = stop
    return found


def _repeated(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [text]).cast(pa.string())


def inputs_of(store: Store, stream: str) -> dict[str, str]:
    """The streams by which tuples of an output are annotated, each with its key in the table."""
    folder = store.state.tables.get(TABLE)
    return {} if folder is None else dict(folder.meta.get(stream, {}))


def one(store: Store, stream: str, seq: int, epoch: int) -> dict[str, Ints] | None:
    """The annotation of one tuple alone, by stream; reads no more values than it is relative to. None: it has none."""
    found = {}
    for name, key in inputs_of(store, stream).items():
        table = store.read_table(
            TABLE, [SEQ, VALUE], {SEQ: (seq - CHAIN + 1, seq), EPOCH: (epoch, epoch)},
            equals={OF: stream, INPUT: key}, kind="tables",
        )  # fmt: skip
        if not len(table) or table.column(SEQ)[-1].as_py() != seq:
            continue
        found[name] = decode_one(table.column(VALUE).combine_chunks(), len(table) - 1)
    return found or None
