"""Room of the cache of pages on a disk that was full: half of what it had, and more when there is space."""

from __future__ import annotations

import sys
from pathlib import Path

from state_store.core.runtime import Runtime
from state_store.core.storage.local_disk import free_bytes

QUIET_MS = 60_000.0
"""Time without a full disk after which the room grows, and time between two steps."""

MOST_QUIET_MS = 3_600_000.0

_LEAST_PAGES = 16
"""Pages that the cache has however small the disk is."""


class DiskRoom:
    """Pages that the cache may have on its disk, whatever its option allows. Not safe for threads.

    There is no bound until the disk is full. After a quiet minute the room grows, to twice its size at most,
    and leaves a quarter of its size free: deltas and merges need the disk, too. If the disk is full after
    that, the quiet time doubles, up to an hour.
    """

    def __init__(self, runtime: Runtime, page_bytes: int) -> None:
        self._runtime = runtime
        self._page_bytes = page_bytes
        self.shrinks = 0
        """Number of times that the disk was found full."""
        self.forget()

    def forget(self) -> None:
        """Take the disk for one that has room for the limit."""
        self.pages: int = sys.maxsize
        """Pages that the disk has room for."""
        self._quiet_ms = QUIET_MS
        self._grows_at_ms = 0.0
        self._has_grown = False

    def shrink(self, pages: int) -> None:
        """Keep to so many pages: the disk is full with more."""
        self.pages = max(_LEAST_PAGES, pages)
        self.shrinks += 1
        if self._has_grown:
            self._quiet_ms = min(2 * self._quiet_ms, MOST_QUIET_MS)
        self._has_grown = False
        self._grows_at_ms = self._runtime.uptime_ms() + self._quiet_ms

    def grow(self, directory: Path, cached_pages: int, limit_pages: int) -> bool:
        """Grow if it is time for that and the disk has space.

        Args:
            directory: A directory of the disk.
            cached_pages: Pages that the cache has now.
            limit_pages: Pages that the option allows.

        Returns:
            True if the room has grown to what the option allows.

        Raises:
            LocalDiskError: The system does not say how much space the disk has.
        """
        now_ms = self._runtime.uptime_ms()
        if self.pages == sys.maxsize or now_ms < self._grows_at_ms:
            return False
        self._grows_at_ms = now_ms + self._quiet_ms
        spare = free_bytes(directory) // self._page_bytes - max(0, self.pages - cached_pages)
        step = min(self.pages, (4 * spare - self.pages) // 5)
        if step > 0:
            self.pages += step
            self._has_grown = True
        if self.pages < limit_pages:
            return False
        self.forget()
        return True
