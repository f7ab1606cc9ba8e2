"""A storage that fails, lies, or waits, at chosen calls. Use: `from faults import FaultyStorage`.

A *fault* says what goes wrong with one call: it takes the `Call` and does what it likes in its place.
Those in `FAULTS` have names. A *schedule* says which calls go wrong: it takes operation and path, and gives
a fault, or None for a call that goes well; it may also raise, or act, itself. `fail_at`, `once`, `storm` and
`at_random` make schedules.

Operations are `list`, `read`, `write`, `upload`, `download`, `delete`, `exists`, `directories` and
`delete_directory`. All that is random comes from the generator that is passed in, so a seed says everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.core.storage.contract import Entry, Storage
from state_store.errors import StorageError, UnknownOutcomeError

WRITES = ("write", "upload", "delete")
CREATES = ("write", "upload")
ALL = (*WRITES, "list", "read", "download", "exists", "directories")


@dataclass(frozen=True)
class Call:
    """A call on its way to `inner`; calling it performs it. `listed_before` is what the listing before this
    one of the same directory gave."""

    operation: str
    path: str
    inner: Storage
    data: bytes = b""
    local: Path = Path()
    range: tuple[int, int | None] = (0, None)
    overwrite: bool = False
    listed_before: tuple[Entry, ...] = ()

    def __call__(self) -> Any:
        inner, path, overwrite = self.inner, self.path, self.overwrite
        calls: dict[str, Callable[[], Any]] = {
            "list": lambda: inner.list_files(path),
            "read": lambda: inner.read(path, *self.range),
            "write": lambda: inner.write(path, self.data, overwrite=overwrite),
            "upload": lambda: inner.upload(self.local, path, overwrite=overwrite),
            "download": lambda: inner.download(path, self.local),
            "directories": lambda: inner.directories(path or None),
        }
        if self.operation in calls:
            return calls[self.operation]()
        return getattr(inner, self.operation)(path)

    def failed(self, why: str) -> StorageError:
        """The error of a call that certainly had no effect."""
        return StorageError(f"cannot {self.operation} '{self.path}': {why}", file=self.path)

    def unknown(self, why: str) -> StorageError | UnknownOutcomeError:
        """The error of a call of which nobody knows whether it had an effect."""
        if self.operation not in WRITES:
            return self.failed(why)
        return UnknownOutcomeError(f"cannot {self.operation} '{self.path}': {why}", file=self.path)


Fault = Callable[[Call], Any]
Schedule = Callable[[str, str], object]


class FaultyStorage(Storage):
    """Asks `fault`, a schedule, before each call; what it raises, or what the fault that it gives does, is
    what the caller sees. Without one it is `inner`.

    `calls` lists the operations in order, for tests that count them; `faults` counts the faults.
    """

    def __init__(self, inner: Storage, fault: Schedule | None = None) -> None:
        self.faults = 0
        self.inner = inner
        self.location = inner.location
        self.fault: Schedule = fault or (lambda operation, path: None)
        self.calls: list[tuple[str, str]] = []
        self._listings: dict[str, tuple[Entry, ...]] = {}

    def list_files(self, directory: str) -> list[Entry]:
        before = self._listings.get(directory, ())
        found: list[Entry] = self._do("list", directory, listed_before=before)
        self._listings[directory] = tuple(found)
        return found

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data: bytes = self._do("read", path, range=(offset, length))
        return data

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._do("write", path, data=data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._do("upload", path, local=local, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        self._do("download", path, local=local)

    def delete(self, path: str) -> None:
        self._do("delete", path)

    def exists(self, path: str) -> bool:
        return bool(self._do("exists", path))

    def directories(self, directory: str | None = None) -> list[str]:
        names: list[str] = self._do("directories", directory or "")
        return names

    def delete_directory(self, directory: str) -> None:
        self._do("delete_directory", directory)

    def close(self) -> None:
        self.inner.close()

    def _do(self, operation: str, path: str, **arguments: Any) -> Any:
        self.calls.append((operation, path))
        fault = self.fault(operation, path)
        call = Call(operation, path, self.inner, **arguments)
        if not callable(fault):
            return call()
        self.faults += 1
        return fault(call)


def error_before(call: Call) -> Any:
    """It fails and has no effect."""
    raise call.failed("injected: it was refused")


def error_after(call: Call) -> Any:
    """It has its effect, and the answer is lost."""
    call()
    raise call.unknown("injected: the connection was lost")


def torn_write(call: Call) -> Any:
    """Half of the bytes are stored, under the file's name, and the answer is lost."""
    _store_half(call)
    raise call.unknown("injected: the connection was lost")


