"""The renewal of leases while a process reads, however long it takes between two reads."""

from __future__ import annotations

import functools
import weakref

from state_store.core.deletion.lease import ReaderLease
from state_store.core.runtime import Runtime
from state_store.errors import StateStoreError

LOOK_S = 60.0
"""Seconds between two looks at the leases."""


class KeptLease:
    """A lease that is renewed until it is released, or until nobody refers to it. Safe for any thread."""

    def __init__(self, lease: ReaderLease, runtime: Runtime) -> None:
        self._lease = lease
        self._lock = runtime.lock()
        self._is_released = False
        self._keeper = keeper_of(runtime)
        self._keeper.keep(self)

    def release(self) -> None:
        """Give the lease back. Raises as the storage does; the lease runs out then."""
        with self._lock:
            self._is_released = True
            self._keeper.wake()
            self._lease.release()

    def renew_if_due(self) -> None:
        """Renew the lease if half of its time is over. Raises as the storage does.

        The lease of a removed checkpoint does not bring it back.
        """
        with self._lock:
            if not self._is_released and self._lease.renew_in_ms <= 0 and self._lease.is_of_use:
                self._lease.renew()

    @property
    def is_released(self) -> bool:
        """True if nothing is read any more."""
        return self._is_released


class LeaseKeeper:
    """A thread that renews leases while there are any. Safe for any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._changed = runtime.condition()
        self._leases: weakref.WeakSet[KeptLease] = weakref.WeakSet()
        self._is_running = False

    def keep(self, lease: KeptLease) -> None:
        """Renew a lease from now on. Without a thread to start it holds once, as its first time says."""
        with self._changed:
            self._leases.add(lease)
            if not self._is_running:
                try:
                    self._runtime.start(self._run, name="leases")
                except (RuntimeError, MemoryError):
                    return
                self._is_running = True

    def wake(self) -> None:
        """Look soon: a lease was released."""
        with self._changed:
            self._changed.notify_all()

    def look(self) -> bool:
        """Renew what is due. Returns False, and keeps nothing, if no lease is left."""
        with self._changed:
            for lease in [lease for lease in self._leases if lease.is_released]:
                self._leases.discard(lease)
            kept = list(self._leases)
            if not kept:
                self._is_running = False
                return False
        for lease in kept:
            try:
                lease.renew_if_due()
            except StateStoreError:
                continue  # the next look tries again
        return True

    def _run(self) -> None:
        while self.look():
            with self._changed:
                self._changed.wait(LOOK_S)


@functools.lru_cache(maxsize=16)
def keeper_of(runtime: Runtime) -> LeaseKeeper:
    """Return the keeper of a process."""
    return LeaseKeeper(runtime)
