"""Judgements and archives that are made once, however often the same program runs."""

from __future__ import annotations

import functools

import pytest

from deletion.remembered import remembered
from state_store.core.checkpoint.stored_documents import unpack
from state_store.core.deletion import lease, retention
from state_store.core.deletion.retention import DeletionPlan


@pytest.fixture
def think_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run again and again: let them parse equal bytes once, and judge equal contents once."""

    @functools.lru_cache(None)
    def once(data: bytes, file: str):
        return unpack(data, file=file)

    monkeypatch.setattr(lease, "unpack", lambda data, *, file: once(data, file))
    monkeypatch.setattr(retention, "DeletionPlan", remembered(DeletionPlan))
