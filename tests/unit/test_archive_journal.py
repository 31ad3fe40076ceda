"""Records fold into bases: opening stays cheap, the folder stays small, and a torn file costs nothing it need not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.stores import feed, seqs_of

from clew.archive import EpochRecord, FileEntry, FolderChange, Merge, State, Store
from clew.archive.ids import LARGE, SeenIds
from clew.archive.record import decode, encode
from clew.errors import StoreError


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_epochs").iterdir())


def test_there_are_never_more_than_two_bases_and_twice_the_records_between_them(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", durable=False, fold_every=4) as store:
        most = 0
        for _ in range(30):
            feed(store, 1)
            most = max(most, len(names(tmp_path / "s")))
        bases = [name for name in names(tmp_path / "s") if name.endswith(".base.json")]
        assert len(bases) == 2
        assert most <= 2 * 4 + 2 + 8  # records, bases, one segment of ids a fold until they merge


def test_folding_changes_nothing_that_is_read(tmp_path: Path) -> None:
    with Store.create(tmp_path / "a", durable=False, fold_every=3) as store:
        feed(store, 10)
    with Store.create(tmp_path / "b", durable=False, fold_every=1000) as store:
        feed(store, 10)
    folded, plain = (Store.open(tmp_path / name, read_only=True) for name in "ab")
    assert seqs_of(folded) == seqs_of(plain)
    assert [folded.seen(f"batch {i}") for i in range(12)] == [plain.seen(f"batch {i}") for i in range(12)]
    assert [e["epoch"] for e in folded.state.recent] == [e["epoch"] for e in plain.state.recent]


def test_a_torn_base_is_ignored_while_the_records_are_there_and_named_when_they_are_not(tmp_path: Path) -> None:
    for epochs in (5, 9):
        with Store.create(tmp_path / f"s{epochs}", durable=False, fold_every=4) as store:
            feed(store, epochs)
        path = store.layout.base(epochs - 1)
        path.write_bytes(path.read_bytes()[:100])
        with Store.open(store.layout.root, fold_every=4) as store:
            assert len(seqs_of(store)) == 4 * epochs
            assert store.seen("batch 2") == 2
            feed(store, 9)
        with Store.open(store.layout.root, read_only=True) as store:
            assert len(seqs_of(store)) == 4 * (epochs + 9)
    with Store.create(tmp_path / "t", durable=False, fold_every=4) as store:
        feed(store, 13)
    for path in (tmp_path / "t" / "_epochs").glob("*.base.json"):
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="has a damaged file"):
        Store.open(tmp_path / "t")


def test_measures_are_kept_for_the_newest_epochs_only() -> None:
    state = State()
    for epoch in range(1, 251):
        state.apply(EpochRecord(epoch, boxes={"b": {"rows": epoch}}))
    assert [e["epoch"] for e in state.recent] == list(range(51, 251))


def test_parts_that_an_earlier_clew_wrote_beside_are_passed_over() -> None:
    more = {"advances": [], "offsets": {}, "settings": {}}
    record = EpochRecord(1, stamp=3, id="a", sources={"finished": 1})
    assert EpochRecord.from_json({**record.to_json(), **more}) == record
    state = State()
    state.apply(record)
    assert State.from_json({**state.to_json(), **more}) == state


def test_seen_ids_survive_any_number_of_folds_in_few_files(tmp_path: Path) -> None:
    ids, state = SeenIds(tmp_path), State()
    for epoch in range(1, 201):
        state.epoch, state.ids = epoch, {f"id {epoch}": epoch}
        ids.fold(state, durable=False)
        ids.sweep(set(state.id_segments))
    assert len(state.id_segments) < 40
    assert len(list(tmp_path.iterdir())) == len(state.id_segments)
    fresh = SeenIds(tmp_path)
    assert [fresh.find(f"id {epoch}", state) for epoch in (1, 100, 200, 201)] == [1, 100, 200, None]


def test_a_large_segment_of_ids_is_not_written_again(tmp_path: Path) -> None:
    ids, state = SeenIds(tmp_path), State(epoch=1, ids={str(i): 1 for i in range(LARGE)})
    ids.fold(state, durable=False)
    large = next(iter(state.id_segments))
    for epoch in range(2, 50):
        state.epoch, state.ids = epoch, {f"id {epoch}": epoch}
        ids.fold(state, durable=False)
    assert large in state.id_segments


numbers = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
entries = st.builds(
    FileEntry,
    st.uuids().map(str),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.dictionaries(st.text(max_size=5), st.tuples(numbers, numbers, st.integers(0, 9)), max_size=3),
)
changes = st.builds(
    FolderChange,
    add=st.lists(entries, max_size=2),
    remove=st.lists(st.text(max_size=5), max_size=2),
    merges=st.lists(st.builds(Merge, st.tuples(st.text(max_size=5)), entries), max_size=1),
    seq=st.none() | st.integers(0),
    meta=st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@given(
    st.builds(
        EpochRecord,
        epoch=st.integers(1),
        stamp=st.integers(0),
        id=st.none() | st.text(),
        query=st.none() | st.tuples(st.text(), st.integers(0)),
        streams=st.dictionaries(st.text(max_size=5), changes, max_size=2),
        tables=st.dictionaries(st.text(max_size=5), changes, max_size=2),
        network=st.none() | st.just({"boxes": []}),
    )
)
def test_a_record_reads_back_as_it_was_written(record: EpochRecord) -> None:
    assert EpochRecord.from_json(decode(encode(record.to_json()), Path("x"))) == record


@given(st.binary(min_size=1, max_size=40), st.integers(0, 10_000))
def test_a_record_that_is_not_whole_is_never_read(noise: bytes, at: int) -> None:
    whole = encode(EpochRecord(3, id="a batch").to_json())
    at %= len(whole) - 1
    for torn in (whole[:at], noise, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
        with pytest.raises(StoreError, match="has a damaged file"):
            decode(torn, Path("x"))