def silently_torn_write(call: Call) -> Any:
    """Half of the bytes are stored, and the caller is told that all is well."""
    _store_half(call)


def stale_listing(call: Call) -> Any:
    """What the directory held when it was listed last; empty if it never was."""
    return list(call.listed_before)


def unavailable(call: Call) -> Any:
    """The service is overloaded, and has done nothing."""
    raise call.failed("injected: 503 Slow Down")


def full_disk(call: Call) -> Any:
    """There is no space left."""
    raise call.failed("injected: No space left on device")


def damaged_read(call: Call) -> Any:
    """One bit in the middle of what was read is not what is stored."""
    return _read_as(call, _flip)


def short_read(call: Call) -> Any:
    """The second half of what was read is missing."""
    return _read_as(call, lambda data: data[: len(data) // 2])


def slow(seconds: float, sleep: Callable[[float], object]) -> Fault:
    """It goes well, but only after a while."""

    def fault(call: Call) -> Any:
        sleep(seconds)
        return call()

    return fault


@dataclass(frozen=True)
class Named:
    """A fault and what it may happen to; `honest`: a storage that has it keeps its contract."""

    fault: Fault
    operations: Collection[str]
    honest: bool = True


FAULTS: Mapping[str, Named] = {
    "error-before": Named(error_before, ALL),
    "error-after": Named(error_after, WRITES),
    "unavailable": Named(unavailable, ALL),
    "full-disk": Named(full_disk, CREATES),
    "damaged-read": Named(damaged_read, ("read", "download")),
    "short-read": Named(short_read, ("read", "download")),
    "torn-write": Named(torn_write, CREATES, honest=False),
    "silently-torn-write": Named(silently_torn_write, CREATES, honest=False),
    "stale-listing": Named(stale_listing, ("list",), honest=False),
}
"""By name; `slow` needs a clock and is not among them."""


def fail_at(operation: str, prefix: str, *, nth: int = 1, message: str = "injected") -> Schedule:
    """Fails the `nth` operation of that kind on a path that begins with `prefix`, and those after it."""
    seen = 0

    def schedule(what: str, path: str) -> None:
        nonlocal seen
        if what == operation and path.startswith(prefix):
            seen += 1
            if seen >= nth:
                raise StorageError(f"cannot {operation} '{path}': {message}", file=path)

    return schedule


def once(operation: str, prefix: str, fault: Fault, *, nth: int = 1) -> Schedule:
    """The `nth` operation of that kind on a path that begins with `prefix` has the fault, no other."""
    left = nth

    def schedule(what: str, path: str) -> Fault | None:
        nonlocal left
        if what == operation and path.startswith(prefix):
            left -= 1
            if left == 0:
                return fault
        return None

    return schedule


def storm(calls: int, fault: Fault = unavailable) -> Schedule:
    """All of the next `calls` calls have the fault."""
    left = calls

    def schedule(what: str, path: str) -> Fault | None:
        nonlocal left
        left -= 1
        return fault if left >= 0 else None

    return schedule


def at_random(chance: random.Random, rate: float, names: Collection[str]) -> Schedule:
    """Each call goes wrong with the probability `rate`, by one of the named faults that fit it."""

    def schedule(what: str, path: str) -> Fault | None:
        fitting = sorted(name for name in names if what in FAULTS[name].operations)
        if not fitting or chance.random() >= rate:
            return None
        return FAULTS[chance.choice(fitting)].fault

    return schedule


def _store_half(call: Call) -> None:
    data = call.local.read_bytes() if call.operation == "upload" else call.data
    call.inner.write(call.path, data[: len(data) // 2], overwrite=call.overwrite)


def _read_as(call: Call, changed: Callable[[bytes], bytes]) -> Any:
    result = call()
    if call.operation == "read":
        return changed(result)
    data = call.local.read_bytes()
    call.local.unlink()  # it may be a link to the stored file
    call.local.write_bytes(changed(data))
    return None


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else data
