"""Spark's own files of a checkpoint, copied to make a directory of stores a query's checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from state_store.core.storage import Storage
from state_store.data.query import Operator, StoreKey
from state_store.data.query.operators import relative_schema_file
from state_store.errors import ConflictError, MissingError

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_IDS = "stateUniqueIds"
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def hadoop_uri(location: str) -> str:
    """Return a directory as Spark writes it: a path gets `file:` before it, a URI stays."""
    return location if _SCHEME.match(location) else f"file:{Path(location).absolute()}"


def copy_operator(
    source: Storage, target: Storage, operator: Operator, partitions: int | None = None
) -> None:
    """Copy Spark's description of an operator: its schemas and its metadata.

    The metadata name the schemas' files in the target. Files that exist already stay.

    Args:
        source: the checkpoint.
        target: the new checkpoint.
        operator: the operator.
        partitions: the new number of partitions; None keeps it.
    """

    def patch(found: dict[str, Any]) -> None:
        for store in found["stateStoreInfo"]:
            if partitions is not None:
                store["numPartitions"] = partitions
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [
                    f"{hadoop_uri(target.location)}/{relative_schema_file(path)}"
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
    """Copy Spark's logs up to a committed batch, and the offsets of the next batch if it has begun.

    The commit of the batch comes last: before it the target is no query's checkpoint. Files that exist
    already stay.

    Args:
        source: the checkpoint.
        target: the new checkpoint.
        batch: the batch.
        conf: new values of the pinned configuration.
        ids: new ids of the batch's versions.
        checkpoint_format: the format of the commit log in the target. It has no ids of other versions, and
            without `ids` none at all. None keeps the format.
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
    if not source.exists("metadata"):
        raise MissingError(
            f"'{source.location}/metadata' is missing, without which Spark starts no query, neither there "
            'nor in a copy. Put it back from a copy of the checkpoint: it is a line, {"id":"..."}, with the '
            "id of the query, which the driver's log has",
            file=f"{source.location}/metadata",
        )
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
    """Yield the files below a directory, without Hadoop's checksums."""
    for entry in storage.list_files(directory):
        if not entry.name.startswith("."):
            yield f"{directory}/{entry.name}"
    for name in storage.directories(directory):
        yield from _files(storage, f"{directory}/{name}")


def _copy(source: Storage, target: Storage, path: str, change: Callable[[bytes], bytes]) -> None:
    """Copy a file, unless Spark has removed it meanwhile or the target has it."""
    try:
        target.write(path, change(source.read(path)))
    except (ConflictError, MissingError):
        return


def _same(text: bytes) -> bytes:
    return text


def _patched(text: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return an entry of a log after `change` of its second line, which is JSON."""
    lines = text.decode("utf-8").split("\n")
    if len(lines) > 1 and lines[1].startswith("{"):
        found = json.loads(lines[1])
        change(found)
        lines[1] = _compact(found)
    return "\n".join(lines).encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
