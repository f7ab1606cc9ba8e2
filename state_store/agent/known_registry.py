"""Registry of a store's files as far as a process knows it, and versions that clean-ups have yet to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from state_store.core.checkpoint.registry import Registry, StoredFile
from state_store.errors import MissingError


class KnownRegistry:
    """A registry that may be unknown. Not safe for threads: the lock of its `StoreHead` guards it."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._superseded: set[int] = set()
        self._superseded_before: set[int] = set()
        self._since_inventory: list[Callable[[Registry], object]] | None = None

    @property
    def registry(self) -> Registry | None:
        """The registry; None until an inventory has read it, and after `forget`."""
        return self._registry

    def forget(self) -> None:
        """Drop the registry, which may be wrong: the next clean-up reads the files."""
        self._registry = None

    def note(self, change: Callable[[Registry], object]) -> None:
        """Change the registry, and the one that is being read, too, as soon as it is there."""
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
        """Note that the chain needs these files no more: a clean-up may find some to delete."""
        self._superseded |= {file.origin for file in freed}

    def superseded_below(self, floor: int) -> bool:
        """Return True if a version below `floor` has deltas that nobody needs since a merge."""
        return any(version < floor for version in self._superseded)

    def begin_inventory(self) -> None:
        """Begin to keep the changes that are noted while the registry is read."""
        self._since_inventory = []
        self._superseded_before, self._superseded = self._superseded, set()

    def end_inventory(self, registry: Registry | None, floor: int) -> None:
        """Take over the registry that was read, with the changes noted meanwhile; None keeps the old one.

        Versions superseded since `begin_inventory`, or not below `floor`, are left for the next clean-up.
        """
        noted, self._since_inventory = self._since_inventory or [], None
        if registry is not None:
            self._registry = registry
            for change in noted:
                self._apply(change)
        left, self._superseded_before = self._superseded_before, set()
        self._superseded |= {version for version in left if version >= floor}

    def retire_below(self, floor: int) -> Registry | None:
        """Retire the versions below `floor`, and return the registry."""
        if self._registry is not None:
            self._registry.retire_below(floor)
        return self._registry
