"""Checkpoint storage for operations that have to end in time."""

from __future__ import annotations

from state_store.core.files.deadline import Deadline
from state_store.core.storage.contract import Storage
from state_store.core.storage.forwarding import ForwardingStorage


class BoundedStorage(ForwardingStorage):
    """Passes calls on to `inner` until the `deadline`; then each raises BusyError.

    Another deadline may be set for the next operation. A deletion is checked only if `bound_deletions` is
    set: otherwise it goes on, since an operation that is given up deletes what it wrote.
    """

    def __init__(self, inner: Storage, deadline: Deadline, *, bound_deletions: bool = False) -> None:
        super().__init__(inner)
        self.deadline = deadline
        self._bound_deletions = bound_deletions

    def _before(self, *, is_deletion: bool) -> None:
        if self._bound_deletions or not is_deletion:
            self.deadline.check()
