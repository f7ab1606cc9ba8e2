"""Judgements of equal contents are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state_store.core.deletion.lease import StoreContents
from state_store.core.deletion.retention import DeletionPlan


def remembered(kind: type[DeletionPlan]) -> Callable[..., DeletionPlan]:
    """Make judgements of that kind, one of equal contents."""
    made: dict[Any, DeletionPlan] = {}

    def judge(contents: StoreContents, newest, floor: int) -> DeletionPlan:
        archives = frozenset((name, id(read.manifest)) for name, read in contents.snapshots.items())
        entries = frozenset(contents.entries.items())
        key = (archives, entries, frozenset(contents.tombstones.files.items()), newest, floor)
        if key not in made:
            made[key] = kind(contents, newest, floor)
        return made[key]

    return judge
