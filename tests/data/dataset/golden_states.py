"""Checkpoints of real queries, and what Spark's `statestore` source read from them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import VariantVal

from state_store.core.deletion.retention import Retention, RetentionPolicy
from state_store.core.storage import open_storage
from state_store.data.embedded import EmbeddedStore
from state_store.data.query import Query

STATES = Path(__file__).resolve().parents[2] / "golden" / "states"
VERSIONS = range(1, 5)


def checkpoint(name: str, directory: Path) -> Path:
    """Return a copy of the checkpoint, in which leases can be written."""
    return Path(shutil.copytree(STATES / name, directory / name))


def stored(directory: str) -> list[dict[bytes, bytes]]:
    """Return the keys and values of each partition, as the store has them."""
    found = []
    for key, version in sorted(Query.open(directory).committed().items()):
        with EmbeddedStore.open(f"{directory}/{key.path}", version=version) as store:
            found.append(dict(store.scan()))
    return found


def expected(name: str, version: int) -> list[dict[str, Any]]:
    """Return Spark's rows of a version, in order, with the columns of `state_store.open`."""
    with pa.OSFile(str(STATES / f"{name}-{version}.arrow")) as file:
        return in_order(flattened(row) for row in pa.ipc.open_file(file).read_all().to_pylist())


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of Spark's source (`key`, `value`, `partition_id`) as a row of `state_store`."""
    value = dict(row["value"])
    if "groupState" in value:
        value = {**value.pop("groupState"), **value}
    flat = dict(row["key"])
    is_session = "sessionStartTime" in flat
    for name, field in value.items():
        if name == "__dummy__":
            continue
        if is_session and name in row["key"]:
            assert field == row["key"][name]
            continue
        flat[f"value_{name}" if name in flat else name] = field
    return {**flat, "partition_id": row["partition_id"]}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `state_store` with its variant as a text, like Spark's rows."""
    if row.get("last") and row["last"]["any"]:
        variant = VariantVal(row["last"]["any"]["value"], row["last"]["any"]["metadata"])
        return {**row, "last": {**row["last"], "any": variant.toJson()}}
    return row


def clean_up(directory: str) -> None:
    """Clean up as the agents of a running query do: keep only the two newest versions."""
    for key, newest in Query.open(directory).committed().items():
        storage = open_storage(f"{directory}/{key.path}")
        cleaned = Retention(storage, RetentionPolicy(batches=2)).cleanup(newest)
        assert cleaned.skipped is None and cleaned.floor == VERSIONS[-1] - 1


def in_order(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)
