"""Threads of several simulated processes that take turns, and the time that passes between their steps.

Each thread is a greenlet, and all run in one thread of the machine: each runs until it waits, for time or for
another thread. Then the next in simulated time goes on; between those of the same moment, and in whatever
else is left to chance, the seed decides. So one seed gives one history, and other work on the machine makes
no turn longer, as it would if threads of the machine had to hand over to each other.

Processes can be killed, in the middle of anything: their threads end where they are, and nothing that they
would do on the way out has an effect. They can be paused: their threads go on when the pause is over.
"""

from __future__ import annotations

import contextvars
import heapq
import random
from collections.abc import Callable
from typing import Any

import greenlet

from state_store.core.runtime import Runtime

EPOCH_MS = 1_700_000_000_000
"""Time of all clocks at the start, milliseconds since 1970."""


def is_simulated() -> bool:
    """Return True if a thread of a simulated process asks."""
    return isinstance(greenlet.getcurrent(), Thread)


class Killed(BaseException):
    """The process of this thread is dead."""


class Deadlock(AssertionError):
    """All threads wait for each other."""


class Process:
    """A simulated process: its randomness, its clock, and whether it lives."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.resumes_at_s = 0.0
        self.wall_ahead_ms = 0
        self.threads: list[Thread] = []
        self.chance = random.Random(f"{scheduler.seed} {name}")
        self.runtime = SimulatedRuntime(scheduler, self)


class Thread(greenlet.greenlet):  # type: ignore[misc]
    """A thread of a process; `failure` is what it ended with, where that was an exception.

    `reaper` is who ended it, and goes on after it.
    """

    def __init__(self, scheduler: Scheduler, process: Process, name: str, work: Callable[[], object]) -> None:
        super().__init__(parent=scheduler.caller)
        self.process = process
        self.name = f"{process.name}/{name}"
        self.failure: BaseException | None = None
        self.has_begun = self.has_ended = False
        self.waits = 0
        self.waiters: list[Thread] = []
        self.reaper: greenlet.greenlet | None = None
        self._scheduler = scheduler
        self._work = work
        self._context = contextvars.copy_context()

    def run(self, _: object = None) -> None:
        self.has_begun = True
        try:
            self._context.run(self._work)
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
        self.parent = self._scheduler.ended(self)

    def join(self, timeout: float | None = None) -> None:
        scheduler = self._scheduler
        end_s = None if timeout is None else scheduler.now_s + timeout
        while not self.has_ended and (end_s is None or scheduler.now_s < end_s):
            self.waiters.append(scheduler.current)
            scheduler.wait(None if end_s is None else end_s - scheduler.now_s)


class Scheduler:
    """See the module. `trace` has a line for each thing that was noted, in order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed} schedule")
        self.now_s = 0.0
        self.steps = 0
        self.trace: list[str] = []
        self.current: Any = None
        self.processes: list[Process] = []
        self._ready: list[tuple[float, float, int, Thread, int]] = []
        self._pushed = 0
        self.caller = greenlet.getcurrent()
        self._main: Thread | None = None
        self._failure: BaseException | None = None

    def run(self, work: Callable[[], object]) -> None:
        """Run `work` as a process of its own until it ends; all other processes end with it."""
        self.caller = greenlet.getcurrent()
        main = self._main = self.start(self.process("main"), "main", work)
        # A greenlet begins at the depth of recursion of the one that switches to it first. So all begin here,
        # and not in each other, or the depth would grow with the history.
        while not main.has_ended and self._failure is None:
            self.current = self._next()
            if self.current is None:
                self._failure = Deadlock("all wait for each other")
            else:
                self.current.switch()
        self._main = None
        for process in self.processes:
            self.kill(process)
        failure = self._failure or main.failure
        if failure is not None:
            raise failure

    def process(self, name: str) -> Process:
        process = Process(self, name)
        self.processes.append(process)
        return process

    def start(self, process: Process, name: str, work: Callable[[], object]) -> Thread:
        thread = Thread(self, process, name, work)
        process.threads.append(thread)
        self.wake(thread)
        return thread

    def note(self, *words: object) -> None:
        """A line of the trace, with the time and who runs."""
        who = self.current.name if self.current else "-"
        self.trace.append(f"{self.now_s:.6f} {who} " + " ".join(str(word) for word in words))

    # ---- waiting -----------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """The current thread goes on after that time."""
        end_s = self.now_s + seconds
        self.wait(seconds)
        while self.now_s < end_s:
            self.wait(end_s - self.now_s)

    def wait(self, seconds: float | None = None) -> None:
        """The current thread goes on when it is woken, or after that time; it may also be sooner."""
        thread = self.current
        self._check(thread)
        thread.waits += 1
        if seconds is not None:
            self._push(self.now_s + seconds, thread)
        self._switch(thread)

    def wake(self, thread: Thread) -> None:
        """A thread that waits goes on, at this time."""
        thread.waits += 1
        self._push(self.now_s, thread)

    # ---- processes ---------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """End the threads of another process where they are."""
        process.is_dead = True
        for thread in process.threads:
            if not thread.has_begun:
                self._end(thread)
            elif not thread.has_ended:
                thread.reaper = greenlet.getcurrent()
                before, self.current = self.current, thread
                thread.switch()
                self.current = before
        process.threads.clear()

    def pause(self, process: Process, seconds: float) -> None:
        """The threads of the process do nothing for that time."""
        process.resumes_at_s = max(process.resumes_at_s, self.now_s + seconds)

    def ended(self, thread: Thread) -> greenlet.greenlet:
        """The current thread is over; return who goes on: who ended it, or the scheduler."""
        self._end(thread)
        if thread.reaper is not None:
            return thread.reaper
        if thread in thread.process.threads:
            thread.process.threads.remove(thread)
        if thread.failure is not None and thread is not self._main and self._failure is None:
            self._failure = thread.failure
        return self.caller

    def _end(self, thread: Thread) -> None:
        thread.has_ended = True
        for waiter in thread.waiters:
            if not waiter.has_ended:
                self.wake(waiter)

    # ---- turns -------------------------------------------------------------------------------------------

    def _check(self, thread: Thread) -> None:
        assert thread is not None, "only a thread of a simulated process can wait"
        if thread.process.is_dead:
            raise Killed

    def _push(self, at_s: float, thread: Thread) -> None:
        self._pushed += 1
        heapq.heappush(self._ready, (at_s, self.chance.random(), self._pushed, thread, thread.waits))

    def _next(self) -> Thread | None:
        while self._ready:
            at_s, _, _, thread, wait = heapq.heappop(self._ready)
            if thread.has_ended or thread.waits != wait or thread.process.is_dead:
                continue
            if thread.process.resumes_at_s > max(at_s, self.now_s):
                self._push(thread.process.resumes_at_s, thread)
                continue
            self.now_s = max(self.now_s, at_s)
            self.steps += 1
            return thread
        return None

    def _switch(self, thread: Thread) -> None:
        """Let the next thread go on, and wait until it is this one's turn."""
        self.caller.switch()
        if thread.process.is_dead:
            raise Killed


