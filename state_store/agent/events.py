"""What the agent tells the JVM without being asked: how merges ended.

Events are numbered. The JVM polls with the number of the last that it has handled, so that none is lost when
a connection breaks between.
"""

from __future__ import annotations

from collections import deque

from state_store.agent.wire.answers import Event
from state_store.core.runtime import SYSTEM, Runtime

MOST_KEPT = 100_000
"""Events that nobody fetches are those of a JVM that is gone; the oldest go."""


class EventLog:
    """The events that the JVM has not yet acknowledged, oldest first. Safe for any thread."""

    def __init__(self, runtime: Runtime = SYSTEM) -> None:
        self._changed = runtime.condition()
        self._events: deque[tuple[int, Event]] = deque(maxlen=MOST_KEPT)
        self._last = 0

    def add(self, event: Event) -> None:
        with self._changed:
            self._last += 1
            self._events.append((self._last, event))
            self._changed.notify_all()

    def after(self, number: int, *, wait_s: float) -> list[tuple[int, Event]]:
        """Forgets the events up to `number` and gives the later ones; waits for the first of them, at most
        `wait_s` seconds, then gives none.
        """
        with self._changed:
            while self._events and self._events[0][0] <= number:
                self._events.popleft()
            self._changed.wait_for(lambda: bool(self._events), timeout=wait_s)
            return list(self._events)

    def forget(self, store: int) -> None:
        """Drops the events of a store that is closed."""
        with self._changed:
            self._events = deque(
                ((number, event) for number, event in self._events if event.store != store),
                maxlen=MOST_KEPT,
            )
