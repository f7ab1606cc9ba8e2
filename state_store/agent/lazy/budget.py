"""Budget of the background fetching of lazy restores in an executor: disk, bytes a second, and threads."""

from __future__ import annotations

from pathlib import Path

from state_store.agent.lazy.hydration_threads import HydrationThreads
from state_store.core.runtime import Runtime


class HydrationBudget:
    """The budget that all stores of an executor share. Safe for any thread.

    Disk is taken for a directory, and is free again when the directory is gone. Files that local recovery
    keeps of it afterwards count for another budget.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.threads = HydrationThreads(runtime)
        """The threads, which all hydrations share."""
        self._clock_s = runtime.monotonic_s
        self._lock = runtime.lock()
        self._disk_bytes = 0
        self._bytes_per_s = 0
        self._taken: dict[Path, int] = {}
        self._free_from_s = 0.0

    def limit(self, *, disk_bytes: int, bytes_per_s: int) -> None:
        """Set the limits, as the options of the executor say; 0 means no limit."""
        with self._lock:
            self._disk_bytes, self._bytes_per_s = disk_bytes, bytes_per_s

    @property
    def bytes_per_s(self) -> int:
        """Bytes that may be fetched in a second; 0 means any number."""
        return self._bytes_per_s

    def take(self, directory: Path, size_bytes: int, *, is_needed: bool = False) -> bool:
        """Take room for more bytes in a directory.

        Returns:
            False if there is no room, and nothing was taken. With `is_needed` there always is.
        """
        with self._lock:
            if self._disk_bytes and not is_needed and not self._has_room(size_bytes):
                self._taken = {at: taken for at, taken in self._taken.items() if at.exists()}
                if not self._has_room(size_bytes):
                    return False
            self._taken[directory] = self._taken.get(directory, 0) + size_bytes
            return True

    def _has_room(self, size_bytes: int) -> bool:
        return sum(self._taken.values()) + size_bytes <= self._disk_bytes

    def turn_s(self, size_bytes: int) -> float:
        """Return the time, by the monotonic clock, from which on this many bytes may be fetched.

        They come after the bytes that others have asked for.
        """
        with self._lock:
            at_s = max(self._clock_s(), self._free_from_s)
            if self._bytes_per_s:
                self._free_from_s = at_s + size_bytes / self._bytes_per_s
            return at_s
