"""Checkpoints: the states of all boxes as Arrow files, whole or not there.

A checkpoint is a folder `checkpoints/EPOCH-xxxxxxxx`: one Arrow file per table and, written last, a manifest
with their row counts and checksums. It counts once an epoch record names it. Nothing is pickled.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from clew.archive import faults
from clew.archive.disk import sync_all, sync_folder, write_over, writing
from clew.archive.layout import checkpoint_epoch, new_checkpoint_name
from clew.archive.record import Json, decode, encode
from clew.errors import StoreError

FORMAT = 1
Tables = Mapping[str, Mapping[str, pa.Table]]


def write_checkpoint(folder: Path, epoch: int, tables: Tables, meta: Json, *, durable: bool) -> str:
    """Write tables by box and name; give back the checkpoint's name for the epoch record."""
    name = new_checkpoint_name(epoch)
    place = folder / name
    with writing("a checkpoint", place):
        try:
            place.mkdir(parents=True)
            listing: list[Json] = []
            for box, states in tables.items():
                for table_name, table in states.items():
                    file = f"{len(listing):04d}.arrow"
                    data = _to_bytes(table)
                    (place / file).write_bytes(data)
                    listing.append({"box": box, "table": table_name, "file": file, "rows": table.num_rows,
                                    "crc32": zlib.crc32(data)})  # fmt: skip
            if durable:
                sync_all(place / str(item["file"]) for item in listing)
            faults.step("checkpoint-tables")
            manifest = {"format": FORMAT, "epoch": epoch, "meta": meta, "tables": listing, "boxes": list(tables)}
            write_over(place / "manifest.json", encode(manifest), durable=durable)
            if durable:
                sync_folder(folder)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    faults.step("checkpoint-written")
    return name


def read_checkpoint(folder: Path, name: str) -> tuple[dict[str, dict[str, pa.Table]], Json]:
    """The tables by box and name, and the meta; `StoreError` that names the file if it is not whole."""
    manifest_path = folder / name / "manifest.json"
    try:
        manifest = decode(manifest_path.read_bytes(), manifest_path)
    except FileNotFoundError as error:
        raise StoreError(f"checkpoint '{name}' is not there", details=[f"file: {manifest_path}"]) from error
    tables: dict[str, dict[str, pa.Table]] = {box: {} for box in manifest["boxes"]}
    for item in manifest["tables"]:
        tables[item["box"]][item["table"]] = _read_table(folder / name / item["file"], item)
    return tables, manifest["meta"]


def _read_table(path: Path, item: Json) -> pa.Table:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreError("a checkpoint lacks a file", details=[f"file: {path}"]) from error
    if zlib.crc32(data) == item["crc32"]:
        table: pa.Table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        if table.num_rows == item["rows"]:
            return table
    raise StoreError("a checkpoint has a damaged file", details=[f"file: {path}"])


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def drop_checkpoints(folder: Path, names: list[str], before: int) -> list[str]:
    """Delete those of `names` whose epoch is below `before`, never the last; the names deleted."""
    dropped = [name for name in names[:-1] if (checkpoint_epoch(name) or 0) < before]
    for name in dropped:
        shutil.rmtree(folder / name, ignore_errors=True)
    return dropped
