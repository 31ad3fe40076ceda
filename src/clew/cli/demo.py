"""`demo`: a store made and filled in a few seconds, and what can be done with it."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.explain import opened_reader
from clew.cli.output import Out, count, program
from clew.cli.stores import opened, print_table, progress, tuples
from clew.errors import NotAStore, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from clew.engine.runtime import Epoch

SENSORS, EPOCHS, SEED = 12, 8, 4
NEXT_SECONDS = 120
ID = "demo "


def demo(
    out: Out,
    store: Annotated[
        Path, typer.Option("--store", metavar="DIR", help="Where to make the store; a new folder.")
    ] = Path("demo-store"),
    rows: Annotated[int, typer.Option("--rows", min=1000, metavar="N", help="How many readings.")] = 240_000,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make it anew if it is there.")] = False,
) -> None:
    """Generate sensor readings, run a network over them, show its alarms, explain one, and say what to try next."""
    _make_room(store, fresh)
    started = time.perf_counter()
    done = _run(out, store, rows)
    seconds = time.perf_counter() - started
    alarms = sum(epoch.outputs.get("alarms", 0) for epoch in done)
    text, reading = _explained(out, store, alarms) if alarms else ("", "")
    steps = _next_steps(store, done[-1].number, alarms, reading)
    if out.json:
        facts = {"rows": sum(sum(e.admitted.values()) for e in done), "epochs": len(done), "alarms": alarms}
        out.document({"store": str(store), **facts, "seconds": round(seconds, 3), "next": [c for c, _ in steps]})
        return
    admitted = sum(sum(epoch.admitted.values()) for epoch in done)
    out.say(
        f"{count(admitted, 'reading')} of {SENSORS} sensors went through in {count(len(done), 'epoch')} "
        f"and {seconds:.1f} s, and are kept in '{store}'"
    )
    out.say(f"\n{count(alarms, 'alarm')}: three sensors or more above 90 degrees; the last ones", style="bold")
    with opened(store) as found:
        print_table(out, tuples(found, "alarms", 8, last=True)[0])
    out.say("\nwhat the epochs did, and each box in them", style="bold")
    progress(out, store=store, epochs=EPOCHS)
    if text:
        out.say("\nwhat the last alarm is made of, down to the readings", style="bold")
        out.text(text)
    out.say("\ntry next", style="bold")
    width = max(len(command) for command, _ in steps)
    narrow = width + 40 > Out.width()
    for command, why in steps:
        out.say(f"  # {why}\n  {command}" if narrow else f"  {command:<{width}}  # {why}")


def _make_room(store: Path, fresh: bool) -> None:
    """Refuse a folder that is in use; take away a store that a demo made, where that is wished."""
    from clew.archive.layout import MANIFEST
    from clew.archive.lock import StoreLock

    if not store.exists() or (store.is_dir() and not any(store.iterdir())):
        return
    if not (store / MANIFEST).is_file():
        raise NotAStore(f"'{store}' holds something else", hint="give a new folder: --store DIR")
    with opened(store) as found:
        if found.last_epoch and not found.ids(ID):
            raise StoreError(f"store '{store}' was made by no demo", hint="give a new folder: --store DIR")
    if not fresh and sys.stdin.isatty() and sys.stderr.isatty():
        fresh = typer.confirm(f"store '{store}' is there already; make it anew?", err=True)
    if not fresh:
        raise StoreError(f"store '{store}' is there already", hint="--fresh makes it anew; --store DIR, another")
    lock = StoreLock(store / "_lock")
    shutil.rmtree(store)
    lock.release()


def _run(out: Out, store: Path, rows: int) -> list[Epoch]:
    import clew
    from clew.cli.networks import load_network

    clew.open(store, clew.Network("demo")).close()  # a store is made in an empty folder only; now it can hold more
    program_file = store / "overheating.py"
    program_file.write_text((files("clew.cli") / "overheating.py").read_text())
    sensors = _Sensors()
    done = []
    with clew.open(store, load_network(program_file)) as engine, out.progress("demo", EPOCHS) as show_done:
        for number in range(EPOCHS):
            batch = sensors.readings(rows // SENSORS // EPOCHS)
            done.append(engine.feed("readings", batch, id=f"{ID}{number + 1}"))
            show_done(number + 1, f"{count((number + 1) * len(batch), 'reading')}")
    _write_csv(store / "next.csv", sensors.readings(NEXT_SECONDS))
    return done


def _explained(out: Out, store: Path, alarm: int) -> tuple[str, str]:
    """The last alarm explained, in short, and the number of a reading that it is made of."""
    with opened_reader(out, store) as reader:
        found = reader.why("alarms", alarm)
        return found.text(rows=3), found.tids[f"alarms:{alarm}"]["readings"][0].rpartition(":")[2]


def _next_steps(store: Path, epoch: int, alarm: int, reading: str) -> list[tuple[str, str]]:
    clew, at = program(), f"--store {shlex.quote(str(store))}"
    file, more = shlex.quote(str(store / "overheating.py")), shlex.quote(f"readings={store / 'next.csv'}")
    lineage = [
        (f"{clew} why alarms {alarm} {at} --verify", "that explanation again, longer, and proved by a replay"),
        (f"{clew} impact readings {reading} {at}", "the other way: what depends on a reading"),
    ]
    return [
        *(lineage if alarm else []),
        (f"{clew} streams {at}", "what is in the store"),
        (f"{clew} show alarms {at} --as-of {max(epoch // 2, 1)}", "the alarms as they were after an epoch"),
        (f"{clew} rejected {at}", "readings that could not be admitted, and why"),
        (f"{clew} late readings {at}", "readings that came too late"),
        (f"{clew} check {file}", "the network, checked in a second"),
        (f"{clew} run {file} {at} --source {more}", "feed the next readings; twice does no harm"),
    ]


@dataclass
class _Sensors:
    """Readings once a second, with outbreaks of heat, broken sensors, and a few that are late, doubled or nameless."""

    seconds: int = 0

    def __post_init__(self) -> None:
        import numpy as np

        self._random = np.random.default_rng(SEED)
        self._held: pa.Table | None = None

    def readings(self, seconds: int) -> pa.Table:
        """The next so many seconds, as they arrive."""
        import numpy as np
        import pyarrow as pa

        ts = np.repeat(np.arange(self.seconds, self.seconds + seconds), SENSORS)
        sensor = np.tile(np.arange(1, SENSORS + 1, dtype=np.int32), seconds)
        celsius = 72 + 4 * np.sin(ts / 900 + sensor) + self._random.normal(0, 1.5, len(ts))
        for start, first, many in self._outbreaks(seconds):
            inside = (ts >= start) & (ts < start + 7) & (sensor >= first) & (sensor < first + many)
            celsius[inside] += 24
        celsius[self._random.random(len(ts)) < 0.0005] = 999.0
        self.seconds += seconds
        arrived = pa.table({"ts": ts, "sensor": sensor, "celsius": np.round(celsius, 1)})
        return self._with_trouble(arrived)

    def _outbreaks(self, seconds: int) -> list[tuple[int, int, int]]:
        """Start, first sensor and number of sensors of one or two outbreaks."""
        starts = self.seconds + self._random.integers(seconds // 10, seconds * 9 // 10, 2)
        return [(int(s), int(self._random.integers(1, 8)), int(self._random.integers(2, 6))) for s in starts]

    def _with_trouble(self, arrived: pa.Table) -> pa.Table:
        """One reading comes an epoch late, one twice, one without its sensor."""
        import pyarrow as pa

        late, double, nameless = (int(i) for i in self._random.integers(0, len(arrived) - SENSORS, 3))
        odd = arrived.slice(nameless, 1).set_column(1, "sensor", pa.nulls(1, pa.int32()))
        kept = pa.concat_tables([arrived.slice(0, late), arrived.slice(late + 1)])
        parts = [kept, kept.slice(double, 1), odd] + ([self._held] if self._held is not None else [])
        self._held = arrived.slice(late, 1)
        return pa.concat_tables(parts)


def _write_csv(path: Path, table: Any) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)
