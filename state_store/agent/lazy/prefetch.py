"""Fetch the files of a base in the background, in threads that all stores of an executor share.

A restore leaves sparse files behind, of which only the tails are local. The JVM notices a missing block by
its checksum, asks for the bytes around it, and reads on. Meanwhile the `Prefetch` of a base that has room on
the disk fetches what is missing, in parts, of those files first that were asked for. It begins with the first
file whose tail is local, while the restore still asks for others.

A file is in one state at a time:

    FETCHING -> FETCHED -> VERIFYING -> WHOLE
                   ^            |
                   +-- error ---+        a missing or damaged file: FAILED, from any state

A part or a verification that fails for another reason is tried again, for as long as the base is there.
Nobody waits inside: a merge asks if files are coming, and comes back.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from logging import LoggerAdapter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.agent.lazy.local_file import LocalFile
from state_store.agent.supervision import (
    BackgroundJob,
    Job,
    WorkerThreads,
    as_state_store_error,
)
from state_store.core.files.sparse import PAGE_BYTES
from state_store.core.files.transfer import PART_BYTES, difference, fetch_part, parts_of
from state_store.core.runtime import Runtime
from state_store.errors import DamagedError, MissingError, StateStoreError

if TYPE_CHECKING:
    from state_store.core.snapshots.context import StoreContext

Taken = Job | float | None
"""A job; the time, by the monotonic clock, at which to ask again; or None: nothing is to be done."""

Part = tuple[int, int]
"""The first page of a piece of a file, and the number of its pages."""

RETRY_S = 2.0
"""Time after a part or a verification that failed for which the prefetch uses a thread less."""

STALL_S = 60.0
"""Time without progress, only with failures, after which merges do not wait any longer."""

MAX_VERIFYING = 2
"""Files of a base that are read again at a time, beside the batch that is on all cores."""


class PrefetchThreads:
    """Threads that take jobs of all prefetches in turn, within a rate. Safe for any thread.

    A prefetch is in the queue while it may have a job. One that a reader waits for comes first; when it has
    given a job, it is the last. A prefetch whose jobs fail rests, and the threads do not.

    Attributes:
        changed: The lock of the threads, and of the prefetches.
        bytes_per_s: Bytes that may be fetched in a second; 0 means any number.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.changed = runtime.condition()
        self.bytes_per_s = 0
        self._clock_s = runtime.monotonic_s
        self._workers = WorkerThreads(runtime, self.changed, "prefetch", self._take)
        self._queue: deque[Prefetch] = deque()
        self._limit = 0
        self._free_from_s = 0.0

    def start(self, source: Prefetch, threads: int, limit: int) -> bool:
        """Have the jobs of a prefetch done.

        Args:
            source: The prefetch.
            threads: Threads that it can use.
            limit: Threads of all prefetches; the largest number that any of them names counts.

        Returns:
            False if a thread could not be started.
        """
        with self.changed:
            self.queue(source)
            self._limit = max(self._limit, limit)
            count = min(self._limit, self._workers.count + threads)
            self.changed.notify_all()
        return self._workers.ensure(count)

    def queue(self, source: Prefetch) -> None:
        """Ask a prefetch for jobs when the others have had their turns. A running thread has to come by."""
        with self.changed:
            if source not in self._queue:
                self._queue.append(source)

    def prefer(self, source: Prefetch) -> None:
        """Ask a prefetch next, if it is in the queue."""
        with self.changed:
            if source in self._queue:
                self._queue.remove(source)
                self._queue.appendleft(source)

    def drop(self, source: Prefetch) -> None:
        """Ask a prefetch for no further job."""
        with self.changed:
            if source in self._queue:
                self._queue.remove(source)
            self.changed.notify_all()

    def turn_s(self, size_bytes: int) -> float:
        """Return the time, by the monotonic clock, from which on this many bytes may be fetched.

        They come after the bytes that others have asked for.
        """
        with self.changed:
            at_s = max(self._clock_s(), self._free_from_s)
            if self.bytes_per_s:
                self._free_from_s = at_s + size_bytes / self.bytes_per_s
            return at_s

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


class FileState(enum.Enum):
    """State of one file."""

    FETCHING = "fetching"
    FETCHED = "fetched"
    VERIFYING = "verifying"
    WHOLE = "whole"
    FAILED = "failed"


