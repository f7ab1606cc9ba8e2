"""Transfers of files from checkpoint storage to this machine, in parallel and verified."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from state_store.core.compat import zip
from state_store.core.files.checksums import crc32_of, read_end, sha256_of
from state_store.core.files.local_cache import StoreCache
from state_store.core.files.part_downloads import PART_BYTES, fetch_part_again, make_hole, parts_of
from state_store.core.runtime import SYSTEM, Running, Runtime
from state_store.core.storage.contract import Storage
from state_store.core.storage.durable import remove_unneeded
from state_store.errors import DamagedError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Wanted:
    """A file to bring to `target`: its `path` below the store's directory, its size and its checksums.

    Without `sha256` and `crc32` only the size is checked, and no local copy is trusted. `tail_sha256` is
    that of the last `tail_bytes` bytes. A file that `names_itself` has its version inside, which its reader
    checks.
    """

    path: str
    size_bytes: int
    target: Path
    sha256: str | None = None
    crc32: int | None = None
    tail_bytes: int = 0
    tail_sha256: str | None = None
    names_itself: bool = False

    @property
    def verifiable(self) -> bool:
        """True if a checksum of the content is known."""
        return self.sha256 is not None or self.crc32 is not None


OnTail = Callable[[Wanted, bytes], object]
"""Receives a file that was found to be the right one, and the tail that proves it."""


@dataclass(frozen=True)
class Fetched:
    """Result of a fetch: files and bytes that came from storage, and the paths of files that were local."""

    files: int
    size_bytes: int
    local: frozenset[str]

    @property
    def local_files(self) -> int:
        """Number of files that were local."""
        return len(self.local)

    def plus(self, other: Fetched) -> Fetched:
        """Return the sum of two fetches."""
        return Fetched(
            self.files + other.files,
            self.size_bytes + other.size_bytes,
            self.local | other.local,
        )


def parallel(
    threads: int, work: Callable[[T], R], items: Iterable[T], *, runtime: Runtime = SYSTEM
) -> list[R]:
    """Do `work` on each item, at most `threads` at a time, in this thread and others.

    After a failure no further item is begun. Context variables are those of the caller.

    Returns:
        The results in order.

    Raises:
        BaseException: The failure of the first item that failed.
    """
    todo = deque(enumerate(items))
    if threads <= 1 or len(todo) <= 1:
        return [work(item) for _, item in todo]
    results: dict[int, R] = {}
    failures: dict[int, BaseException] = {}
    count = _CountedWork(runtime)

    def go_on() -> None:
        while not failures:
            try:
                number, item = todo.popleft()
            except IndexError:
                return
            try:
                results[number] = work(item)
            except BaseException as error:
                failures[number] = error

    others: list[Running] = []
    try:
        for _ in range(min(threads, len(todo)) - 1):
            try:
                others.append(runtime.start(count.counted(go_on), name="transfer"))
            except (RuntimeError, MemoryError):
                break  # no thread is left: those that run do all the work
        go_on()
        for other in others:
            other.join()
    except BaseException as error:  # an interrupt: nothing may go on once the caller cleans up
        failures[-1] = error
        count.stop()
    if failures:
        raise failures[min(failures)]
    return [results[number] for number in sorted(results)]


class _CountedWork:
    """Work that has begun in other threads. An interrupt while a thread starts loses the thread, not this."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.condition()
        self._running = 0
        self._is_stopped = False

    def counted(self, work: Callable[[], object]) -> Callable[[], None]:
        """Return `work`, which is counted while it runs, and does not begin after `stop`."""

        def run() -> None:
            with self._changed:
                if self._is_stopped:
                    return
                self._running += 1
            try:
                work()
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        return run

    def stop(self) -> None:
        """Wait until all work that has begun has ended; no other begins."""
        with self._changed:
            self._is_stopped = True
            self._changed.wait_for(lambda: self._running == 0)


