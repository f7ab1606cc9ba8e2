"""A bound of the memory that Python takes in a block."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded_memory(limit_bytes: int) -> Iterator[None]:
    """Fail if Python holds more memory at any moment of the block."""
    tracemalloc.start()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < limit_bytes, f"{peak_bytes:,} bytes, {limit_bytes:,} are allowed"
