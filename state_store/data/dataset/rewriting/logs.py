"""Spark's own files of a checkpoint, from one to another: what makes a directory of stores a query's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from state_store.core.storage import Storage
from state_store.data.query import Operator, StoreKey
from state_store.errors import ConflictError, MissingError

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_IDS = "stateUniqueIds"
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def hadoop_uri(location: str) -> str:
    """A directory as Spark writes it into its own files: a path with `file:` before it, a URI as it is."""
    return location if _SCHEME.match(location) else f"file:{Path(location).absolute()}"


def copy_operator(
    source: Storage, target: Storage, operator: Operator, partitions: int | None = None
) -> None:
    """Copies what Spark says of an operator: its schemas and its metadata, which names the schemas' files in
    the target then; with another number of partitions, where one is given.

    Files that are there already stay.
    """

    def patch(found: dict[str, Any]) -> None:
        for store in found["stateStoreInfo"]:
            if partitions is not None:
                store["numPartitions"] = partitions
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [
                    f"{hadoop_uri(target.location)}/state/{path.partition('/state/')[2]}"
                    for path in store["stateSchemaFilePaths"]
                ]

    def patched(text: bytes) -> bytes:
        return _patched(text, patch)

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
    conf: Mapping[str, str] | None = None,
    ids: Mapping[str, Any] | None = None,
    checkpoint_format: int | None = None,
) -> None:
    """Copies Spark's logs up to a batch that it has committed, and the offsets of the batch after, where that
    has begun.

    conf: other values of the configuration that is pinned. ids: other ids of the batch's versions.
    checkpoint_format: the commit log is written in that one; the ids of versions other than the batch's are
    left out then, and without `ids` all of them.

    The commit of the batch comes last: before, the target is no query's checkpoint. Files that are there
    already stay.
    """

    def of_offsets(text: bytes) -> bytes:
        if not conf:
            return text
        return _patched(text, lambda entry: entry.setdefault("conf", {}).update(conf))

    def of_commit(number: int, text: bytes) -> bytes:
        if checkpoint_format is not None:
            _, _, rest = text.partition(b"\n")
            text = b"v%d\n" % checkpoint_format + rest
            text = _patched(text, lambda entry: entry.pop(_IDS, None))
        if ids is None or number != batch:
            return text
        return _patched(text, lambda entry: entry.update({_IDS: ids}))

    for path in _files(source, "sources"):
        _copy(source, target, path, _same)
    _copy(source, target, "metadata", _same)
    for number in _batches(source, "offsets"):
        if number <= batch + 1:
            _copy(source, target, f"offsets/{number}", of_offsets)
    for number in _batches(source, "commits"):
        if number <= batch:
            _copy(source, target, f"commits/{number}", partial(of_commit, number))


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
