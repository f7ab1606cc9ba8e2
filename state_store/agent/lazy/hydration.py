"""Fetch the sparse files of one base: blocks as the JVM asks for them, the rest in the background.

A restore leaves sparse files behind, of which only the tails are local (`core.files.sparse`). The JVM notices
a missing block by its checksum, asks for the bytes around it, and reads on. Meanwhile a `Hydration` fetches
whole files in parts, those that were asked for first. It begins with the first file whose tail is local,
while the restore still asks for others. The JVM verifies a
block once, so a part leaves the bytes alone that are local already: only what the JVM asks for is replaced.
An agent that replaces another does not know which are local: it looks first whether the file is whole.

A file is in one state at a time:

    FETCHING -> FETCHED -> VERIFYING -> WHOLE
       ^          ^            |
       |          +-- error ---+        a missing or damaged file: FAILED, from any state
       +--- not whole yet -----+        (of a file that another agent began)

A part or a verification that fails for another reason is tried again, for as long as the base is there.
Nobody waits inside: a merge asks for the `readiness` of the base and comes back.

All stores of an executor share bytes a second, and the threads that fetch and verify.
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import LoggerAdapter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from state_store.agent.jvm_connections import background
from state_store.agent.supervision import Job, WorkerThreads, as_state_store_error, lower_priority
from state_store.core.files.sparse import SparseBytes, SparseFile, end_bytes, spans_of
from state_store.core.files.transfer import PART_BYTES, parallel, parts_of
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Span
from state_store.errors import DamagedError, InternalError, MissingError, StateStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from state_store.core.snapshots.context import StoreContext

Taken = Optional[Union[Job, float]]
"""A job; the time, by the monotonic clock, at which to ask again; or None: nothing is to be done."""

Part = tuple[int, int]
"""Offset and length of a piece of a file."""

RETRY_S = 2.0
"""Time after a part or a verification that failed for which the hydration uses a thread less."""

STALL_S = 60.0
"""Time without progress, only with failures, after which merges do not wait any longer."""

MAX_VERIFYING = 2
"""Files of a base that are read again at a time, beside the batch that is on all cores."""


class JobSource(Protocol):
    """A hydration, as the threads see it."""

    def take(self) -> Taken:
        """Take a job; called under the lock of the threads."""


class HydrationThreads:
    """Threads that take jobs of all hydrations in turn. Safe for any thread.

    A hydration is in the queue while it may have a job. One that a reader waits for comes first; when
    it has given a job, it is the last. A hydration whose jobs fail rests, and the threads do not.

    Attributes:
        changed: The lock of the threads, and of the hydrations.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.changed = runtime.condition()
        self._clock_s = runtime.monotonic_s
        self._workers = WorkerThreads(runtime, self.changed, "hydration", self._take)
        self._queue: deque[JobSource] = deque()
        self._limit = 0

    def start(self, source: JobSource, threads: int, limit: int) -> bool:
        """Have the jobs of a hydration done.

        Args:
            source: The hydration.
            threads: Threads that it can use.
            limit: Threads of all hydrations; the largest number that any of them names counts.

        Returns:
            False if a thread could not be started.
        """
        with self.changed:
            self.queue(source)
            self._limit = max(self._limit, limit)
            count = min(self._limit, self._workers.count + threads)
            self.changed.notify_all()
        return self._workers.ensure(count)

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


