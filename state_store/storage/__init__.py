"""Where checkpoints are kept: one contract (`base`), several backends, one kit of tests (`conformance`)."""

from state_store.storage.base import Entry, Storage
from state_store.storage.open import open_storage

__all__ = ["Entry", "Storage", "open_storage"]
