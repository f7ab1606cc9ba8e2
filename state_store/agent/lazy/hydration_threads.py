"""The threads that fetch and verify files of lazy restores, for all stores of an executor."""

from __future__ import annotations

from collections import deque
from typing import Optional, Protocol, Union

from state_store.agent.supervision import Crew, Job
from state_store.core.runtime import Runtime

Taken = Optional[Union[Job, float]]
"""A job; the time, by the monotonic clock, at which to ask again; or None: nothing is to be done."""


class JobSource(Protocol):
    """A hydration, as the threads see it."""

    def take(self) -> Taken:
        """Take a job; called under the lock of the threads."""


class HydrationThreads:
    """Threads that take jobs of all hydrations in turn. Safe for any thread.

    A hydration is in the queue while it may have a job. One that a reader or a merge waits for comes first;
    when it has given a job, it is the last. A hydration whose jobs fail rests, and the threads do not.

    Attributes:
        changed: The lock of the threads, and of the hydrations.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.changed = runtime.condition()
        self._clock_s = runtime.monotonic_s
        self._crew = Crew(runtime, self.changed, "hydration", self._take)
        self._queue: deque[JobSource] = deque()
        self._limit = 0

    def start(self, source: JobSource, threads: int, limit: int, *, first: bool = False) -> bool:
        """Have the jobs of a hydration done.

        Args:
            source: The hydration.
            threads: Threads that it can use.
            limit: Threads of all hydrations; the largest number that any of them names counts.
            first: Take its next job before those of others.

        Returns:
            False if a thread could not be started.
        """
        with self.changed:
            self.queue(source)
            if first:
                self.prefer(source)
            self._limit = max(self._limit, limit)
            count = min(self._limit, self._crew.count + threads)
            self.changed.notify_all()
        return self._crew.ensure(count)

    def queue(self, source: JobSource) -> None:
        """Ask a hydration for jobs when the others have had their turns. A running thread has to come by."""
        with self.changed:
            if source not in self._queue:
                self._queue.append(source)

    def prefer(self, source: JobSource) -> None:
        """Ask a hydration next, if it is in the queue."""
        with self.changed:
            if source in self._queue:
                self._queue.remove(source)
                self._queue.appendleft(source)

    def drop(self, source: JobSource) -> None:
        """Ask a hydration for no further job."""
        with self.changed:
            if source in self._queue:
                self._queue.remove(source)
            self.changed.notify_all()

    def _take(self) -> Job | None:
        while self._queue:
            rests_until_s: list[float] = []
            for _ in range(len(self._queue)):
                source = self._queue[0]
                self._queue.rotate(-1)  # it stays in the queue if it fails
                taken = source.take()
                if taken is None:
                    self._queue.remove(source)
                elif isinstance(taken, float):
                    rests_until_s.append(taken)
                else:
                    return taken
            if rests_until_s:
                self.changed.wait(max(0.0, min(rests_until_s) - self._clock_s()))
        return None
