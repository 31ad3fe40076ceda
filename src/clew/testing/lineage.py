"""What rows are made of, in plain Python: what explanations are tested against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from clew.network.boxes import Filter, Map, Source
from clew.network.network import Network
from clew.testing.reference import Admitted, Told, interpret

Row = tuple[int, int]  # a row's place: stamp and position
Lineage = dict[str, set[Row]]


def reference_lineage(
    network: Network, admitted: Admitted, output: str, of: str | Iterable[str] | None = None
) -> list[Lineage]:
    """For each row of a stream or box, in order, the places of the rows that it is made of in the streams of `of`.

    `of` are streams or boxes, all sources if not given. A path ends at the first of them that it comes to; one that
    comes to none contributes nothing.
    """
    return closed_over(network, interpret(network, admitted), output, of)


def closed_over(
    network: Network, told: Mapping[str, Told], output: str, of: str | Iterable[str] | None = None
) -> list[Lineage]:
    """As `reference_lineage`, of what `interpret` has told."""
    boxes, streams = {b.name: b for b in network.boxes}, network.stored
    asked = list(network.sources) if of is None else [of] if isinstance(of, str) else list(of)
    ends = {streams.get(name, name) for name in asked}
    rows = {box: {(m.stamp, m.pos): m for m in each.rows} for box, each in told.items()}

    @cache
    def closure(box: str, place: Row) -> frozenset[tuple[str, Row]]:
        if box in ends:
            return frozenset([(box, place)])
        if isinstance(boxes[box], Source):
            return frozenset()
        if isinstance(boxes[box], Filter | Map):
            return closure(boxes[box].inputs[0], place)
        made_of = rows[box][place].made_of
        return frozenset().union(*(closure(boxes[box].inputs[n], (stamp, pos)) for n, stamp, pos in made_of))

    found = []
    for made in told[streams.get(output, output)].rows:
        whole = closure(streams.get(output, output), (made.stamp, made.pos))
        found.append({name: {place for box, place in whole if box == streams.get(name, name)} for name in asked})
    return found
