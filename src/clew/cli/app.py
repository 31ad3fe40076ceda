"""The command line: one verb, one function."""

from __future__ import annotations

from typing import Annotated

import typer

from clew.cli import bench, check, demo, doctor, explain, run, stores
from clew.cli.output import verb

app = typer.Typer(
    name="clew",
    help="Stream queries on Apache Spark: exact, durable and replayable, over all that was ever fed to a store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

GROUPS = {
    "Start": (demo.demo, doctor.doctor),
    "Networks": (check.check, check.graph, run.run),
    "Lineage": (explain.why, explain.impact),
    "Stores": (stores.streams, stores.show, stores.rejected, stores.late, stores.progress),
}

for panel, verbs in GROUPS.items():
    for call in verbs:
        app.command(rich_help_panel=panel)(verb(call))
app.command(rich_help_panel="Measure", cls=bench.BenchCommand)(verb(bench.bench))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"clew {version('clew')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
