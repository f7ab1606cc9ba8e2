"""A group that comes in several calls, with its state and time-out after the calls so far.

Every piece sees the state that the piece before left, and the store sees only the end: the last update or
removal, the last timeout. This is what `GroupState` does within one call.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from state_store.functions.group_context import NO_TIMESTAMP
from state_store.functions.result import Changes


@dataclasses.dataclass
class OpenGroup:
    """The group whose next piece is awaited.

    `state` is what that piece will see, an array of length 1 with a null for no state; `updated`,
    `removed` and `timeout` (ms, -1 for none) are the change that the pieces so far add up to.
    """

    state: pa.StructArray
    updated: bool
    removed: bool
    timeout: int

    @staticmethod
    def split_off(changes: Changes, before: pa.StructArray) -> tuple[OpenGroup, Changes]:
        """Return the last group of `changes` as an open one, and the changes without it.

        `before` is the state that the group had before this call, used where the call left it alone.
        """
        updated, removed = bool(changes.updated[-1]), bool(changes.removed[-1])
        if updated:
            # A copy: the function may own the memory, and use it again in the next call.
            state = changes.state.take(pa.array([len(changes.state) - 1]))
        elif removed:
            state = pa.nulls(1, before.type)
        else:
            state = before
        rest = Changes(
            changes.updated[:-1],
            changes.removed[:-1],
            changes.timeout[:-1],
            changes.state.slice(0, len(changes.state) - updated),
            changes.output,
        )
        return OpenGroup(state, updated, removed, int(changes.timeout[-1])), rest

    def merged_into(self, changes: Changes) -> Changes:
        """Return `changes`, whose first group is this one, with what the pieces before have done to it."""
        timeout = changes.timeout.copy()
        if timeout[0] == NO_TIMESTAMP:
            timeout[0] = self.timeout
        updated, removed, state = changes.updated.copy(), changes.removed.copy(), changes.state
        if not updated[0] and not removed[0]:
            updated[0], removed[0] = self.updated, self.removed
            if self.updated:
                state = pa.concat_arrays([self.state, state])
        return Changes(updated, removed, timeout, state, changes.output)
