"""Files on their way between checkpoint storage and this machine: in
parallel, verified, local ones linked.
"""

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
from state_store.core.files.parts import PART_BYTES, fetch_part_again, make_hole, parts_of
from state_store.core.runtime import SYSTEM, Running, Runtime
from state_store.core.storage.contract import Storage
from state_store.errors import DamagedError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Wanted:
    """A file to bring to `target`: `path` below the store's directory, and what is known of its content.

    Without `sha256` and `crc32` only the size is checked, and no local copy is trusted. `tail_sha256` is
    that of the last `tail_bytes` bytes. A file that `names_itself` says inside what it is, and its reader
    checks it.
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
        """Whether a checksum of its content is known."""
        return self.sha256 is not None or self.crc32 is not None


OnTail = Callable[[Wanted, bytes], object]
"""Gets a file that was found to be the right one, and the tail that proves it."""


@dataclass(frozen=True)
class Fetched:
    """What a fetch did: files and bytes that came from storage, and the paths of files that were local."""

    files: int
    size_bytes: int
    local: frozenset[str]

    @property
    def local_files(self) -> int:
        """How many were local."""
        return len(self.local)

    def plus(self, other: Fetched) -> Fetched:
        """What both did."""
        return Fetched(
            self.files + other.files,
            self.size_bytes + other.size_bytes,
            self.local | other.local,
        )


def parallel(
    threads: int, work: Callable[[T], R], items: Iterable[T], *, runtime: Runtime = SYSTEM
) -> list[R]:
    """`work` of each item, at most `threads` at a time, results in order; the first failure is raised.

    Work that has not started by then never does. Context variables are those of the caller, who works, too.
    """
    todo = deque(enumerate(items))
    if threads <= 1 or len(todo) <= 1:
        return [work(item) for _, item in todo]
    results: dict[int, R] = {}
    failures: dict[int, BaseException] = {}

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
                others.append(runtime.start(go_on, name="transfer"))
            except (RuntimeError, MemoryError):
                break  # no thread is left: those that there are do it all
        go_on()
        for other in others:
            other.join()
    except BaseException as error:  # an interrupt: nothing may go on once the caller cleans up
        failures[-1] = error
        for other in others:
            other.join()
    if failures:
        raise failures[min(failures)]
    return [results[number] for number in sorted(results)]


class Background(Generic[R]):
    """Work that goes on in another thread while the body of the `with` runs.

    When the body fails, so that both may have, the failure of the work is the one that is raised.
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
        try:
            self._running = runtime.start(run, name="background")
        except (RuntimeError, MemoryError):
            run()  # no thread is left: the body waits

    def result(self) -> R:
        """What the work gave, once it has ended; raises what it raised."""
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
    """Brings all files to their targets. Raises MissingError or DamagedError that names the stored file.

    A local copy is linked, a damaged one is dropped with a warning and read again from storage. Large files
    of storage that is not local are fetched in parts, each of which counts as one of the `threads`.
    """
    linked = [_link_one(cache, file) for file in wanted]
    far = [file for file, is_linked in zip(wanted, linked, strict=True) if not is_linked]
    if storage.is_local:  # a link takes less than a thread
        for file in far:
            storage.download(file.path, file.target)
    else:
        _download(storage, far, threads, runtime)
    local = {file.path for file, is_linked in zip(wanted, linked, strict=True) if is_linked}
    return Fetched(len(far), sum(file.size_bytes for file in far), frozenset(local))


def _download(storage: Storage, wanted: Sequence[Wanted], threads: int, runtime: Runtime) -> None:
    """Those of more than a part in parts, which are begun before the others. Where one fails, none of the
    files that come in parts is left.
    """
    large = [file for file in wanted if file.size_bytes > PART_BYTES]
    parts = [(file, part) for file in large for part in parts_of(file.size_bytes, PART_BYTES)]
    whole = [(file, None) for file in wanted if file.size_bytes <= PART_BYTES]

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
        parallel(threads, bring, [*parts, *whole], runtime=runtime)
    except BaseException:
        for target in targets:
            target.unlink(missing_ok=True)
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
    """Checks size and checksum of every target; gives warnings. Raises
    DamagedError that names the stored file.

    Not `thorough`, it only makes sure that each is the file that is meant, as far as that can be told without
    reading all of it; whoever reads its blocks verifies them by their own checksums. `local` are the paths of
    those that were linked from the cache and need not be kept, and `on_tail` gets the tails that were read.
    """
    left = []
    for file in wanted:
        if thorough or not is_the_file(file, on_tail):
            left.append(file)
        elif file.path not in local:
            cache.keep(file.path, file.target)
    warnings = parallel(threads, lambda file: _verify_one(storage, cache, file), left, runtime=runtime)
    return [warning for warning in warnings if warning is not None]


def is_the_file(wanted: Wanted, on_tail: OnTail | None = None) -> bool:
    """Whether the file at its target has the size and the end of the one that is meant, whatever is between;
    `on_tail` gets that tail. False where that is not known: then the whole file tells.
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
    """How the file at its target differs from what is known of it, in words; None: it does not.

    A size may come from a listing, which is that of a file that may be damaged: a checksum alone decides.
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


def _link_one(cache: StoreCache, wanted: Wanted) -> bool:
    """Whether there was a local copy, which lies at the target now."""
    return wanted.verifiable and cache.link(wanted.path, wanted.target)


def _verify_one(storage: Storage, cache: StoreCache, wanted: Wanted) -> str | None:
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
    """A warning where what was expected of the size was wrong, though the content is right."""
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
