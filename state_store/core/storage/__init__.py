"""Checkpoint storage: one contract, several backends, one kit of tests (`state_store.testing.storage`)."""

from state_store.core.storage.contract import Entry, Storage
from state_store.core.storage.open import open_storage

__all__ = ["Entry", "Storage", "open_storage"]
