"""Whether files of a store may be damaged, so that its next restore verifies them as a whole."""

from __future__ import annotations

from state_store.core.runtime import Runtime


class Suspicions:
    """The stores, by their location, of which a block was found damaged since they were verified last.

    Kept over the providers of an executor: the one that finds a damaged block is closed with its query, and
    the next starts anew. Safe for any thread.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._counts: dict[str, int] = {}

    def of(self, location: str) -> int:
        """How often damage was told of; 0: there is no suspicion."""
        with self._lock:
            return self._counts.get(location, 0)

    def raised(self, location: str) -> None:
        """Somebody found a damaged block."""
        with self._lock:
            self._counts[location] = self._counts.get(location, 0) + 1

    def settled(self, location: str, count: int) -> None:
        """All files that are needed were verified, after `count` had been told."""
        with self._lock:
            if self._counts.get(location) == count:
                del self._counts[location]
