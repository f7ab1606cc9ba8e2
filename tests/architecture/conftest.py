"""The rules on the sources parse all of them: Python's collector of garbage rests meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_collector() -> Iterator[None]:
    """Let the collector rest: its walks over a million nodes take longer than what is looked at in them."""
    gc.disable()
    yield
    gc.enable()
