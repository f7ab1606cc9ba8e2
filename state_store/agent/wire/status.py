"""The answer to `status`: the stores of this executor and their merges, for people and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state_store.agent.lazy.hydration import Progress
from state_store.agent.wire.answers import Ages, Answer, Prediction
from state_store.core.checkpoint.names import VersionId
from state_store.core.codec import INLINE, Signed, json_names
from state_store.core.planning.chain import Chain
from state_store.errors import StateStoreError


@json_names(version=INLINE)
@dataclass(frozen=True)
class RunningMerge:
    """A merge that runs, and the milliseconds since it began."""

    version: VersionId
    kind: str
    reason: str
    elapsed_ms: float


@json_names(version=INLINE)
@dataclass(frozen=True)
class WaitingMerge:
    """A merge that waits, and the reason as a sentence.

    `ready_in_ms` is None when time alone does not make it ready.
    """

    version: VersionId
    kind: str
    reason: str
    why: str
    ready_in_ms: float | None


@json_names(version=INLINE)
@dataclass(frozen=True)
class EndedMerge:
    """The last merge that was made, or that failed, and the milliseconds since it ended.

    `error` is None for a merge that was made.
    """

    version: VersionId
    kind: str
    reason: str
    ended_ms_ago: float
    took_ms: float
    error: StateStoreError | None


@dataclass(frozen=True)
class MergeStatus:
    """The merges of one store."""

    running: RunningMerge | None
    waiting: Sequence[WaitingMerge]
    last_made: EndedMerge | None
    last_failed: EndedMerge | None
    failures_in_row: int


@json_names(restore=INLINE)
@dataclass(frozen=True)
class StoreStatus:
    """A store as its agent sees it now.

    `newest` is the version committed or restored last, `certain` the newest one that Spark has committed for
    certain. `options` are the options in force by name, None unless they were asked for.
    """

    store: int
    location: str
    operator: Signed
    partition: Signed
    name: str
    run: str
    newest: VersionId | None
    certain: VersionId | None
    chain: Chain
    ages: Ages
    restore: Prediction
    hydration: Progress
    merges: MergeStatus
    options: Mapping[str, Any] | None


@dataclass(frozen=True)
class Status(Answer):
    """Answer to `status`: the stores that this agent has open."""

    stores: Sequence[StoreStatus]