class FetchedFile:
    """The progress of one file. Not safe for threads: the prefetch holds its lock."""

    def __init__(self, local: LocalFile, part_pages: int) -> None:
        self.local = local
        first, end = local.present.find(0), local.present.rfind(0) + 1
        parts = parts_of(end - first, part_pages) if end else []
        self.parts: list[Part] = [(first + at, pages) for at, pages in parts]
        self.part_count = self.left = len(self.parts)
        self.state = FileState.FETCHING if parts else FileState.FETCHED

    def ended(self, part: Part | None, *, is_done: bool) -> None:
        """Note the end of a part, or of the verification."""
        if self.state is FileState.FAILED:
            return
        if part is None:
            self.state = FileState.WHOLE if is_done else FileState.FETCHED
        elif is_done:
            self.left -= 1
            self.state = self.state if self.left else FileState.FETCHED
        else:
            self.parts.insert(0, part)


@dataclass(frozen=True)
class Progress:
    """Bytes of sparse files: asked for by the JVM, fetched in the background, and still missing."""

    on_demand_bytes: int = 0
    hydrated_bytes: int = 0
    left_bytes: int = 0


class Prefetch:
    """The files of one base: each that is added, until all are. Safe for any thread.

    Callbacks are called without a lock, by any thread.

    Args:
        context: The store.
        directory: The base. When it is removed, the prefetch ends by itself.
        threads: The threads of the executor.
        found_damage: Is called with the error when a file is missing or damaged in storage.
        hydration_ended: Is called when the files may be there, or not come any more.
        log: The log of the store.
    """

    def __init__(
        self,
        context: StoreContext,
        directory: Path,
        *,
        threads: PrefetchThreads,
        found_damage: Callable[[StateStoreError], object],
        hydration_ended: Callable[[], object],
        log: LoggerAdapter[Any],
    ) -> None:
        self._context = context
        self._directory = directory
        self._threads = threads
        self._found_damage = found_damage
        self._hydration_ended = hydration_ended
        self._log = log
        self._clock_s = context.runtime.monotonic_s
        part_bytes = PART_BYTES
        if threads.bytes_per_s:  # parts are up to 1.5 times as long
            part_bytes = min(PART_BYTES, threads.bytes_per_s * 2 // 3)
        self._part_pages = max(1, part_bytes // PAGE_BYTES)
        self._changed = threads.changed
        self._order: list[FetchedFile] = []
        self._is_complete = False
        self._is_stopped = False
        self._failing_since_s: float | None = None
        self._at_work = 0
        self._resting_until_s: deque[float] = deque()
        self.fetched_bytes = 0
        """Bytes that were fetched."""

    # ---- called by the store -----------------------------------------------------------------------------

    def add(self, files: Iterable[LocalFile]) -> None:
        """Fetch these files too."""
        with self._changed:
            self._order += [FetchedFile(file, self._part_pages) for file in files]
        self.start()

    def complete(self) -> None:
        """Note that no more files are added, and begin to verify. Earlier that would slow the tails down."""
        with self._changed:
            self._is_complete = True
        self.start()
        self._report()

    def start(self) -> None:
        """Have the threads fetch and verify until every file is whole, or nobody needs the base any more."""
        limit = self._context.transfer_threads
        with self._changed:
            parts = sum(file.part_count for file in self._order)
        if not self._threads.start(self, min(limit, max(1, parts)), limit):
            with self._changed:
                self._note_failure()

    def resume(self) -> None:
        """Go on if there is work: perhaps no thread could be started before."""
        with self._changed:
            has_work = any(file.parts or file.state is FileState.FETCHED for file in self._order)
            if self._is_stopped or not has_work:
                return
        self.start()

    def stop(self) -> None:
        """End the fetching, once the requests under way have ended."""
        with self._changed:
            self._is_stopped = True
            self._threads.drop(self)
        self._report()

    def prefer(self, files: Iterable[LocalFile]) -> None:
        """Fetch the rest of these files before others."""
        with self._changed:
            first = set(files)
            self._order.sort(key=lambda file: file.local not in first)
            self._threads.prefer(self)

    @property
    def is_whole(self) -> bool:
        """True if every file is local, and right."""
        with self._changed:
            return self._is_complete and all(file.state is FileState.WHOLE for file in self._order)

    @property
    def is_coming(self) -> bool:
        """True if all files will be local, and some are not yet."""
        with self._changed:
            since_s, states = self._failing_since_s, self.states().values()
            is_stalled = since_s is not None and self._clock_s() - since_s >= STALL_S
            if self._is_stopped or self.is_whole or FileState.FAILED in states or is_stalled:
                return False
        return self._directory.exists()

    def states(self) -> dict[str, FileState]:
        """Return the state of each file, by name."""
        with self._changed:
            return {file.local.spec.name: file.state for file in self._order}

    # ---- jobs, taken under the lock ----------------------------------------------------------------------

    def take(self) -> Taken:
        """Take a job; called under the lock of the threads."""
        if self._is_stopped:
            return None
        resting = self._resting_until_s
        while resting and resting[0] <= self._clock_s():
            resting.popleft()
        if self._at_work + len(resting) >= self._context.transfer_threads:
            return resting[0] if resting else None  # the end of a job puts this into the queue again
        # What takes a core is the batch's until nothing is left to fetch; the batch verifies what it reads.
        # Where fetching is slowed down it may take hours, and a file that is not verified is not kept.
        if self._threads.bytes_per_s:
            job = self._verification() or self._part()
        else:
            job = self._part() or self._verification()
        self._at_work += job is not None
        return job

    def _part(self) -> Job | None:
        file = next((file for file in self._order if file.parts), None)
        return None if file is None else self._job(file, file.parts.pop(0))

    def _verification(self) -> Job | None:
        if not (self._is_complete or self._threads.bytes_per_s):
            return None
        states = [file.state for file in self._order]
        if FileState.FETCHED not in states or states.count(FileState.VERIFYING) >= MAX_VERIFYING:
            return None
        file = self._order[states.index(FileState.FETCHED)]
        file.state = FileState.VERIFYING
        return self._job(file, None)

    # ---- jobs, at work and at their end, without the lock ------------------------------------------------

    def _job(self, file: FetchedFile, part: Part | None) -> Job:
        """Return the job of a part of a file, or of its verification."""
        is_done = False

        def work() -> None:
            nonlocal is_done
            is_done = self._verify(file.local) if part is None else self._fetch(file.local, part)

        def give_back(failure: BaseException | None) -> None:
            with self._changed:
                self._ended(file, part, failure, is_done=is_done and failure is None)

        def report(failure: BaseException | None) -> None:
            if failure is not None and file.state is FileState.FAILED:
                self._found_damage(as_state_store_error(failure))
            elif failure is not None and not isinstance(failure, StateStoreError):
                error = as_state_store_error(failure)
                self._log.warning(f"'{file.local.spec.path}' is fetched again later: {error}")
            self._report()

        return BackgroundJob(work, give_back, report)

    def _fetch(self, file: LocalFile, part: Part) -> bool:
        """Fetch what is missing of a part. Returns False if nobody needs it any more."""
        gaps = file.gaps(part[0], sum(part))
        if not gaps:
            return True
        start, length = gaps[0][0], gaps[-1][1] - gaps[0][0]
        self._wait_for_turn(length)
        if self._is_gone():
            return False
        with file.arriving(gaps) as aside:
            fetch_part(self._context.storage, file.spec.path, aside, start, length)
        with self._changed:
            self.fetched_bytes += length
        return True

    def _verify(self, file: LocalFile) -> bool:
        """Verify a file and keep it. Returns False if nobody needs it any more."""
        if self._is_gone():
            return False
        self._context.runtime.lower_priority()
        try:
            wrong = difference(file.spec.wanted(self._directory))
        except FileNotFoundError:
            if self._is_gone():
                return False
            raise
        if wrong is not None:
            raise DamagedError.of(f"{self._context.storage.location}/{file.spec.path}", wrong)
        self._context.cache.keep(file.spec.path, file.local)
        return True

    def _is_gone(self) -> bool:
        """Return True if the base is not needed any more. A restore that failed has removed its directory."""
        if not self._is_stopped and not self._directory.exists():
            self.stop()
        return self._is_stopped

    def _wait_for_turn(self, size_bytes: int) -> None:
        """Wait until the rate limit allows this many bytes."""
        at_s = self._threads.turn_s(size_bytes)
        with self._changed:
            while not self._is_stopped and (left_s := at_s - self._clock_s()) > 0:
                self._changed.wait(left_s)

    def _note_failure(self) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = self._clock_s()

    def _ended(
        self, file: FetchedFile, part: Part | None, failure: BaseException | None, *, is_done: bool
    ) -> None:
        """Note the end of a job, under the lock. The thread that did it takes the next."""
        if isinstance(failure, (MissingError, DamagedError)):
            file.state = FileState.FAILED
            file.parts.clear()
        elif failure is not None:
            self._note_failure()
        elif is_done:
            self._failing_since_s = None
        file.ended(part, is_done=is_done)
        self._at_work -= 1
        if failure is not None:
            self._resting_until_s.append(self._clock_s() + RETRY_S)
        if not self._is_stopped:
            self._threads.queue(self)
        self._changed.notify_all()

    def _report(self) -> None:
        if not self.is_coming:
            self._hydration_ended()
