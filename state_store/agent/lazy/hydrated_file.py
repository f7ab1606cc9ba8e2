"""A file that is being hydrated: its parts, and the state that it is in."""

from __future__ import annotations

import contextlib
import enum

from state_store.core.files.sparse import SparseBytes, SparseFile, end_bytes
from state_store.core.files.transfer import parts_of

Part = tuple[int, int]
"""Offset and length of a piece of a file."""


class FileState(enum.Enum):
    """State of one sparse file."""

    FETCHING = "fetching"
    FETCHED = "fetched"
    VERIFYING = "verifying"
    WHOLE = "whole"
    FAILED = "failed"


class HydratedFile:
    """The progress of one sparse file: the parts before its tail that are fetched. The tail is local already.

    Not safe for threads: the hydration holds its lock.
    """

    def __init__(self, spec: SparseFile, local: SparseBytes, part_bytes: int) -> None:
        self.spec = spec
        self.local = local
        self.missing_bytes = spec.size_bytes - end_bytes(spec.size_bytes)
        self.hydrated_bytes = 0
        self.on_demand_bytes = 0
        self.has_room = False
        self.is_refused = False
        self._all_parts = parts_of(self.missing_bytes, part_bytes) if self.missing_bytes else []
        self.part_count = len(self._all_parts)
        self.may_be_whole = local.is_inherited
        self.parts: list[Part] = []
        self.state = FileState.FETCHED
        if not self.may_be_whole:
            self.begin()

    def begin(self) -> None:
        """Begin to fetch the parts."""
        self.may_be_whole = False
        if self._all_parts:
            self.parts = list(self._all_parts)
            self.state = FileState.FETCHING

    def became_whole(self) -> None:
        """Note that the file is local, and right."""
        self.state, self.hydrated_bytes = FileState.WHOLE, self.missing_bytes

    def part_fetched(self, part: Part) -> None:
        """Note that a part is local."""
        self.hydrated_bytes += part[1]
        if self.hydrated_bytes == self.missing_bytes and self.state is FileState.FETCHING:
            self.state = FileState.FETCHED

    def put_back(self, part: Part) -> None:
        """Note that a part did not come: it is the next one."""
        if self.state is FileState.FETCHING:
            self.parts.insert(0, part)

    def fail(self) -> None:
        """Give the file up."""
        self.state = FileState.FAILED
        self.parts.clear()
        with contextlib.suppress(OSError):
            self.local.drop_parts()
