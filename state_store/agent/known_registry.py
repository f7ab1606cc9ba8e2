"""Who needs which file of a store, as far as one process knows, and what clean-ups have yet to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from state_store.core.checkpoint.registry import Registry
from state_store.core.checkpoint.stored_file import StoredFile
from state_store.errors import MissingError


class KnownRegistry:
    """Not safe for threads: behind the lock of its `StoreHead`."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._superseded: set[int] = set()
        self._superseded_before: set[int] = set()
        self._since_inventory: list[Callable[[Registry], object]] | None = None

    @property
    def registry(self) -> Registry | None:
        """None until an inventory has read it, and after `forget`."""
        return self._registry

    def forget(self) -> None:
        """What is known may not hold any more: the next clean-up reads the files."""
        self._registry = None

    def note(self, change: Callable[[Registry], object]) -> None:
        """Changes the registry; and that which is being read, once it is there."""
        if self._since_inventory is not None:
            self._since_inventory.append(change)
        self._apply(change)

    def _apply(self, change: Callable[[Registry], object]) -> None:
        if self._registry is not None:
            try:
                change(self._registry)
            except MissingError:
                self.forget()  # another lineage

    def supersede(self, freed: Iterable[StoredFile]) -> None:
        """The chain needs these files no more: a clean-up may find some to delete."""
        self._superseded |= {file.origin for file in freed}

    def superseded_below(self, floor: int) -> bool:
        """Whether a version below `floor` has deltas that nobody needs since a merge."""
        return any(version < floor for version in self._superseded)

    def begin_inventory(self) -> None:
        """Who needs which file is about to be read; what is noted meanwhile is kept for it."""
        self._since_inventory = []
        self._superseded_before, self._superseded = self._superseded, set()

    def end_inventory(self, registry: Registry | None, floor: int) -> None:
        """What was read becomes what is known, with what was noted meanwhile; None: what was known stays.
        What was superseded since then, or is not below `floor`, is left for the next.
        """
        noted, self._since_inventory = self._since_inventory or [], None
        if registry is not None:
            self._registry = registry
            for change in noted:
                self._apply(change)
        left, self._superseded_before = self._superseded_before, set()
        self._superseded |= {version for version in left if version >= floor}

    def retire_below(self, floor: int) -> Registry | None:
        """Versions below `floor` are retired; the registry then."""
        if self._registry is not None:
            self._registry.retire_below(floor)
        return self._registry