class HydrationBudget:
    """The threads, and the bytes a second, that all stores of an executor share. Safe for any thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.threads = HydrationThreads(runtime)
        """The threads, which all hydrations share."""
        self._clock_s = runtime.monotonic_s
        self._lock = runtime.lock()
        self._bytes_per_s = 0
        self._free_from_s = 0.0

    def limit(self, bytes_per_s: int) -> None:
        """Set the limit, as the option of the executor says; 0 means no limit."""
        with self._lock:
            self._bytes_per_s = bytes_per_s

    @property
    def bytes_per_s(self) -> int:
        """Bytes that may be fetched in a second; 0 means any number."""
        return self._bytes_per_s

    def turn_s(self, size_bytes: int) -> float:
        """Return the time, by the monotonic clock, from which on this many bytes may be fetched.

        They come after the bytes that others have asked for.
        """
        with self._lock:
            at_s = max(self._clock_s(), self._free_from_s)
            if self._bytes_per_s:
                self._free_from_s = at_s + size_bytes / self._bytes_per_s
            return at_s


class FileState(enum.Enum):
    """State of one sparse file."""

    FETCHING = "fetching"
    FETCHED = "fetched"
    VERIFYING = "verifying"
    WHOLE = "whole"
    FAILED = "failed"


class HydratedFile:
    """The progress of one sparse file: the parts before its tail that are fetched. The tail is local already.

    Not safe for threads: the hydration holds its lock.
    """

    def __init__(self, spec: SparseFile, local: SparseBytes, part_bytes: int) -> None:
        self.spec = spec
        self.local = local
        self.missing_bytes = spec.size_bytes - end_bytes(spec.size_bytes)
        self.hydrated_bytes = 0
        self.on_demand_bytes = 0
        self._all_parts = parts_of(self.missing_bytes, part_bytes) if self.missing_bytes else []
        self.part_count = len(self._all_parts)
        self.may_be_whole = local.is_inherited
        self.parts: list[Part] = []
        self.state = FileState.FETCHED
        if not self.may_be_whole:
            self.begin()

    def begin(self) -> None:
        """Begin to fetch the parts."""
        self.may_be_whole = False
        if self._all_parts:
            self.parts = list(self._all_parts)
            self.state = FileState.FETCHING

    def became_whole(self) -> None:
        """Note that the file is local, and right."""
        self.state, self.hydrated_bytes = FileState.WHOLE, self.missing_bytes

    def part_fetched(self, part: Part) -> None:
        """Note that a part is local."""
        self.hydrated_bytes += part[1]
        if self.hydrated_bytes == self.missing_bytes and self.state is FileState.FETCHING:
            self.state = FileState.FETCHED

    def put_back(self, part: Part) -> None:
        """Note that a part did not come: it is the next one."""
        if self.state is FileState.FETCHING:
            self.parts.insert(0, part)

    def fail(self) -> None:
        """Give the file up."""
        self.state = FileState.FAILED
        self.parts.clear()
        with contextlib.suppress(OSError):
            self.local.drop_parts()


@dataclass(frozen=True)
class Progress:
    """Bytes of sparse files: asked for by the JVM, fetched in the background, and still missing."""

    on_demand_bytes: int = 0
    hydrated_bytes: int = 0
    left_bytes: int = 0


class Readiness(enum.Enum):
    """Readiness of a base for a merge: every file is local, files are coming, or some will not come."""

    WHOLE = "whole"
    COMING = "coming"
    FAILED = "failed"


class Hydration:
    """The sparse files of one base: each that is added, until all are. Safe for any thread.

    Callbacks are called without a lock, by any thread.

    Args:
        context: The store.
        directory: The base. When it is removed, the hydration ends by itself.
        budget: Threads and network that the executor allows.
        found_damage: Is called with the error when a file is missing or damaged in storage.
        settled: Is called when the readiness may have changed to another than COMING.
        log: The log of the store.
    """

    def __init__(
        self,
        context: StoreContext,
        directory: Path,
        *,
        budget: HydrationBudget,
        found_damage: Callable[[StateStoreError], object],
        settled: Callable[[], object],
        log: LoggerAdapter[Any],
    ) -> None:
        self._context = context
        self._directory = directory
        self._budget = budget
        self._found_damage = found_damage
        self._settled = settled
        self._log = log
        self._clock_s = context.runtime.monotonic_s
        self._part_bytes = PART_BYTES
        if budget.bytes_per_s:  # parts are up to 1.5 times as long
            self._part_bytes = min(PART_BYTES, max(1, budget.bytes_per_s * 2 // 3))
        self._threads = budget.threads
        self._changed = self._threads.changed
        self._files: dict[str, HydratedFile] = {}
        self._order: list[HydratedFile] = []
        self._is_complete = False
        self._is_stopped = False
        self._failing_since_s: float | None = None
        self._at_work = 0
        self._resting_until_s: deque[float] = deque()

    # ---- called by the store -----------------------------------------------------------------------------

    def add(self, specs: Iterable[SparseFile], *, inherited: bool = False) -> None:
        """Fetch these files too, unless they were added before.

        Args:
            specs: The files.
            inherited: An earlier agent has begun to fetch them.
        """
        with self._changed:
            for spec in specs:
                if spec.name not in self._files:
                    runtime = self._context.runtime
                    local = SparseBytes(spec, self._directory, runtime, is_inherited=inherited)
                    file = self._files[spec.name] = HydratedFile(spec, local, self._part_bytes)
                    self._order.append(file)
        self.start()

    def complete(self) -> None:
        """Note that no more files are added, and begin to verify. Earlier that would slow the tails down."""
        with self._changed:
            self._is_complete = True
        self.start()
        self._report()

    def start(self) -> None:
        """Have the executor's threads fetch and verify.

        They do until every file is whole, the directory is removed, or `stop` is called.
        """
        limit = self._context.transfer_threads
        with self._changed:
            parts = sum(file.part_count for file in self._files.values())
        if not self._threads.start(self, min(limit, max(1, parts)), limit):
            with self._changed:
                self._note_failure()

    def resume(self) -> None:
        """Go on if there is work: no thread could be started before."""
        with self._changed:
            if self._is_stopped or not self._has_work():
                return
        self.start()

    def stop(self) -> None:
        """End the fetching, once the requests under way have ended."""
        with self._changed:
            self._is_stopped = True
            self._threads.drop(self)
        self._report()

    def read(self, ranges: Sequence[tuple[str, int, int]]) -> int:
        """Fetch ranges of files now, and the rest of these files before others.

        Ranges that lie close together come with one request, and many requests run at a time.

        Args:
            ranges: Name of a file, offset and length.

        Returns:
            The number of bytes of all ranges that the files have.

        Raises:
            InternalError: The base has no sparse file of that name.
            StateStoreError: The storage failed.
        """
        pieces_by_file: dict[str, list[tuple[int, int]]] = {}
        for name, offset, length in ranges:
            pieces_by_file.setdefault(name, []).append((offset, offset + length))
        spans: list[tuple[HydratedFile, Span]] = []
        for name, pieces in pieces_by_file.items():
            file = self._files.get(name)
            if file is None:
                raise InternalError(f"'{self._directory / name}' is not a lazily restored file")
            spans += [
                (file, span) for span in spans_of(file.spec.path, self._directory / name, sorted(pieces))
            ]
        with self._changed:
            for name in pieces_by_file:
                self._order.remove(self._files[name])
                self._order.insert(0, self._files[name])
            self._threads.prefer(self)
        parallel(self._context.transfer_threads, self._read_span, spans, runtime=self._context.runtime)
        return sum(
            max(0, min(length, self._files[name].spec.size_bytes - offset)) for name, offset, length in ranges
        )

    def _read_span(self, wanted: tuple[HydratedFile, Span]) -> None:
        file, span = wanted
        count = file.local.fetch_again(self._context.storage, span.pieces)
        with self._changed:
            file.on_demand_bytes += count

    # ---- asked by merges and people ----------------------------------------------------------------------

    @property
    def readiness(self) -> Readiness:
        """Readiness for a merge now."""
        with self._changed:
            states = {file.state for file in self._files.values()}
            if self._is_complete and states <= {FileState.WHOLE}:
                return Readiness.WHOLE
            if self._is_stopped or FileState.FAILED in states or self._is_stalled():
                return Readiness.FAILED
        return Readiness.COMING if self._directory.exists() else Readiness.FAILED

    def progress(self) -> Progress:
        """Return what was fetched so far."""
        with self._changed:
            files = self._files.values()
            hydrated_bytes = sum(file.hydrated_bytes for file in files)
            return Progress(
                sum(file.on_demand_bytes for file in files),
                hydrated_bytes,
                sum(file.missing_bytes for file in files) - hydrated_bytes,
            )

    @property
    def is_complete(self) -> bool:
        """True if no more files are added."""
        return self._is_complete

    def states(self) -> dict[str, FileState]:
        """Return the state of each file, by name."""
        with self._changed:
            return {name: file.state for name, file in self._files.items()}

    # ---- jobs, taken under the lock ----------------------------------------------------------------------

    def take(self) -> Taken:
        """Take a job (`hydration_threads.JobSource`)."""
        if self._is_stopped:
            return None
        resting = self._resting_until_s
        while resting and resting[0] <= self._clock_s():
            resting.popleft()
        if self._at_work + len(resting) >= self._context.transfer_threads:
            return resting[0] if resting else None  # the end of a job puts this into the queue again
        # What takes a core is the batch's until nothing is left to fetch; the batch verifies what it reads.
        # Where fetching is slowed down it may take hours, and a file that is not verified is not kept.
        # Inherited files are aside until they are verified, and take their room twice.
        first, second = self._part, self._verification
        if self._budget.bytes_per_s or any(file.local.is_inherited for file in self._order):
            first, second = second, first
        job = first() or second()
        self._at_work += job is not None
        return job

    def _part(self) -> Job | None:
        file = next((file for file in self._order if file.parts), None)
        return None if file is None else _Fetching(self, file, file.parts.pop(0))

    def _verification(self) -> Job | None:
        if not (self._is_complete or self._budget.bytes_per_s):
            return None
        states = [file.state for file in self._order]
        if FileState.FETCHED not in states or states.count(FileState.VERIFYING) >= MAX_VERIFYING:
            return None
        file = self._order[states.index(FileState.FETCHED)]
        file.state = FileState.VERIFYING
        return _Verifying(self, file)

    def _has_work(self) -> bool:
        if any(file.parts for file in self._order):
            return True
        return self._is_complete and any(file.state is FileState.FETCHED for file in self._order)

    def _is_stalled(self) -> bool:
        since_s = self._failing_since_s
        return since_s is not None and self._clock_s() - since_s >= STALL_S

    # ---- jobs, at work and at their end, without the lock ------------------------------------------------

    def _fetch(self, file: HydratedFile, part: Part) -> bool:
        """Fetch a part. Returns False if nobody needs it any more."""
        self._wait_for_turn(part[1])
        if self._is_gone():
            return False
        file.local.fetch(self._context.storage, *part)
        return True

    def _verify(self, file: HydratedFile) -> bool:
        """Verify a file and keep it. Returns False if nobody needs it any more."""
        if self._is_gone():
            return False
        lower_priority()
        try:
            wrong = file.local.difference()
        except FileNotFoundError:
            if self._is_gone():
                return False
            raise
        if wrong is not None and file.may_be_whole and file.part_count:
            with self._changed:
                file.begin()
            self.start()
            return False
        if wrong is not None:
            stored = f"{self._context.storage.location}/{file.spec.path}"
            raise DamagedError(f"'{stored}' is damaged: {wrong}", file=stored)
        self._context.cache.keep(file.spec.path, self._directory / file.spec.name)
        return True

    def _is_gone(self) -> bool:
        """Return True if the base is not needed any more. A restore that failed has removed its directory."""
        if not self._is_stopped and not self._directory.exists():
            self.stop()
        return self._is_stopped

    def _wait_for_turn(self, size_bytes: int) -> None:
        """Wait until the rate limit allows this many bytes."""
        at_s = self._budget.turn_s(size_bytes)
        with self._changed:
            while not self._is_stopped and (left_s := at_s - self._clock_s()) > 0:
                self._changed.wait(left_s)

    def _note_failure(self) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = self._clock_s()

    def _job_ended(self, *, has_failed: bool) -> None:
        """Count a job as done, under the lock. The thread that did it takes the next."""
        self._at_work -= 1
        if has_failed:
            self._resting_until_s.append(self._clock_s() + RETRY_S)
        if not self._is_stopped:
            self._threads.queue(self)
        self._changed.notify_all()

    def _failed(self, file: HydratedFile, failure: BaseException) -> None:
        """Note the failure of a job, under the lock."""
        if isinstance(failure, (MissingError, DamagedError)):
            file.fail()
        else:
            self._note_failure()

    def _report(self) -> None:
        if self.readiness is not Readiness.COMING:
            self._settled()


class _Work:
    """A job of a hydration. The state of its file is given back before anybody is told of a failure."""

    def __init__(self, hydration: Hydration, file: HydratedFile) -> None:
        self._hydration = hydration
        self._file = file
        self._is_done = False
        self._is_given_back = False

    def run(self) -> None:
        with background():
            self._is_done = self._work()

    def end(self, failure: BaseException | None) -> float:
        hydration = self._hydration
        with hydration._changed:
            if not self._is_given_back:
                if failure is not None:
                    hydration._failed(self._file, failure)
                elif self._is_done:
                    hydration._failing_since_s = None
                self._give_back()
                self._is_given_back = True
                hydration._job_ended(has_failed=failure is not None)
        if failure is not None:
            self._tell(failure)
        hydration._report()
        return 0.0

    def _tell(self, failure: BaseException) -> None:
        if self._file.state is FileState.FAILED:
            self._hydration._found_damage(as_state_store_error(failure))
        elif not isinstance(failure, StateStoreError):
            self._hydration._log.warning(
                f"'{self._file.spec.path}' is fetched again later: {as_state_store_error(failure)}"
            )

    def _work(self) -> bool:
        raise NotImplementedError

    def _give_back(self) -> None:
        raise NotImplementedError


class _Fetching(_Work):
    def __init__(self, hydration: Hydration, file: HydratedFile, part: Part) -> None:
        super().__init__(hydration, file)
        self._part = part

    def _work(self) -> bool:
        return self._hydration._fetch(self._file, self._part)

    def _give_back(self) -> None:
        if self._is_done:
            self._file.part_fetched(self._part)
        else:
            self._file.put_back(self._part)


class _Verifying(_Work):
    def _work(self) -> bool:
        return self._hydration._verify(self._file)

    def _give_back(self) -> None:
        if self._file.state is FileState.VERIFYING:
            if self._is_done:
                self._file.became_whole()
            else:
                self._file.state = FileState.FETCHED
