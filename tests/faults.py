"""A storage that fails, lies, or waits, at chosen calls. Use: `from faults import FaultyStorage`.

A *fault* takes a `Call` and acts in its place. The faults in `FAULTS` have names. A *schedule* chooses the
calls that fail: it takes operation and path, and returns a fault, or None for a call that succeeds; it may
also raise or act itself. `fail_at`, `once`, `storm` and `at_random` make schedules.

Operations are `list`, `read`, `write`, `upload`, `download`, `delete`, `exists`, `directories` and
`delete_directory`. All randomness comes from the generator that is passed in, so a seed determines
everything.
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
    """A call on its way to `inner`; calling it performs it.

    `listed_before` is the result of the last listing of the same directory.
    """

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
        """Return the error of a call that certainly had no effect."""
        return StorageError(f"cannot {self.operation} '{self.path}': {why}", file=self.path)

    def unknown(self, why: str) -> StorageError | UnknownOutcomeError:
        """Return the error of a call that may have had an effect."""
        if self.operation not in WRITES:
            return self.failed(why)
        return UnknownOutcomeError(f"cannot {self.operation} '{self.path}': {why}", file=self.path)


Fault = Callable[[Call], Any]
Schedule = Callable[[str, str], object]


class FaultyStorage(Storage):
    """Storage that asks `fault`, a schedule, before each call.

    The caller sees an error that the schedule raises, or the result of the fault that it returns. Without a
    fault the call goes to `inner`. `calls` lists the operations in order, for tests that count them; `faults`
    counts the faults.
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
    """Fail without an effect."""
    raise call.failed("injected: it was refused")


def error_after(call: Call) -> Any:
    """Perform the call, and lose the answer."""
    call()
    raise call.unknown("injected: the connection was lost")


def torn_write(call: Call) -> Any:
    """Store half of the bytes under the file's name, and lose the answer."""
    _store_half(call)
    raise call.unknown("injected: the connection was lost")


def silently_torn_write(call: Call) -> Any:
    """Store half of the bytes, and report success."""
    _store_half(call)


def stale_listing(call: Call) -> Any:
    """Return the directory's last listing; empty if there was none."""
    return list(call.listed_before)


def unavailable(call: Call) -> Any:
    """Fail as an overloaded service does, without an effect."""
    raise call.failed("injected: 503 Slow Down")


def full_disk(call: Call) -> Any:
    """Fail because no space is left."""
    raise call.failed("injected: No space left on device")


def damaged_read(call: Call) -> Any:
    """Flip one bit in the middle of the bytes read."""
    return _read_as(call, _flip)


def short_read(call: Call) -> Any:
    """Leave out the second half of the bytes read."""
    return _read_as(call, lambda data: data[: len(data) // 2])


def slow(seconds: float, sleep: Callable[[float], object]) -> Fault:
    """Perform the call after a while."""

    def fault(call: Call) -> Any:
        sleep(seconds)
        return call()

    return fault


@dataclass(frozen=True)
class Named:
    """A fault and its operations; a storage with an `honest` fault keeps its contract."""

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
"""The faults by name, without `slow`, which needs a clock."""


def fail_at(operation: str, prefix: str, *, nth: int = 1, message: str = "injected") -> Schedule:
    """Return a schedule that fails the `nth` operation on a path with the prefix, and all later ones."""
    count = 0

    def schedule(called: str, path: str) -> None:
        nonlocal count
        if called == operation and path.startswith(prefix):
            count += 1
            if count >= nth:
                raise StorageError(f"cannot {operation} '{path}': {message}", file=path)

    return schedule


def once(operation: str, prefix: str, fault: Fault, *, nth: int = 1) -> Schedule:
    """Return a schedule that gives only the `nth` operation on a path with the prefix the fault."""
    remaining = nth

    def schedule(called: str, path: str) -> Fault | None:
        nonlocal remaining
        if called == operation and path.startswith(prefix):
            remaining -= 1
            if remaining == 0:
                return fault
        return None

    return schedule


def storm(calls: int, fault: Fault = unavailable) -> Schedule:
    """Return a schedule that gives all of the next `calls` calls the fault."""
    remaining = calls

    def schedule(called: str, path: str) -> Fault | None:
        nonlocal remaining
        remaining -= 1
        return fault if remaining >= 0 else None

    return schedule


def at_random(chance: random.Random, rate: float, names: Collection[str]) -> Schedule:
    """Return a schedule that fails calls with probability `rate`, by the named faults that fit them."""

    def schedule(called: str, path: str) -> Fault | None:
        fitting = sorted(name for name in names if called in FAULTS[name].operations)
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
    call.local.unlink()  # the local file may be a link to the stored one
    call.local.write_bytes(changed(data))
    return None


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else data
