"""Transfers of files from checkpoint storage to this machine, in parallel and verified.

`fetch` brings files to their targets: links of local copies, or downloads; `verify` compares them there with
their checksums. Large remote files come in parts, several of which are requested at the same time. Such a
file is made in its full length at first, as one hole, and its parts are written to their places in any order.
Nobody reads it before all parts are there. The caller that begins a file removes it if a part fails.

Files that are verified but not kept (`verify_stored`) pass through memory, and take no local disk.

In this order: checksums of local files; work in several threads; `fetch` and its parts; `verify`, at the
targets and in storage.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from state_store.core.files.workspace import StoreCache
from state_store.core.runtime import SYSTEM, Running, Runtime
from state_store.core.storage.contract import Span, Storage
from state_store.core.storage.local_disk import local_disk_error, local_disk_errors, remove_unneeded
from state_store.errors import ConflictError, DamagedError, StorageError

PART_BYTES = 8 << 20
"""Size of a part. A request costs object stores 10 to 50 ms, as much as one or a few MB do; and a part that
fails is fetched again alone.
"""

_CHUNK_BYTES = 1 << 20

PIECE_BYTES = 2 << 20
"""Bytes of a request."""

MAX_AT_ONCE = 16
"""Files that are read at a time at most, each with a piece in memory."""

T = TypeVar("T")

R = TypeVar("R")


# ---- checksums of local files ---------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    _each_chunk(path, digest.update)
    return digest.hexdigest()


def sha256_of_end(path: Path, size_bytes: int) -> str:
    """Return the SHA-256 of the last `size_bytes` bytes of a file, or of all if it is shorter."""
    return hashlib.sha256(read_end(path, size_bytes)[1]).hexdigest()


def crc32_of(path: Path) -> int:
    """Return the CRC-32 (IEEE) of a file."""
    crc = 0

    def add(chunk: memoryview) -> None:
        nonlocal crc
        crc = zlib.crc32(chunk, crc)

    _each_chunk(path, add)
    return crc


def _each_chunk(path: Path, use: Callable[[memoryview], object]) -> None:
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(max(1, min(_CHUNK_BYTES, os.fstat(file.fileno()).st_size)))
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            use(view[:count])


def read_end(path: Path, size_bytes: int) -> tuple[int, bytes]:
    """Return the size of a file, and its last `size_bytes` bytes, or all if it is shorter."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        return size, os.pread(descriptor, size_bytes, max(0, size - size_bytes))
    finally:
        os.close(descriptor)


# ---- work in several threads ----------------------------------------------------------------------------


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


# ---- fetching -------------------------------------------------------------------------------------------


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


