"""A sink that keeps the rows of every batch, and takes a repeated batch only if it says the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from state_store.core.storage import open_storage
from state_store.errors import ConflictError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WRITTEN, _DIFFERS = ".json", ".differs"


def batch_writer(location: str, names: Sequence[str]) -> Callable[[DataFrame, int], None]:
    """A foreachBatch function with an action for each name, which writes one file for each batch, whole or
    not at all, into the directory of that name in a storage; several drivers may write.

    If there are several actions, one that reads a single row comes before them: it ends its tasks early.
    Raises AssertionError when a batch that was written before is run again with another result.
    """
    storage = open_storage(location)

    def write_all(frame: DataFrame, batch_id: int) -> None:
        if len(names) > 1:
            frame.isEmpty()
        for name in names:
            write(frame, f"{name}/{batch_id:06}")

    def write(frame: DataFrame, path: str) -> None:
        rows = sorted((tuple(row) for row in frame.collect()), key=repr)
        text = json.dumps(rows).encode()
        if not storage.exists(path + _WRITTEN):
            with suppress(ConflictError):
                storage.write(path + _WRITTEN, text)
        before = storage.read(path + _WRITTEN)
        if before != text:
            storage.write(path + _DIFFERS, text, overwrite=True)
            raise AssertionError(f"batch {path} was {before!r}, and run again it is {text!r}")

    return write_all


def outputs_of(name: str, actions: int) -> list[str]:
    """Return the directories that the actions of a query write to, in their order."""
    return [name, *(f"{name}-{number}" for number in range(2, actions + 1))]


def read_batches(location: str, name: str) -> list[list[tuple]]:
    """Return the rows of all batches, in order of batch number."""
    storage = open_storage(location)
    texts = [storage.read(f"{name}/{file}") for file in _files(location, name, _WRITTEN)]
    return [[tuple(row) for row in json.loads(text)] for text in texts]


def repeated(location: str, name: str) -> list[str]:
    """Return a line for each batch whose repetition differed."""
    files = _files(location, name, _DIFFERS)
    return [f"{location}/{name}/{file}: a batch that was run again said something else" for file in files]


def _files(location: str, name: str, suffix: str) -> list[str]:
    return [entry.name for entry in open_storage(location).list_files(name) if entry.name.endswith(suffix)]
