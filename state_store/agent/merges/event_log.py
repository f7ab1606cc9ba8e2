"""Events of merges and stores, kept until the JVM has acknowledged them."""

from __future__ import annotations

from collections import deque

from state_store.agent.wire.answers import Event
from state_store.core.runtime import SYSTEM, Runtime

MAX_EVENTS = 100_000
"""Events that nobody fetches are those of a JVM that is gone; the oldest are dropped."""


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
