"""`doctor`: what clew needs of this machine, and what to do where it is not there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from clew.cli.output import FAILED, MISSING, Out


def doctor(
    out: Out,
    store: Annotated[
        Path | None, typer.Option("--store", envvar="CLEW_STORE", metavar="DIR", help="Look at a store's disk too.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also start Spark and run a job.")] = False,
) -> None:
    """Look for Java, memory, disk space and packages; say what is found and what to do."""
    from clew.engine.doctor import check_job, diagnose
    from clew.engine.spark_session import local_session

    if deep and out.verbose:
        checks = diagnose(store)
        if all(check.ok for check in checks):
            checks.append(check_job(partial(local_session, verbose=True)))
    else:
        checks = diagnose(store, deep=deep)
    wrong = [check for check in checks if not check.ok]
    if out.json:
        out.document({"ok": not wrong, "checks": [vars(check) for check in checks]})
    else:
        rows = [("ok" if c.ok else "NOT OK", c.name, c.found, c.advice or MISSING) for c in checks]
        out.table(("", "what", "found", "advice"), rows)
        names = ", ".join(check.name for check in wrong)
        out.say(f"to be put right: {names}" if wrong else "all is well", style="red" if wrong else "green")
    if wrong:
        raise typer.Exit(FAILED)
