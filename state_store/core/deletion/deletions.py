"""Deletions of files, each for itself: a file that the storage does not let go keeps no other one."""

from __future__ import annotations

from collections.abc import Collection

from state_store.core.files.transfer import parallel
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Storage
from state_store.errors import StorageError, UnknownOutcomeError

MOST_FAILURES_IN_ROW = 16
"""Failures one after the other at which a batch ends: the storage is taken to fail as a whole."""


class Deletions:
    """Deleter of the files of a store, which remembers those that the storage refuses to delete.

    These are tried again, but after all others, and the one that was tried last comes last. So however many
    there are, each clean-up gets further than the one before it. One thread at a time.

    Args:
        storage: the storage of the store.
        threads: files that are deleted at a time.
        runtime: threads.
    """

    def __init__(self, storage: Storage, threads: int, runtime: Runtime) -> None:
        self._storage = storage
        self._threads = threads
        self._runtime = runtime
        self._refused: dict[str, None] = {}
        self._before: frozenset[str] = frozenset()
        self._now: dict[str, str] = {}
        self._left: set[str] = set()

    def begin(self) -> None:
        """Begin a clean-up: `refused` and `warnings` are about what follows."""
        for path in self._refused.keys() - self._left:
            del self._refused[path]
        self._before, self._now, self._left = frozenset(self._refused), {}, set()

    @property
    def refused(self) -> dict[str, str]:
        """The files that could not be deleted since `begin`, with the reasons."""
        return dict(self._now)

    def warnings(self) -> list[str]:
        """Return a warning about the files that are refused now and were not in the clean-up before."""
        new = sorted(self._now.keys() - self._before)
        if not new:
            return []
        more = f", and {len(new) - 1} more files" if len(new) > 1 else ""
        reason = self._now[new[0]]
        message = (
            f"'{new[0]}'{more} could not be deleted ({reason}): each clean-up tries again. Look for missing "
            "rights, an immutable flag, a retention lock, or a program that holds the file"
        )
        return [message]

    def delete(self, paths: Collection[str]) -> set[str]:
        """Delete files; a failure ends nothing, unless it is one of many in a row.

        Returns:
            The files that may still be there: their deletion failed, or was not tried.

        Raises:
            BusyError: The time for the clean-up is over.
        """
        wanted = set(paths)
        todo = [*sorted(wanted - self._refused.keys()), *(path for path in self._refused if path in wanted)]
        failures_in_row = 0

        def delete(path: str) -> None:
            nonlocal failures_in_row
            if failures_in_row >= MOST_FAILURES_IN_ROW:
                return
            try:
                self._storage.delete(path)
            except (StorageError, UnknownOutcomeError) as error:
                failures_in_row += 1
                self._refused.pop(path, None)
                self._refused[path] = None
                self._now[path] = error.message
            else:
                failures_in_row = 0
                self._refused.pop(path, None)
                wanted.discard(path)

        parallel(self._threads, delete, todo, runtime=self._runtime)
        self._left |= wanted
        return wanted
