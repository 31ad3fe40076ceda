"""`why` and `impact`: tuples explained from the store alone, without its lock, and without Spark if it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.output import FAILED, Json, Out, count
from clew.cli.stores import STORE, StoreOption

if TYPE_CHECKING:
    from clew.explain.answers import Answers
    from clew.explain.explanation import Explanation
    from clew.explain.impact import Impact, ImpactProof
    from clew.explain.proof import Counterfactual, Proof
    from clew.explain.reader import Reader

    Tested = Proof | ImpactProof | Counterfactual

TuplesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TUPLE", help="Tuples by number or tid: 3, or alarms:3.")
]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="The tuples for which this holds, instead of numbers.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many tuples; without it 5 of a condition."),
]
FileOption = Annotated[
    Path | None,
    typer.Option("--network-file", metavar="FILE", exists=True, dir_okay=False,
                 help="The file that defines the network: the store does not hold the code of functions."),
]  # fmt: skip
NetworkOption = Annotated[str | None, typer.Option("--network", metavar="NAME", help="Which network of that file.")]
MOST = 5


def why(
    out: Out,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="An output, a kept stream or a source.")],
    tuples: TuplesArgument = None,
    where: WhereOption = None,
    of: Annotated[
        list[str] | None,
        typer.Option("--of", metavar="STREAM", help="Tell it in terms of this stream or box; all sources without it."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Prove it by replaying; exit 1 if it fails.")] = False,
    counterfactual: Annotated[
        bool, typer.Option("--counterfactual", help="Replay without the input tuples: what becomes of it?")
    ] = False,
    limit: LimitOption = None,
    store: StoreOption = STORE,
    network_file: FileOption = None,
    network: NetworkOption = None,
) -> None:
    """Explain tuples: which input tuples they are made of, box by box."""
    wanted = _wanted(tuples, where)
    tested: dict[str, Tested] = {}
    with opened_reader(out, store, network_file, network) as reader:
        found = reader.why(stream, wanted, of=of or None)
        asked, most = len(found.answers), limit or (len(wanted) if tuples else MOST)
        if asked > most:
            found = reader.why(stream, found.answers.seq[:most].tolist(), of=of or None)
        told = _told(out, found)
        if verify:
            tested["proof"] = found.verify()
        if counterfactual:
            tested["counterfactual"] = found.counterfactual()
        missed = reader.missed
    _give(out, told, asked, tested)
    _say_rest(out, found.answers, asked, missed)
    _leave(tested)


def impact(
    out: Out,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A source, or another stream that is stored.")],
    tuples: TuplesArgument = None,
    where: WhereOption = None,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="STREAM", help="Only what depends in this stream or box; all outputs without it."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Explain all outputs behind them; exit 1 if it fails.")
    ] = False,
    limit: LimitOption = None,
    store: StoreOption = STORE,
    network_file: FileOption = None,
    network: NetworkOption = None,
) -> None:
    """Tell what depends on tuples, and whether more still can."""
    wanted = _wanted(tuples, where)
    tested: dict[str, Tested] = {}
    with opened_reader(out, store, network_file, network) as reader:
        first = reader.why(stream, wanted).answers
        asked, most = len(first), limit or (len(wanted) if tuples else MOST)
        found = reader.impact(stream, first.seq[:most].tolist(), on=on or None)
        told = _told(out, found)
        if verify:
            tested["proof"] = found.verify()
        missed = reader.missed
    _give(out, told, asked, tested)
    _say_rest(out, found.answers, asked, missed)
    _leave(tested)


def _wanted(tuples: list[str] | None, where: str | None) -> list[str] | str:
    if bool(tuples) == (where is not None):
        raise typer.BadParameter("give either tuples, by number or tid, or --where SQL", param_hint="TUPLE")
    return tuples if tuples else str(where)


@contextmanager
def opened_reader(out: Out, store: Path, file: Path | None = None, name: str | None = None) -> Iterator[Reader]:
    """The store opened for questions; a replay for them shows on a terminal how far it is."""
    from clew.cli.networks import load_network
    from clew.explain.reader import Reader

    if file is None and name is not None:
        raise typer.BadParameter("it chooses a network of a file: give --network-file FILE", param_hint="--network")
    network = None if file is None else load_network(file, name)

    def session(zone: str) -> Any:
        from clew.engine.spark_session import local_session

        return local_session(time_zone=zone, verbose=out.verbose)

    with ExitStack() as stack:
        shown: list[Callable[[float, str], None]] = []

        def watch(done: float) -> None:
            if not shown:  # no bar for what is done without a replay, or with a short one
                shown.append(stack.enter_context(out.progress("replaying", 1)))
            shown[0](done, "")

        yield stack.enter_context(Reader(store, network, session=session, watch=watch))


def _told(out: Out, found: Explanation | Impact) -> Json | str:
    """What is found, in the form that is asked for."""
    from clew.explain.impact import Impact

    if out.json:
        return found.to_json()
    return str(found) if isinstance(found, Impact) else found.text(len(found.answers))


def _give(out: Out, told: Json | str, asked: int, tested: Mapping[str, Tested]) -> None:
    if isinstance(told, str):
        out.text("\n\n".join([told, *map(str, tested.values())]))
    else:
        out.document({**told, "all_tuples": asked, **{name: found.to_json() for name, found in tested.items()}})


def _say_rest(out: Out, shown: Answers, asked: int, missed: list[str]) -> None:
    if out.json:
        return
    if len(shown) < asked:
        out.say(f"{len(shown):,} of {count(asked, 'tuple')}; --limit N shows more", style="dim")
    if missed:
        names = ", ".join(f"'{name}'" for name in missed)
        out.say(f"rows that {names} made are shown with --network-file FILE: a store holds no code", style="dim")


def _leave(tested: Mapping[str, Tested]) -> None:
    if "proof" in tested and not tested["proof"]:
        raise typer.Exit(FAILED)
