"""Checkpoints of real queries, and what Spark's `statestore` source read from them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import VariantVal

from state_store.core.deletion.policy import RetentionPolicy
from state_store.core.deletion.retention import Retention
from state_store.core.storage import open_storage
from state_store.data.query import Query

STATES = Path(__file__).resolve().parents[2] / "golden" / "states"
VERSIONS = range(1, 5)


def checkpoint(name: str, directory: Path) -> Path:
    """A copy of the checkpoint, into which leases may be written."""
    return Path(shutil.copytree(STATES / name, directory / name))


def expected(name: str, version: int) -> list[dict[str, Any]]:
    """Spark's rows of a version, its columns as `state_store.open` shows them, in order."""
    with pa.OSFile(str(STATES / f"{name}-{version}.arrow")) as file:
        return in_order(flattened(row) for row in pa.ipc.open_file(file).read_all().to_pylist())


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """A row of Spark's source, `key`, `value` and `partition_id`, as one of `state_store`."""
    value = dict(row["value"])
    if "groupState" in value:
        value = {**value.pop("groupState"), **value}
    flat = dict(row["key"])
    for name, one in value.items():
        flat[f"value_{name}" if name in flat else name] = one
    return {**flat, "partition_id": row["partition_id"]}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `state_store` with its variant as a text, as in what Spark read."""
    if row.get("last") and row["last"]["any"]:
        variant = VariantVal(row["last"]["any"]["value"], row["last"]["any"]["metadata"])
        return {**row, "last": {**row["last"], "any": variant.toJson()}}
    return row


def clean_up(directory: str) -> None:
    """What the agents of a query do that goes on: only the two newest versions are kept."""
    for key, newest in Query.open(directory).committed().items():
        storage = open_storage(f"{directory}/{key.path}")
        cleaned = Retention(storage, RetentionPolicy(batches=2)).cleanup(newest)
        assert cleaned.skipped is None and cleaned.floor == VERSIONS[-1] - 1


def in_order(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)