class SimulatedLock:
    """A lock that the thread that has it can take again."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._owner: Any = None
        self._count = 0
        self._waiting: list[Thread] = []

    def __enter__(self) -> bool:
        self._take(1)
        return True

    def __exit__(self, *failure: object) -> None:
        self._give()

    def _take(self, count: int) -> None:
        thread = self._scheduler.current
        if thread is not None and thread.process.is_dead:
            raise Killed
        if self._owner is not thread and self._process.chance.random() < 0.05:
            self._scheduler.sleep(0)
        while self._count and self._owner is not thread:
            if thread not in self._waiting:
                self._waiting.append(thread)
            self._scheduler.wait()
        if thread in self._waiting:
            self._waiting.remove(thread)
        self._owner = thread
        self._count += count

    def _give(self) -> None:
        if self._owner is not self._scheduler.current:
            return  # of a dead process, which never had it back
        self._count -= 1
        self._let_go()

    def _let_go(self) -> None:
        if not self._count:
            self._owner = None
            if self._waiting:
                self._scheduler.wake(self._waiting.pop(0))

    def _give_all(self) -> int:
        count, self._count = self._count, 0
        self._let_go()
        return count


class SimulatedCondition(SimulatedLock):
    """A lock on which threads wait for each other."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        super().__init__(scheduler, process)
        self._listening: list[Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        thread = self._scheduler.current
        count = self._give_all()
        self._listening.append(thread)
        self._scheduler.wait(timeout)
        was_notified = thread not in self._listening
        if not was_notified:
            self._listening.remove(thread)
        self._take(count)
        return was_notified

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        end_s = None if timeout is None else self._scheduler.now_s + timeout
        while not predicate():
            left_s = None if end_s is None else end_s - self._scheduler.now_s
            if left_s is not None and left_s <= 0:
                return predicate()
            self.wait(left_s)
        return True

    def notify_all(self) -> None:
        listening, self._listening = self._listening, []
        for thread in listening:
            if not thread.has_ended:
                self._scheduler.wake(thread)


class SimulatedRuntime(Runtime):
    """Runtime of a simulated process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now_s * 1000) + self._process.wall_ahead_ms

    def monotonic_s(self) -> float:
        return self._scheduler.now_s

    def uptime_ms(self) -> float:
        return self._scheduler.now_s * 1000

    def random_bytes(self, count: int) -> bytes:
        return self._process.chance.randbytes(count)

    def process_id(self) -> int:
        return 1

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self._scheduler, self._process)

    def condition(self) -> SimulatedCondition:
        return SimulatedCondition(self._scheduler, self._process)

    def start(self, work: Callable[[], object], *, name: str) -> Thread:
        return self._scheduler.start(self._process, name, work)

    def lower_priority(self) -> None:
        """Leave the priority as it is: all threads are one of the machine, which could not raise it again."""
