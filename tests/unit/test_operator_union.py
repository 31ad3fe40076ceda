"""Union: by place, then input."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels import cuts, listed, rows_of, run_cut, stamps

from clew.model.rows import Rows
from clew.model.steps import Steps
from clew.operators.union import UnionKernel, reference

SCHEMA = pa.schema([("port", pa.int64()), ("n", pa.int64())])


def stream(port: int, stamp: list[int]) -> Rows:
    table = pa.table(
        [pa.array([port] * len(stamp), pa.int64()), pa.array(range(len(stamp)), pa.int64())], schema=SCHEMA
    )
    return rows_of(table, stamp, seed=port)


@settings(max_examples=60)
@given(inputs=st.lists(stamps(), min_size=2, max_size=3), cuts=cuts)
def test_union_equals_its_reference_under_any_cut(inputs: list[list[int]], cuts: list[int]) -> None:
    streams = [stream(port, stamp) for port, stamp in enumerate(inputs)]
    kernel = UnionKernel(SCHEMA, len(streams))
    nothing = [Steps.none()] * len(streams)
    whole = run_cut(kernel, streams, nothing)
    expected = reference(*map(listed, streams))
    assert whole.stamped() == [(stamp, port, row["n"]) for stamp, port, row in expected]
    assert whole.rows.ident.tolist() == [row["_ident"] for _, _, row in expected]
    assert whole.origins() == [(*2 * (row["_stamp"], row["_pos"]), port) for _, port, row in expected]
    assert run_cut(kernel, streams, nothing, cuts).told() == whole.told()


def test_rows_of_one_stamp_come_by_input_and_are_numbered_anew() -> None:
    whole = run_cut(UnionKernel(SCHEMA), [stream(0, [1, 2, 2]), stream(1, [2, 3])], [Steps.none()] * 2)
    assert whole.stamped() == [(1, 0, 0), (2, 0, 1), (2, 0, 2), (2, 1, 0), (3, 1, 1)]
    assert whole.rows.pos.tolist() == [0, 0, 1, 2, 0]


def test_columns_are_found_by_name() -> None:
    turned = stream(1, [2])
    turned = turned.with_table(turned.table.select(["n", "port"]))
    whole = run_cut(UnionKernel(SCHEMA), [stream(0, [1]), turned], [Steps.none()] * 2)
    assert whole.values() == [{"port": 0, "n": 0}, {"port": 1, "n": 0}]
