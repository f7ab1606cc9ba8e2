"""A query that is watched: a thread of its own looks at it, and everybody is answered from the last look."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from state_store.errors import StateStoreError, as_store_error
from state_store.observe.model.rest_answers import Checkpoint, Failure, Verdict
from state_store.observe.model.totals import Totals
from state_store.observe.verdict import judge, totals_of
from state_store.observe.watching.counted_storage import Requests
from state_store.observe.watching.look import Look, Looker

IDLE_S = 600.0
"""Seconds without a request after which storage is not looked at any more, until the next request."""

MAX_HISTORY = 2000
"""Checkpoints that are remembered after their files are gone."""


@dataclass(frozen=True)
class State:
    """Everything that is known of a watched query at one moment. Immutable.

    Attributes:
        look: the last successful look; None before the first.
        error: why the last look failed; None if it succeeded.
        errors: looks that failed.
        history: checkpoints, oldest first, those that cannot be restored any more included.
    """

    look: Look | None = None
    error: Failure | None = None
    errors: int = 0
    history: tuple[Checkpoint, ...] = ()


class Watched:
    """A query that is looked at, at most once in `every_s` seconds, while somebody asks.

    All viewers share the looks: a hundred of them cost storage as much as one. Nobody waits for a look; slow
    storage makes answers old, never slow. Safe for any thread.

    Args:
        name: name in addresses.
        location: the checkpoint directory, a path or URI.
        every_s: least seconds between the beginnings of two looks.
        objective_ms: the restore objective, milliseconds; 0: none; None: the query's own.
        idle_s: seconds without a request after which looking stops.
    """

    def __init__(
        self,
        name: str,
        location: str,
        *,
        every_s: float,
        objective_ms: int | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.name = name
        self.location = location
        self.requests = Requests()
        self._looker = Looker(location, requests=self.requests, objective_ms=objective_ms)
        self._every_s, self._idle_s = every_s, idle_s
        self._state = State()
        self._changed = threading.Condition()
        self._asked_s = time.monotonic()
        self._fully = False
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way. May be called more than once."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def state(self) -> State:
        """Return the last state, and keep the looks going."""
        with self._changed:
            if time.monotonic() - self._asked_s > self._idle_s:
                self._changed.notify_all()
            self._asked_s = time.monotonic()
            return self._state

    def refresh(self) -> None:
        """Look as soon as the pace allows, at all stores, even if Spark has committed nothing."""
        with self._changed:
            self._fully = True
            self._asked_s = time.monotonic()
            self._changed.notify_all()

    def wait_for_look(self, timeout_s: float) -> bool:
        """Wait until the first look has ended, well or not.

        Args:
            timeout_s: seconds to wait at most.

        Returns:
            True if it has ended.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._state.look is not None or self._state.error is not None, timeout_s
            )

    def totals(self, state: State) -> Totals:
        """Return the figures of the query."""
        look = state.look
        unreadable = state.error is not None
        if look is None:
            return totals_of([], unreadable=unreadable)
        return look.totals(unreadable=unreadable)

    def verdict(self, state: State) -> Verdict:
        """Return the verdict on the query, now."""
        look = state.look
        return judge(
            self.totals(state),
            look.stores if look else (),
            int(time.time() * 1000),
            error=state.error,
            start=look.start_failure if look else None,
            verify=look.verify_failure if look else None,
            batch=look.batch if look else None,
        )

    def look_now(self) -> None:
        """Look once, in the calling thread. For the thread of `start`, and for tests without it."""
        with self._changed:
            fully, self._fully = self._fully, False
            before = self._state
        try:
            look = self._looker.look(fully=fully)
            state = State(look, None, before.errors, _remembered(before.history, look.history))
        except (StateStoreError, OSError) as error:
            failure = Failure(**as_store_error(error).to_json())
            state = replace(before, error=failure, errors=before.errors + 1)
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _watch(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            self.look_now()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped, max(0.0, began_s + self._every_s - time.monotonic())
                )
                while (
                    not self._stopped and time.monotonic() - self._asked_s > self._idle_s and not self._fully
                ):
                    self._changed.wait(self._idle_s)
        self._looker.close()


def _remembered(before: tuple[Checkpoint, ...], now: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Return what is there now, after older checkpoints that were there before."""
    if not now:
        return before
    if before and before[-1] is now[-1]:
        return before
    current = {checkpoint.version for checkpoint in now}
    older = [
        replace(checkpoint, restorable=False)
        for checkpoint in before
        if checkpoint.version not in current and checkpoint.version < now[0].version
    ]
    return (*older, *now)[-MAX_HISTORY:]
