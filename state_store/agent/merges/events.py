"""Events of merges and stores, which the agent keeps until the JVM has acknowledged them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from state_store.agent.merges.merging import MergedStore
from state_store.agent.open_store import Ages, Prediction
from state_store.core.codec import INLINE, JsonObject, json_names
from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import StateStoreError

MAX_EVENTS = 100_000
"""Events that nobody fetches are those of a JVM that is gone; the oldest are dropped."""


@json_names(restore=INLINE)
@dataclass(frozen=True)
class MergeEnded(JsonObject):
    """Event: a merge of `store` was made; its base is offered, its snapshot published (kind `ingest`: none).

    `restore` is of the chain after it. `failures_in_row` is 0 unless merges of another kind fail.
    """

    event: ClassVar[str] = "merged"

    store: int
    merged: MergedStore
    ages: Ages
    restore: Prediction
    failures_in_row: int


@dataclass(frozen=True)
class MergeFailed(JsonObject):
    """Event: a merge of `store` failed, the `failures_in_row`-th without a success between."""

    event: ClassVar[str] = "merge_failed"

    store: int
    version: int
    kind: str
    reason: str
    error: StateStoreError
    failures_in_row: int


@dataclass(frozen=True)
class StoreClosed(JsonObject):
    """Event: the agent needs the files of a store no more. Its provider was closed before."""

    event: ClassVar[str] = "closed"

    store: int


Event = MergeEnded | MergeFailed | StoreClosed


@dataclass(frozen=True)
class EventsRequest:
    """Request for the events above number `after`, which waits up to `wait_ms` ms for the first."""

    after: int
    wait_ms: float | None = field(default=None)


@dataclass(frozen=True)
class Events(JsonObject):
    """Answer to `events`: those after the last one that the JVM has handled, each with its number."""

    events: Sequence[tuple[int, Event]]

    def to_json(self) -> dict[str, Any]:
        return {
            "events": [
                {"number": number, "event": event.event, **event.to_json()} for number, event in self.events
            ]
        }


class EventLog:
    """The events that the JVM has not yet acknowledged, oldest first. Safe for any thread.

    Events are numbered. The JVM polls with the number of the last that it has handled, so that none is lost
    when a connection breaks between.
    """

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._changed = runtime.condition()
        self._events: deque[tuple[int, Event]] = deque(maxlen=MAX_EVENTS)
        self._last = 0

    def add(self, event: Event) -> None:
        """Add an event under the next number, and wake the calls that wait for it."""
        with self._changed:
            self._events.append((self._last + 1, event))
            self._last += 1
            self._changed.notify_all()

    def after(self, number: int, *, wait_s: float) -> list[tuple[int, Event]]:
        """Forget the events up to `number`, and return the later ones, each with its number.

        Waits for the first of them, at most `wait_s` seconds, then returns none.
        """
        with self._changed:
            while self._events and self._events[0][0] <= number:
                self._events.popleft()
            self._changed.wait_for(lambda: bool(self._events), timeout=wait_s)
            return list(self._events)

    def forget(self, store: int) -> None:
        """Drop the events of a store that is closed."""
        with self._changed:
            self._events = deque(
                ((number, event) for number, event in self._events if event.store != store),
                maxlen=MAX_EVENTS,
            )
