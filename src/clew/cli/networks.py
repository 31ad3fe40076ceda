"""Networks in users' files: found by running the file, up to where it would open a store."""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import clew
from clew.errors import ClewError, NetworkError
from clew.network.network import Network


class _StoreOpened(BaseException):
    """The file has come to where it opens a store: its networks are built."""


def load_network(file: Path, name: str | None = None) -> Network:
    """The network that a file defines at its top level, or hands to `clew.open`; by its name if there are several."""
    networks = _networks(file)
    found = {network.name: network for network in networks}
    if not found:
        raise NetworkError(
            f"'{file}' defines no network", hint='define one at the top level: net = clew.Network("...")'
        )
    twice = next((n.name for n in networks if found[n.name] is not n and name in (None, n.name)), None)
    if twice is not None:
        raise NetworkError(f"'{file}' has two networks of the name '{twice}'", hint="give one another name")
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        what = "has several networks, say which" if name is None else f"has no network '{name}'"
        raise typer.BadParameter(f"'{file}' {what}: {', '.join(found)}", param_hint="--network")
    return found[name]


def _networks(file: Path) -> list[Network]:
    module = types.ModuleType(f"_clew_file_{file.stem}")
    module.__file__ = str(file)
    opened: list[Network] = []
    # What the file prints is no data of ours.
    with _importable(file, module), _stores_shut(opened), contextlib.redirect_stdout(sys.stderr):
        try:
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
        except (_StoreOpened, SystemExit):
            pass
        except ClewError:
            raise
        except Exception as error:
            if _lacks_session(error):
                raise NetworkError(
                    f"'{file}' makes a pyspark Column before a Spark session is started",
                    hint="write it as text, or start one above it: pyspark.sql.SparkSession.builder.getOrCreate()",
                    at=_line_in(file, error),
                ) from error
            raise NetworkError(
                f"'{file}' cannot be run",
                details=[f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"],
                at=_line_in(file, error),
            ) from error
    named = [value for value in vars(module).values() if isinstance(value, Network)]
    return list(dict.fromkeys([*named, *opened]))


@contextlib.contextmanager
def _importable(file: Path, module: types.ModuleType) -> Iterator[None]:
    """As for a script: what lies beside the file can be imported, now and when its functions run.

    By then it comes last, so that no file beside it hides a library.
    """
    folder = str(file.resolve().parent)
    if mine := folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if mine and folder in sys.path:
            sys.path.remove(folder)
            sys.path.append(folder)
        # A module that cannot be imported by name has its functions sent to Spark's workers by value.
        del sys.modules[module.__name__]


@contextlib.contextmanager
def _stores_shut(opened: list[Network]) -> Iterator[None]:
    def stop(_path: object, network: Network, **_: Any) -> None:
        opened.append(network)
        raise _StoreOpened

    had, before = "open" in vars(clew), vars(clew).get("open")
    vars(clew)["open"] = stop
    try:
        yield
    finally:
        if had:
            vars(clew)["open"] = before
        else:
            del vars(clew)["open"]


def _lacks_session(error: Exception) -> bool:
    """Whether pyspark refuses for want of a session; of its functions some only assert that there is one."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename).parts
    if "pyspark" not in raised_in:
        return False
    return isinstance(error, AssertionError) or "SESSION" in str(getattr(error, "getCondition", str)())


def _line_in(file: Path, error: Exception) -> str | None:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else None
