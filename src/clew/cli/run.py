"""`run`: a network fed from files, so that running it again goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from clew.cli.check import FileArgument, NetworkOption
from clew.cli.output import INTERRUPTED, Json, Out, count
from clew.cli.stores import STORE, StoreOption
from clew.errors import SourceFailed

if TYPE_CHECKING:
    from clew.engine.file_parts import Part
    from clew.engine.runtime import Epoch
    from clew.network.network import Network
    from clew.session import Engine

SourceOption = Annotated[
    list[str], typer.Option("--source", metavar="NAME=PATH", help="What feeds a source stream; once for each.")
]


def run(
    out: Out,
    file: FileArgument,
    source: SourceOption,
    store: StoreOption = STORE,
    network: NetworkOption = None,
    epochs_rows: Annotated[
        int, typer.Option("--epochs-rows", min=1, metavar="N", help="Records of a file that make an epoch.")
    ] = 100_000,
    id_prefix: Annotated[
        str | None,
        typer.Option("--id-prefix", metavar="TEXT", help="Know files by this and their names, not by where they lie."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help='Keep running, an epoch that often ("5 seconds"), till ctrl-C.'),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option("--time-zone", metavar="NAME", help="The time zone of a new store; without it, UTC."),
    ] = None,
    lineage: Annotated[
        list[str] | None,
        typer.Option("--lineage", metavar="MODE", help="exact (without it), interval or off; BOX=MODE for one box."),
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="End the sources afterwards: open windows close.")] = False,
) -> None:
    """Run a network over CSV, JSON-lines or Parquet files, or over folders of them.

    Running it again feeds only what is new.
    A file is read record by record; a folder, or anything with --every, by Spark.
    """
    from clew.cli.networks import load_network

    found = load_network(file, network)
    paths = _paths(source, found)
    _check_interval(every)
    modes = _modes(lineage or [])
    started = time.perf_counter()
    fed = _Fed()
    with _engine(out, store, found, time_zone, modes) as engine:
        if every is not None or any(path.is_dir() for path in paths.values()):
            before = _last_seqs(store, found)
            _stream(engine, paths, every, fed)
            fed.outputs = {name: seq - before[name] for name, seq in _last_seqs(store, found).items()}
        else:
            _Files(out, engine, paths, epochs_rows, id_prefix, _resumed(store)).feed(fed)
        if finish and not fed.stopped:
            fed.take(engine.finish())
        fed.outputs |= {name: 0 for name in found.outputs if name not in fed.outputs}
    _tell(out, store, fed, time.perf_counter() - started)
    if fed.stopped:
        out.say("stopped; all that was committed is kept")
        raise typer.Exit(INTERRUPTED)


@dataclass
class _Fed:
    """What a run did."""

    epochs: int = 0
    admitted: int = 0
    rejected: int = 0
    late: int = 0
    waiting: int = 0
    before: int = 0
    stopped: bool = False
    outputs: dict[str, int] = field(default_factory=dict)

    def take(self, epoch: Epoch) -> None:
        self.epochs += not epoch.repeated
        self.admitted += sum(epoch.admitted.values())
        self.rejected += epoch.rejected
        self.late += epoch.late
        self.waiting = epoch.waiting
        for name, rows in epoch.outputs.items():
            self.outputs[name] = self.outputs.get(name, 0) + rows


def _paths(given: list[str], network: Network) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise typer.BadParameter(f"'{text}' is not NAME=PATH", param_hint="--source")
        if name not in network.sources:
            known = ", ".join(network.sources)
            raise typer.BadParameter(
                f"network '{network.name}' has no source stream '{name}'; sources: {known}", param_hint="--source"
            )
        if name in paths:
            raise typer.BadParameter(f"'{name}' is given twice", param_hint="--source")
        if not Path(path).exists():
            raise typer.BadParameter(f"there is no '{path}'", param_hint="--source")
        paths[name] = Path(path)
    return paths


def _check_interval(every: str | None) -> None:
    from clew.engine.streaming import interval
    from clew.errors import BatchError

    try:
        if every is not None:
            interval(every)
    except BatchError:
        raise typer.BadParameter(
            f"'{every}' does not say how often to make an epoch, as '5 seconds' does", param_hint="--every"
        ) from None


def _modes(given: list[str]) -> dict[str, str]:
    """Modes of lineage by box, `"*"` for all others."""
    from clew.engine.lineage import MODES

    modes: dict[str, str] = {}
    for text in given:
        box, equals, mode = text.rpartition("=")
        box = box if equals else "*"
        if mode not in MODES:
            raise typer.BadParameter(f"no mode '{mode}'; modes: {', '.join(MODES)}", param_hint="--lineage")
        if box in modes:
            what = "all boxes" if box == "*" else f"box '{box}'"
            raise typer.BadParameter(f"a mode for {what} is given twice", param_hint="--lineage")
        modes[box] = mode
    return modes


def _engine(out: Out, store: Path, network: Network, time_zone: str | None, modes: Mapping[str, str]) -> Engine:
    """The store opened as it was made, if no time zone is asked for; a new one then under UTC."""
    import clew
    from clew.archive.layout import Layout
    from clew.archive.manifest import read_manifest

    layout = Layout(store)
    settings: Json = read_manifest(layout)["settings"] if layout.manifest.exists() else {}
    zone = time_zone or str(settings.get("time_zone", "UTC"))
    if not out.verbose:
        return clew.open(store, network, time_zone=zone, lineage=modes)
    from clew.engine.spark_session import local_session

    session = local_session(time_zone=zone, verbose=True)
    return clew.open(store, network, time_zone=zone, lineage=modes, spark=session)


def _stream(engine: Engine, paths: Mapping[str, Path], every: str | None, fed: _Fed) -> None:
    done = engine.run(dict(paths), available_now=every is None, processing_time=every)
    fed.epochs, fed.admitted, fed.rejected, fed.late = done.epochs, done.admitted, done.rejected, done.late
    fed.stopped = done.stopped


def _last_seqs(store: Path, network: Network) -> dict[str, int]:
    from clew.cli.stores import opened

    with opened(store) as found:
        streams = found.state.streams
        return {name: streams[name].seq if name in streams else 0 for name in network.outputs}


# --- files ---

ID = "clew run "


class _Done(NamedTuple):
    """How many records of a file the store has been fed, and how it began; ids of older stores do not say."""

    records: int = 0
    beginning: str = ""


def _resumed(store: Path) -> dict[tuple[str, str], _Done]:
    """What the store has been fed of each (stream, file)."""
    from clew.cli.stores import opened

    done: dict[tuple[str, str], _Done] = {}
    with opened(store) as found:
        for id in found.ids(ID):
            for stream, (file, _, end, *begins) in json.loads(id.removeprefix(ID)).items():
                done[stream, file] = max(done.get((stream, file), _Done()), _Done(end, *begins))
    return done


@dataclass
class _Files:
    """Files, fed part by part: an epoch is one part of each, under an id that says which."""

    out: Out
    engine: Engine
    paths: Mapping[str, Path]
    rows: int
    prefix: str | None
    done: Mapping[tuple[str, str], _Done]

    def feed(self, fed: _Fed) -> None:
        read = dict.fromkeys(self.paths, 0.0)
        fed.before = sum(self._done(name).records for name in self.paths)
        begins = {name: self._beginning(name) for name in self.paths}
        with self.out.progress("feeding", len(self.paths)) as show:
            for parts in self._rounds():
                id = {name: (self._known_as(name), p.start, p.end, begins[name]) for name, p in parts.items()}
                batches = {name: part.rows for name, part in parts.items()}
                fed.take(self.engine.feed_all(batches, id=ID + json.dumps(id, separators=(",", ":"))))
                read |= {name: part.read for name, part in parts.items()}
                show(sum(read.values()), f"{count(fed.epochs, 'epoch')}, {count(fed.admitted, 'tuple')}")

    def _rounds(self) -> Iterator[dict[str, Part]]:
        from clew.engine.file_parts import parts_of

        sources = self.engine.network.sources
        readers = [
            parts_of(path, sources[name].schema, self.rows, self._done(name).records)
            for name, path in self.paths.items()
        ]
        for parts in zip_longest(*readers):
            yield {name: part for name, part in zip(self.paths, parts, strict=True) if part is not None}

    def _beginning(self, name: str) -> str:
        """How a file begins; `SourceFailed` if it began otherwise when it was fed."""
        from clew.engine.file_parts import ENDS, beginning_of, is_readable

        path, before = self.paths[name], self._done(name).beginning
        found = beginning_of(path) if is_readable(path) else ""
        if before and found != before:
            raise SourceFailed(f"'{path}' does not begin as it did when it was fed", hint=ENDS)
        return found

    def _done(self, name: str) -> _Done:
        return self.done.get((name, self._known_as(name)), _Done())

    def _known_as(self, name: str) -> str:
        path = self.paths[name]
        return str(path.resolve()) if self.prefix is None else f"{self.prefix}{path.name}"


def _tell(out: Out, store: Path, fed: _Fed, seconds: float) -> None:
    if out.json:
        facts: dict[str, Any] = {"store": str(store), **vars(fed), "seconds": round(seconds, 3)}
        out.document(facts)
        return
    out.table(("output", "new rows"), list(fed.outputs.items()))
    parts = [f"{count(fed.admitted, 'tuple')} admitted in {count(fed.epochs, 'epoch')}, {seconds:.1f} s"]
    parts += [f"{number:,} {word}" for word, number in (
        ("rejected", fed.rejected), ("late", fed.late), ("waiting", fed.waiting)) if number]  # fmt: skip
    parts += [f"{count(fed.before, 'record')} had been fed before"] if fed.before else []
    out.say("; ".join(parts), style="dim")
