"""Spark's own files of a checkpoint, from one to another: what makes a directory of stores a query's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from state_store.errors import ConflictError, MissingError
from state_store.query import Operator, StoreKey
from state_store.storage import Storage

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def copy_operator(
    source: Storage, target: Storage, operator: Operator, partitions: int | None = None
) -> None:
    """Copies what Spark says of an operator: its metadata (with another number of partitions) and schemas.

    Files that are there already stay.
    """

    def patched(text: bytes) -> bytes:
        if partitions is None:
            return text
        version, described = text.decode("utf-8").split("\n", 1)
        found = json.loads(described)
        for store in found["stateStoreInfo"]:
            store["numPartitions"] = partitions
        return f"{version}\n{_compact(found)}".encode()

    directory = f"state/{operator.id}"
    for path in (*_files(source, f"{directory}/_metadata"), *_files(source, f"{directory}/_stateSchema")):
        _copy(source, target, path, patched if path.startswith(f"{directory}/_metadata") else _same)
    for store in operator.stores:
        for path in _files(source, f"{StoreKey(operator.id, 0, store).path}/_metadata"):
            _copy(source, target, path, _same)


def copy_logs(
    source: Storage,
    target: Storage,
    batch: int,
    *,
    partitions: int | None = None,
    ids: Mapping[str, Any] | None = None,
) -> None:
    """Copies Spark's logs up to a batch that it has committed, and the offsets of the batch after, where that
    has begun; with another number of partitions, and other ids of the batch's versions, where they are given.

    The commit of the batch comes last: before, the target is no query's checkpoint. Files that are there
    already stay.
    """

    def of_offsets(text: bytes) -> bytes:
        if partitions is None:
            return text
        conf = {SHUFFLE_PARTITIONS: str(partitions)}
        return _patched(text, lambda found: found.setdefault("conf", {}).update(conf))

    def of_commit(text: bytes) -> bytes:
        return text if ids is None else _patched(text, lambda found: found.update(stateUniqueIds=ids))

    for path in _files(source, "sources"):
        _copy(source, target, path, _same)
    _copy(source, target, "metadata", _same)
    for number in _batches(source, "offsets"):
        if number <= batch + 1:
            _copy(source, target, f"offsets/{number}", of_offsets)
    for number in _batches(source, "commits"):
        if number <= batch:
            _copy(source, target, f"commits/{number}", of_commit if number == batch else _same)


def _batches(storage: Storage, log: str) -> list[int]:
    return sorted(int(entry.name) for entry in storage.list_files(log) if entry.name.isdigit())


def _files(storage: Storage, directory: str) -> Iterator[str]:
    """The files below a directory, but Hadoop's checksums."""
    for entry in storage.list_files(directory):
        if not entry.name.startswith("."):
            yield f"{directory}/{entry.name}"
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}")


def _copy(source: Storage, target: Storage, path: str, change: Callable[[bytes], bytes]) -> None:
    """One that Spark has removed meanwhile is not needed any more."""
    try:
        target.write(path, change(source.read(path)))
    except (ConflictError, MissingError):
        return


def _same(text: bytes) -> bytes:
    return text


def _patched(text: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """An entry of a log, whose second line is JSON, with that changed."""
    lines = text.decode("utf-8").split("\n")
    if len(lines) > 1 and lines[1].startswith("{"):
        found = json.loads(lines[1])
        change(found)
        lines[1] = _compact(found)
    return "\n".join(lines).encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