def fetch(
    storage: Storage,
    cache: StoreCache,
    wanted_files: Sequence[Wanted],
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
    linked = [_link(cache, file) for file in wanted_files]
    absent = [file for file, is_linked in zip(wanted_files, linked, strict=True) if not is_linked]
    if storage.is_local:  # a link takes less than a thread
        for file in absent:
            storage.download(file.path, file.target)
    else:
        _download(storage, absent, threads, runtime)
    local = {file.path for file, is_linked in zip(wanted_files, linked, strict=True) if is_linked}
    return Fetched(len(absent), sum(file.size_bytes for file in absent), frozenset(local))


def _link(cache: StoreCache, wanted_file: Wanted) -> bool:
    """Link a local copy to the target. Returns False if there is none."""
    return wanted_file.verifiable and cache.link(wanted_file.path, wanted_file.target)


def _download(storage: Storage, wanted_files: Sequence[Wanted], threads: int, runtime: Runtime) -> None:
    """Download files, the large ones first, in parts. On failure none of the large ones is left."""
    large = [file for file in wanted_files if file.size_bytes > PART_BYTES]
    parts = [(file, part) for file in large for part in parts_of(file.size_bytes, PART_BYTES)]
    small = [(file, None) for file in wanted_files if file.size_bytes <= PART_BYTES]

    def fetch_piece(piece: tuple[Wanted, tuple[int, int] | None]) -> None:
        file, part = piece
        if part is None:
            storage.download(file.path, file.target)
        else:
            fetch_part_with_retry(storage, file.path, file.target, *part)

    targets: list[Path] = []
    try:
        for file in large:
            make_hole(file.target, file.size_bytes)
            targets.append(file.target)
        parallel(threads, fetch_piece, [*parts, *small], runtime=runtime)
    except BaseException:
        for target in targets:
            remove_unneeded(target)
        raise


def _size_in_storage(wanted_file: Wanted) -> str | None:
    """Return a warning if the content is right, but the size in storage is not."""
    size_bytes = wanted_file.target.stat().st_size
    if size_bytes == wanted_file.size_bytes:
        return None
    return (
        f"'{wanted_file.path}' has {wanted_file.size_bytes} bytes in checkpoint storage instead of "
        f"{size_bytes}: it is damaged there, its local copy was used, and the next full checkpoint does "
        "without it"
    )


def parts_of(size_bytes: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return offset and length of each part of that many bytes.

    All parts are about as long as `part_bytes`: a request for a short last one would not be worth its time.
    """
    count = max(1, (size_bytes + part_bytes // 2) // part_bytes)
    bytes_each = max(1, -(-size_bytes // count))
    return [(at, min(bytes_each, size_bytes - at)) for at in range(0, size_bytes, bytes_each)]


def make_hole(local: Path, size_bytes: int) -> None:
    """Make the file `local`, which must not exist, with nothing in it.

    Raises:
        ConflictError: It exists.
        LocalDiskError: The disk fails.
    """
    try:
        with open(local, "xb", buffering=0) as file:
            os.ftruncate(file.fileno(), size_bytes)
    except FileExistsError as error:
        raise ConflictError(f"'{local}' exists already", file=str(local)) from error
    except OSError as error:
        remove_unneeded(local)
        raise local_disk_error(error, local) from error


def fetch_part(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """Download `length` bytes from `offset`, and write them at the same offset of the local file.

    Raises:
        DamagedError: The stored file is too short.
        StateStoreError: The storage fails.
    """
    (count,) = storage.download_spans([Span(path, local, ((offset, length),))])
    check_count(storage, path, offset, length, count)


def check_count(storage: Storage, path: str, offset: int, length: int, count: int) -> None:
    """Raise DamagedError if storage returned only `count` of the `length` bytes from `offset`."""
    if count != length:
        why = f"it ends at {offset + count}, and not at {offset + length} or later"
        raise DamagedError.of(f"{storage.location}/{path}", why)


def fetch_part_with_retry(storage: Storage, path: str, local: Path, offset: int, length: int) -> None:
    """Download a part as `fetch_part` does, and once more if that fails."""
    _retried(lambda: fetch_part(storage, path, local, offset, length))


def _retried(request: Callable[[], R]) -> R:
    """Make a request, and once more if it fails: one failure would make the other parts useless."""
    try:
        return request()
    except (StorageError, DamagedError):
        return request()


def copy_ranges(source: Path, target: Path, ranges: Iterable[tuple[int, int]]) -> None:
    """Copy the bytes between start and end of each range to the same place of the existing file `target`.

    Raises:
        LocalDiskError: The disk is full or fails.
        StorageError: The source is shorter.
    """
    with (
        local_disk_errors(target),
        open(source, "rb", buffering=0) as read,
        open(target, "r+b", buffering=0) as written,
    ):
        for start, end in ranges:
            while start < end:
                data = os.pread(read.fileno(), min(_CHUNK_BYTES, end - start), start)
                if not data:
                    raise StorageError(f"'{source}' ends at {start}, and not at {end}", file=str(source))
                start += os.pwrite(written.fileno(), data, start)


# ---- verifying at the targets ---------------------------------------------------------------------------


def verify(
    storage: Storage,
    cache: StoreCache,
    wanted_files: Sequence[Wanted],
    threads: int,
    *,
    thorough: bool = True,
    local: Collection[str] = (),
    runtime: Runtime = SYSTEM,
) -> list[str]:
    """Verify the size and the checksum of every target. A damaged file is fetched again once.

    Args:
        storage: Checkpoint storage.
        cache: Files of this machine; verified files are kept there.
        wanted_files: The files, which are at their targets.
        threads: Number of files that are read at a time.
        thorough: Read every file as a whole. Otherwise a file counts as right if its tail is, as far as
            it is known; the reader of a block verifies its checksum.
        local: Paths of files that were linked from the cache, and need not be kept again.
        runtime: Threads.

    Returns:
        Warnings about damaged local copies and downloads.

    Raises:
        DamagedError: A stored file is damaged; the error names it.
    """
    unverified_files = []
    for file in wanted_files:
        if thorough or not is_the_file(file):
            unverified_files.append(file)
        elif file.path not in local:
            cache.keep(file.path, file.target)
    warnings = parallel(
        threads, lambda file: _verified(storage, cache, file), unverified_files, runtime=runtime
    )
    return [warning for warning in warnings if warning is not None]


def _verified(storage: Storage, cache: StoreCache, wanted_file: Wanted) -> str | None:
    try:
        why = difference(wanted_file)
    except OSError as error:  # another copy has other sectors
        if error.errno != errno.EIO:
            raise
        why = f"it cannot be read: {error.strerror}"
    if why is None:
        if wanted_file.verifiable:
            cache.keep(wanted_file.path, wanted_file.target)
        return _size_in_storage(wanted_file)
    local = wanted_file.verifiable and cache.find(wanted_file.path) is not None
    if local:
        cache.discard(wanted_file.path)
    wanted_file.target.unlink()
    storage.download(wanted_file.path, wanted_file.target)
    again = difference(wanted_file)
    if again is not None:
        raise DamagedError.of(f"{storage.location}/{wanted_file.path}", again)
    if wanted_file.verifiable:
        cache.keep(wanted_file.path, wanted_file.target)
    copy = "local copy of" if local else "first download of"
    return f"the {copy} '{wanted_file.path}' was damaged ({why}); it was read again from checkpoint storage"


def is_the_file(wanted_file: Wanted) -> bool:
    """Return True if the file at the target has the size and the tail of the right one.

    It is False, too, if neither is known: then only the whole file tells.
    """
    if wanted_file.tail_sha256 is None:
        return wanted_file.names_itself and wanted_file.target.stat().st_size == wanted_file.size_bytes
    try:
        size_bytes, end = read_end(wanted_file.target, wanted_file.tail_bytes)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    return size_bytes == wanted_file.size_bytes and hashlib.sha256(end).hexdigest() == wanted_file.tail_sha256


def difference(wanted_file: Wanted) -> str | None:
    """Return in words how the file at the target differs from the wanted one; None if it does not.

    If a checksum is known, it alone decides: the size may come from the listing of a damaged file.
    """
    size_bytes = wanted_file.target.stat().st_size
    sizes = f"it has {size_bytes} bytes instead of {wanted_file.size_bytes}" * (
        size_bytes != wanted_file.size_bytes
    )
    if not wanted_file.verifiable:
        return sizes or None
    has_crc = wanted_file.sha256 is None
    sha256, crc = ("", crc32_of(wanted_file.target)) if has_crc else (sha256_of(wanted_file.target), 0)
    wrong = _other_checksum(wanted_file, sha256, crc)
    return wrong and (sizes or wrong)


def _other_checksum(wanted_file: Wanted, sha256: str, crc: int) -> str | None:
    """Return in words how the known checksum differs from that of the content; None if it does not."""
    if wanted_file.sha256 is None:
        is_other = crc != wanted_file.crc32
        return f"its CRC-32 is {crc:08x} instead of {wanted_file.crc32:08x}" if is_other else None
    is_other = sha256 != wanted_file.sha256
    return f"its SHA-256 is {sha256} instead of {wanted_file.sha256}" if is_other else None


# ---- verifying in storage -------------------------------------------------------------------------------


def verify_stored(storage: Storage, wanted_file: Wanted) -> tuple[str, str | None]:
    """Compare a stored file with its checksum. Where it differs, it is read again once.

    Args:
        storage: Checkpoint storage.
        wanted_file: The file; a checksum of it is known. Nothing is looked for at its target.

    Returns:
        Its SHA-256, and a warning if it was right the second time only.

    Raises:
        MissingError: The file does not exist.
        DamagedError: The file is damaged.
        StorageError: The storage fails.
    """
    sha256, first = _read_through(storage, wanted_file)
    if first is None:
        return sha256, None
    sha256, again = _read_through(storage, wanted_file)
    if again is not None:
        raise DamagedError.of(f"{storage.location}/{wanted_file.path}", again)
    return sha256, f"the first download of '{wanted_file.path}' was damaged ({first}); it was read again"


def _read_through(storage: Storage, wanted_file: Wanted) -> tuple[str, str | None]:
    """Return the SHA-256 of a file, and in words how it differs from the wanted one."""
    digest, crc, size_bytes = hashlib.sha256(), 0, 0
    while size_bytes < wanted_file.size_bytes:
        length = min(PIECE_BYTES, wanted_file.size_bytes - size_bytes)
        piece = _retried(partial(storage.read, wanted_file.path, size_bytes, length))
        if not piece:
            return "", f"it has {size_bytes} bytes instead of {wanted_file.size_bytes}"
        size_bytes += len(piece)
        digest.update(piece)
        if wanted_file.sha256 is None:
            crc = zlib.crc32(piece, crc)
    sha256 = digest.hexdigest()
    return sha256, _other_checksum(wanted_file, sha256, crc)
