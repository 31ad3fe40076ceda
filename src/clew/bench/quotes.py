"""The quote stream of the revision paper: 200 symbols, each with a price every second, as Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SYMBOLS = 200
START = 1_700_000_000 - 1_700_000_000 % 300  # a whole five minutes


def quotes(first: int, rows: int, seed: int = 7) -> pa.Table:
    """Rows `first` to `first + rows` of the stream: (ts TIMESTAMP, symbol STRING, price DOUBLE)."""
    number = np.arange(first, first + rows)
    seconds = START + number // SYMBOLS
    names = pa.array([f"S{i:03d}" for i in range(SYMBOLS)])
    symbol = pa.DictionaryArray.from_arrays(pa.array((number % SYMBOLS).astype(np.int32)), names).cast(pa.string())
    walk = np.random.default_rng([seed, first]).normal(0, 0.3, rows)
    price = np.round(50 + (number % SYMBOLS) / 4 + walk, 2)
    ts = pa.array(seconds * 1_000_000, pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": ts, "symbol": symbol, "price": price})


def write_quotes(folder: Path, rows: int, files: int) -> Path:
    """The first `rows` of the stream in `files` files, in order; made once."""
    place = folder / f"quotes-{rows}-{files}"
    if not (place / "_done").exists():
        place.mkdir(parents=True, exist_ok=True)
        each = -(-rows // files)
        for i in range(files):
            first = i * each
            table = quotes(first, min(each, rows - first))
            pq.write_table(table, place / f"part-{i:04d}.parquet", coerce_timestamps="us")
        (place / "_done").touch()
    return place
