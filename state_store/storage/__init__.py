"""Where checkpoints are kept: one contract (`base`), several backends, one kit of tests (`conformance`)."""

from state_store.storage.base import Entry, Storage
from state_store.storage.local import LocalStorage

__all__ = ["Entry", "LocalStorage", "Storage"]
