"""The stores of a new checkpoint that a job has written: a file for each, made by its only valid writer.

A task may run twice, at the same time or after a failure, and may end after the job. So a task stores a delta
under a name of its own, and then makes the store's receipt, which only one task can do: the others remove
their deltas and return what the receipt says. The driver removes the deltas that no receipt names, which
tasks left that were killed, before it writes Spark's logs; until then the directory is no checkpoint. A job
that is started again finds the receipts, and writes only the other stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass

from state_store.core.checkpoint.names import DELTA_DIRECTORY
from state_store.core.checkpoint.stored_documents import marker_of
from state_store.core.storage import open_storage
from state_store.data.query import StoreKey
from state_store.errors import BusyError, ConflictError, MissingError

DIRECTORY = "_written"
"""The directory of the receipts, below the new checkpoint."""


@dataclass(frozen=True)
class WrittenStore:
    """A store that was written: the id of its version, its delta's path below it, its rows and bytes."""

    checkpoint_id: str
    path: str
    rows: int
    size_bytes: int


class Receipts:
    """The receipts of a checkpoint that is being written. A value: tasks get copies."""

    def __init__(self, location: str) -> None:
        self._location = location

    def of(self, key: StoreKey) -> WrittenStore | None:
        """Return what was written of a store; None if no task has finished it."""
        with closing(open_storage(self._location)) as storage:
            try:
                return WrittenStore(**json.loads(storage.read(_path(key))))
            except MissingError:
                return None

    def claim(self, key: StoreKey, written: WrittenStore) -> WrittenStore:
        """Return what counts as the store: what was just written, unless another task was first.

        What was written is removed if it surely does not count.

        Raises:
            BusyError: the job has ended meanwhile.
        """
        ended = BusyError(f"the job that writes '{self._location}' has ended without this task")
        with closing(open_storage(self._location)) as storage:
            if marker_of(storage) is None:  # nobody knows of what was written
                storage.delete(f"{key.path}/{written.path}")
                raise ended
            try:
                storage.write(_path(key), json.dumps(asdict(written)).encode())
                return written
            except ConflictError:
                pass  # another task was first, or the answer to our own request was lost
            counted = self.of(key)
            if counted is None:  # the job has ended since, perhaps with what this task wrote: it stays
                raise ended
            if counted != written:
                storage.delete(f"{key.path}/{written.path}")
        return counted

    def settle(self, written: Iterable[tuple[StoreKey, WrittenStore]]) -> None:
        """Remove the deltas that tasks have left beside those that were written, and all receipts."""
        with closing(open_storage(self._location)) as storage:
            for key, store in written:
                for entry in storage.list_files(f"{key.path}/{DELTA_DIRECTORY}"):
                    path = f"{DELTA_DIRECTORY}/{entry.name}"
                    if path != store.path:
                        storage.delete(f"{key.path}/{path}")
            storage.delete_directory(DIRECTORY)


class NoReceipts(Receipts):
    """The receipts of a process that writes each store once, and begins anew after a failure: none."""

    def of(self, key: StoreKey) -> WrittenStore | None:
        """Return None: no store is written twice."""
        return None

    def claim(self, key: StoreKey, written: WrittenStore) -> WrittenStore:
        """Return what was written."""
        return written

    def settle(self, written: Iterable[tuple[StoreKey, WrittenStore]]) -> None:
        """Do nothing: there are no others."""


def _path(key: StoreKey) -> str:
    return f"{DIRECTORY}/{key.operator}-{key.partition}-{key.name}.json"