class Background(Generic[R]):
    """Work that goes on in another thread while the body of the `with` runs.

    If both fail, the failure of the work is raised.
    """

    def __init__(self, work: Callable[[], R], *, runtime: Runtime = SYSTEM) -> None:
        self._results: list[R] = []
        self._failures: list[BaseException] = []

        def run() -> None:
            try:
                self._results.append(work())
            except BaseException as error:
                self._failures.append(error)

        self._running: Running | None = None
        count = _CountedWork(runtime)
        try:
            self._running = runtime.start(count.counted(run), name="background")
        except (RuntimeError, MemoryError):
            run()  # no thread is left: the body waits
        except BaseException:  # an interrupt
            count.stop()
            raise

    def result(self) -> R:
        """Wait for the work, and return its result, or raise its failure."""
        if self._running is not None:
            self._running.join()
        if self._failures:
            raise self._failures[0]
        return self._results[0]

    def __enter__(self) -> Background[R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.result()


def fetch(
    storage: Storage,
    cache: StoreCache,
    wanted: Sequence[Wanted],
    threads: int,
    *,
    runtime: Runtime = SYSTEM,
) -> Fetched:
    """Bring all files to their targets.

    A local copy is linked. Large remote files are fetched in parts, each of which counts as one of the
    `threads`.

    Raises:
        MissingError: A stored file does not exist; the error names it.
        DamagedError: A stored file is too short; the error names it.
        StateStoreError: The storage or the local disk fails.
    """
    linked = [_link(cache, file) for file in wanted]
    absent = [file for file, is_linked in zip(wanted, linked, strict=True) if not is_linked]
    if storage.is_local:  # a link takes less than a thread
        for file in absent:
            storage.download(file.path, file.target)
    else:
        _download(storage, absent, threads, runtime)
    local = {file.path for file, is_linked in zip(wanted, linked, strict=True) if is_linked}
    return Fetched(len(absent), sum(file.size_bytes for file in absent), frozenset(local))


def _download(storage: Storage, wanted: Sequence[Wanted], threads: int, runtime: Runtime) -> None:
    """Download files, the large ones first, in parts. On failure none of the large ones is left."""
    large = [file for file in wanted if file.size_bytes > PART_BYTES]
    parts = [(file, part) for file in large for part in parts_of(file.size_bytes, PART_BYTES)]
    small = [(file, None) for file in wanted if file.size_bytes <= PART_BYTES]

    def bring(piece: tuple[Wanted, tuple[int, int] | None]) -> None:
        file, part = piece
        if part is None:
            storage.download(file.path, file.target)
        else:
            fetch_part_again(storage, file.path, file.target, *part)

    targets: list[Path] = []
    try:
        for file in large:
            make_hole(file.target, file.size_bytes)
            targets.append(file.target)
        parallel(threads, bring, [*parts, *small], runtime=runtime)
    except BaseException:
        for target in targets:
            remove_unneeded(target)
        raise


def verify(
    storage: Storage,
    cache: StoreCache,
    wanted: Sequence[Wanted],
    threads: int,
    *,
    thorough: bool = True,
    local: Collection[str] = (),
    on_tail: OnTail | None = None,
    runtime: Runtime = SYSTEM,
) -> list[str]:
    """Verify the size and the checksum of every target. A damaged file is fetched again once.

    Args:
        storage: Checkpoint storage.
        cache: Files of this machine; verified files are kept there.
        wanted: The files, which are at their targets.
        threads: Number of files that are read at a time.
        thorough: Read every file as a whole. Otherwise a file counts as right if its tail is, as far as
            it is known; the reader of a block verifies its checksum.
        local: Paths of files that were linked from the cache, and need not be kept again.
        on_tail: Receives the tails that were read.
        runtime: Threads.

    Returns:
        Warnings about damaged local copies and downloads.

    Raises:
        DamagedError: A stored file is damaged; the error names it.
    """
    left = []
    for file in wanted:
        if thorough or not is_the_file(file, on_tail):
            left.append(file)
        elif file.path not in local:
            cache.keep(file.path, file.target)
    warnings = parallel(threads, lambda file: _verified(storage, cache, file), left, runtime=runtime)
    return [warning for warning in warnings if warning is not None]


def is_the_file(wanted: Wanted, on_tail: OnTail | None = None) -> bool:
    """Return True if the file at the target has the size and the tail of the right one.

    It is False, too, if neither is known: then only the whole file tells. `on_tail` receives the tail.
    """
    if wanted.tail_sha256 is None:
        return wanted.names_itself and wanted.target.stat().st_size == wanted.size_bytes
    size_bytes, end = read_end(wanted.target, wanted.tail_bytes)
    if size_bytes != wanted.size_bytes or sha256(end).hexdigest() != wanted.tail_sha256:
        return False
    if on_tail is not None:
        on_tail(wanted, end)
    return True


def difference(wanted: Wanted) -> str | None:
    """Return in words how the file at the target differs from the wanted one; None if it does not.

    If a checksum is known, it alone decides: the size may come from the listing of a damaged file.
    """
    size_bytes = wanted.target.stat().st_size
    sizes = f"it has {size_bytes} bytes instead of {wanted.size_bytes}" * (size_bytes != wanted.size_bytes)
    if wanted.sha256 is not None:
        found = sha256_of(wanted.target)
        wrong = f"its SHA-256 is {found} instead of {wanted.sha256}"
        return None if found == wanted.sha256 else sizes or wrong
    if wanted.crc32 is not None:
        crc = crc32_of(wanted.target)
        wrong = f"its CRC-32 is {crc:08x} instead of {wanted.crc32:08x}"
        return None if crc == wanted.crc32 else sizes or wrong
    return sizes or None


def _link(cache: StoreCache, wanted: Wanted) -> bool:
    """Link a local copy to the target. Returns False if there is none."""
    return wanted.verifiable and cache.link(wanted.path, wanted.target)


def _verified(storage: Storage, cache: StoreCache, wanted: Wanted) -> str | None:
    why = difference(wanted)
    if why is None:
        if wanted.verifiable:
            cache.keep(wanted.path, wanted.target)
        return _size_in_storage(wanted)
    local = wanted.verifiable and cache.find(wanted.path) is not None
    if local:
        cache.discard(wanted.path)
    wanted.target.unlink()
    storage.download(wanted.path, wanted.target)
    again = difference(wanted)
    if again is not None:
        raise _damaged(storage, wanted, again)
    if wanted.verifiable:
        cache.keep(wanted.path, wanted.target)
    copy = "local copy of" if local else "first download of"
    return f"the {copy} '{wanted.path}' was damaged ({why}); it was read again from checkpoint storage"


def _size_in_storage(wanted: Wanted) -> str | None:
    """Return a warning if the content is right, but the size in storage is not."""
    size_bytes = wanted.target.stat().st_size
    if size_bytes == wanted.size_bytes:
        return None
    return (
        f"'{wanted.path}' has {wanted.size_bytes} bytes in checkpoint storage instead of {size_bytes}: it is "
        "damaged there, its local copy was used, and the next full checkpoint does without it"
    )


def _damaged(storage: Storage, wanted: Wanted, why: str) -> DamagedError:
    file = f"{storage.location}/{wanted.path}"
    return DamagedError(f"'{file}' is damaged: {why}", file=file)
