"""The contract of checkpoint storage: few operations, all atomic; every backend passes the same tests.

Paths are relative to the store's directory, with `/` between parts. All methods are safe for any thread. A
file appears with all its bytes or not at all, and durably if the backend can promise that.

Besides the contract there is what its backends share: the check of paths, local files that downloads write,
and advice on failures that are recognised by the text of a service.

The last part is storage around another storage, which passes calls on while there is time.
`ForwardingStorage` is the base: it passes each call on. `BoundedStorage` stops at the deadline of an
operation, between files, never in the middle of a file. `AnsweringStorage` gives up if a service does not
answer the first request, so that nobody waits for ever.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from state_store.core.runtime import FIRST_ANSWER_S, SYSTEM, Runtime, answered
from state_store.core.storage.local_disk import (
    blames_local_file,
    local_disk_error,
    local_disk_errors,
    remove_unneeded,
)
from state_store.errors import BusyError, ConflictError, StateStoreError, StorageError, UnknownOutcomeError

_REMEDIES = {
    r"expired ?token|token (has|is) expired": "the credentials have expired: get new ones",
    r"invalid_?access_?key_?id": "the service does not know this key: see AWS_ACCESS_KEY_ID and AWS_PROFILE",
    r"signature_?does_?not_?match": (
        "the secret is not that of the key: see AWS_SECRET_ACCESS_KEY and AWS_PROFILE"
    ),
    r"request_?time_?too_?skewed": "set the clock of this machine",
    r"permanent_?redirect|authorization_?header_?malformed|http status 301": (
        "the bucket is in another region: set AWS_DEFAULT_REGION to that of the bucket"
    ),
    r"kms\.|kms_?(disabled|invalid|not_?found|access)": (
        "the key of the bucket's encryption is disabled, or this user may not use it: see AWS KMS"
    ),
    # S3, and Azure, whose answer through Hadoop has no code.
    r"invalid_?object_?state|not valid for the object's storage class"
    r"|blob_?archived|archived blob|blob_?being_?rehydrated": (
        "the file is in an archive tier: restore it there, and let no lifecycle rule of the bucket move "
        "files of a checkpoint"
    ),
    # pyarrow reads the reason of a refusal into as many bytes as it asked for.
    r"failed to flush response stream|access_denied during getobject operation:$": (
        "the service does not hand the file out, and the client has lost the reason: the file is in an "
        "archive tier, or this user may not read it, or not use its key; `aws s3api get-object` says which"
    ),
    r"no_?such_?upload": (
        "the upload was ended from outside: a rule of the bucket that aborts incomplete uploads should do "
        "so after days"
    ),
    r"could not create a oauth2 access token": (
        "no credentials of Google Cloud are found: run `gcloud auth application-default login`, or set "
        "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    r"ssl peer certificate|local issuer certificate|certificate_verify_failed": (
        "the service's certificate is of an authority that the client does not know: SSL_CERT_FILE names a "
        "file with the certificate of the authority, for swebhdfs: REQUESTS_CA_BUNDLE does"
    ),
    r"container_?not_?found": "make the container, or correct its name in the checkpoint location",
    r"authentication failure": (
        "the cluster asks for Kerberos: pip install requests-kerberos (the extra `kerberos`) and run kinit, "
        "or set HADOOP_TOKEN_FILE_LOCATION to a file with a delegation token. Queries are not concerned: "
        "their JVM speaks it"
    ),
    r"safe ?mode": "the NameNode accepts no changes before safe mode ends: see `hdfs dfsadmin -safemode get`",
    r"disk quota exceeded": "delete files of this user there, or have the quota raised",
    r"quota.*exceeded": "delete what is not needed there, or raise it (`hdfs dfsadmin -setSpaceQuota`)",
    r"permission denied|access ?control|access_?denied|forbidden|\b403\b": (
        "the query's user must be allowed to list, read, write and delete below the checkpoint directory"
    ),
    r"could only be (written|replicated) to|all datanodes .* are bad|could not obtain block": (
        "too few DataNodes answer: `hdfs dfsadmin -report` shows which are dead"
    ),
    r"no[ _]?such[ _]?bucket": "make the bucket, or correct its name in the checkpoint location",
    r"slow[ _]?down|too many requests|\b503\b|\b429\b": (
        "the service is asked too often: try again later, or with fewer `transferThreads`"
    ),
    r"no space left|disk is full": "free space there: `state-store files` shows what takes it",
    r"read-only file system": "it must be mounted so that it can be written",
    r"not a directory": "remove the file that stands where a directory has to be, or correct the location",
}

_KNOWN_FAILURES = tuple(
    (re.compile(words, re.IGNORECASE | re.DOTALL), remedy) for words, remedy in _REMEDIES.items()
)

_ANY_FILE = "metadata"

MAX_FAILURES_IN_ROW = 16
"""Failures in a row after which operations that have nothing to do with each other are given up: the service
does not answer, or refuses all."""

R = TypeVar("R")


# ---- the contract ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A file in a listing; `modified_ms` is the storage's time, milliseconds since 1970 UTC."""

    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Span:
    """A range of a stored file: pieces of it, as offset and length in order, that belong into `local`.

    All from the first piece to the last is read, since a request costs more than some bytes between pieces.
    """

    path: str
    local: Path
    pieces: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the pieces."""
        return sum(length for _, length in self.pieces)


class Failures:
    """Failures of operations that have nothing to do with each other, as deletions: none ends the others.

    Safe for any thread.
    """

    def __init__(self) -> None:
        self._first: StorageError | UnknownOutcomeError | None = None
        self._in_row = 0

    def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Call `action`, and note that it failed; do nothing after many failures in a row.

        Raises:
            StateStoreError: If not the storage fails: the time for the operation is over, for example.
        """
        if self._in_row >= MAX_FAILURES_IN_ROW:
            return
        try:
            action(*arguments)
        except (StorageError, UnknownOutcomeError) as error:
            self._first = self._first or error
            self._in_row += 1
        else:
            self._in_row = 0

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._first is not None:
            raise self._first


class Storage(ABC):
    """The files of one store. The page of a subclass says which parts of the contract its service limits.

    Every method raises StorageError if the storage refuses or fails, UnknownOutcomeError if a write may or
    may not have happened, and LocalDiskError if a disk of this machine fails.
    """

    location: str
    """The URI (or local path) of the store's directory, for messages."""

    is_local = False
    """True if `download` links or copies a file of this machine, so that fetching parts has no use."""

    takes_spans_together = False
    """True if one call of `download_spans` requests many spans at the same time."""

    @abstractmethod
    def list_files(self, directory: str) -> list[Entry]:
        """Return the files directly in `directory`, sorted by name, without subdirectories.

        The list is empty if the directory does not exist.
        """

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes from `offset`, at most `length` of them (None: to the end).

        Raises:
            MissingError: If the file does not exist.
        """

    @abstractmethod
    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Create a file with exactly these bytes, and its directories.

        Args:
            path: the file.
            data: its bytes.
            overwrite: replace an existing file in one step.

        Raises:
            ConflictError: If the file exists and `overwrite` is false.
        """

    @abstractmethod
    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        """Create a file as `write` does, with the bytes of a local file.

        The local file must never be modified afterwards: it may become the stored file.
        """

    @abstractmethod
    def download(self, path: str, local: Path) -> None:
        """Create the local file `local`, which must not exist, with the bytes of `path`.

        `local` may share its bytes with the stored file (a hard link): never modify it in place.

        Raises:
            MissingError: If `path` does not exist.
        """

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        """Copy the pieces of spans to the same offsets of existing local files.

        Returns:
            For each span the number of bytes copied, which is smaller if the stored file is too short.

        Raises:
            MissingError: If a stored file does not exist.
            LocalDiskError: If the local disk fails.
        """
        return [self._download_span(span) for span in spans]

    def _download_span(self, span: Span) -> int:
        start = span.pieces[0][0]
        data = memoryview(self.read(span.path, start, sum(span.pieces[-1]) - start))
        copied = 0
        for offset, length in span.pieces:
            piece = data[offset - start : offset - start + length]
            write_at(span.local, piece, offset)
            copied += len(piece)
        return copied

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if a file exists; `path` is never a directory."""

    def directories(self, directory: str | None = None) -> list[str]:
        """Return the names of the directories directly in `directory` (None: the store's), sorted.

        It is for programs that look for stores.

        Raises:
            StorageError: If the storage cannot tell, as through the JVM.
        """
        raise StorageError(f"'{self.location}' cannot be searched for directories", file=self.location)

    def delete_directory(self, directory: str) -> None:
        """Delete a directory and its contents, not in one step; do nothing if it does not exist.

        Raises:
            StorageError: As `directories` does, or a file stays; all others that can be deleted are.
        """
        failures = Failures()
        for entry in self.list_files(directory):
            failures.attempt(self.delete, f"{directory}/{entry.name}")
        for name in self.directories(directory):
            failures.attempt(self.delete_directory, f"{directory}/{name}")
        failures.check()

    def close(self) -> None:  # noqa: B027 -- most backends hold nothing
        """Close connections; the storage is not used afterwards."""


# ---- what backends share --------------------------------------------------------------------------------


def check_path(path: str) -> str:
    """Return `path`. Raises StorageError unless it is relative and stays below the store's directory."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise StorageError(f"'{path}' is not a path below a store's directory", file=path)
    return path


@contextmanager
def new_local_file(local: Path) -> Iterator[IO[bytes]]:
    """Yield the new file `local`, open for writing; delete it if the block fails.

    Raises:
        ConflictError: If it exists.
        LocalDiskError: If it cannot be made, or its disk is full.
    """
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open(local, "xb"))
        except FileExistsError as error:
            raise ConflictError(f"'{local}' exists already", file=str(local)) from error
        except OSError as error:
            raise local_disk_error(error, local) from error
        try:
            yield file
        except BaseException as error:
            remove_unneeded(local)
            if isinstance(error, OSError) and blames_local_file(error, local):
                raise local_disk_error(error, local) from error
            raise


def write_at(local: Path, data: bytes | memoryview, offset: int) -> None:
    """Write `data` at `offset` into the existing file `local`.

    Raises:
        LocalDiskError: If the disk is full or fails.
    """
    with local_disk_errors(local), open(local, "r+b", buffering=0) as file:
        view, at = memoryview(data), offset
        while view:
            count = os.pwrite(file.fileno(), view, at)
            view, at = view[count:], at + count


def with_remedy(why: str) -> str:
    """Return the first line of a storage's message, with advice if the failure is known."""
    first = why.partition("\n")[0].rstrip()
    for words, remedy in _KNOWN_FAILURES:
        if words.search(first):
            return f"{first} ({remedy})"
    return first


# ---- storage around another storage ---------------------------------------------------------------------


class ForwardingStorage(Storage):
    """Storage that passes each call on to `inner`, and is as safe for threads as `inner`.

    A subclass overrides the methods that it changes, or `_before`. Closing it does nothing: `inner` belongs
    to somebody else.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.location = inner.location
        self.is_local = inner.is_local
        self.takes_spans_together = inner.takes_spans_together

    def _before(self, *, is_deletion: bool) -> None:
        """Run before each call that this class passes on."""

    def list_files(self, directory: str) -> list[Entry]:
        self._before(is_deletion=False)
        return self.inner.list_files(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._before(is_deletion=False)
        return self.inner.read(path, offset, length)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        self._before(is_deletion=False)
        self.inner.write(path, data, overwrite=overwrite)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        self._before(is_deletion=False)
        self.inner.upload(local, path, overwrite=overwrite)

    def download(self, path: str, local: Path) -> None:
        self._before(is_deletion=False)
        self.inner.download(path, local)

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        self._before(is_deletion=False)
        return self.inner.download_spans(spans)

    def delete(self, path: str) -> None:
        self._before(is_deletion=True)
        self.inner.delete(path)

    def exists(self, path: str) -> bool:
        self._before(is_deletion=False)
        return self.inner.exists(path)

    def directories(self, directory: str | None = None) -> list[str]:
        self._before(is_deletion=False)
        return self.inner.directories(directory)

    def delete_directory(self, directory: str) -> None:
        self._before(is_deletion=True)
        self.inner.delete_directory(directory)


class Deadline:
    """The end of an operation, which may be cancelled before. Safe for any thread.

    Time in which the machine sleeps counts.

    Args:
        subject: The operation, for the message.
        limit_ms: The time that it may take; None: any time.
        option: The option that allows more, for the message.
        runtime: The clock.
    """

    def __init__(
        self,
        subject: str,
        limit_ms: float | None,
        *,
        option: str | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._subject = subject
        self._limit_ms = limit_ms
        self._option = option
        self._clock_ms = runtime.uptime_ms
        self._end_ms = None if limit_ms is None else runtime.uptime_ms() + limit_ms
        self._cancelled: str | None = None
        self._lock = runtime.lock()

    @property
    def passed(self) -> bool:
        """True if the operation has to end now."""
        late = self._end_ms is not None and self._clock_ms() >= self._end_ms
        return late or self._cancelled is not None

    @property
    def cancelled(self) -> bool:
        """True if `cancel` was called."""
        return self._cancelled is not None

    def left_s(self) -> float | None:
        """Return the seconds until the end, 0 after it; None if there is no end."""
        return None if self._end_ms is None else max(0.0, (self._end_ms - self._clock_ms()) / 1000)

    def cancel(self, why: str) -> None:
        """End the operation at its next step. The first reason stays."""
        with self._lock:
            self._cancelled = self._cancelled or why

    def check(self) -> None:
        """Raise BusyError if the operation has to end now."""
        if self._cancelled is not None:
            raise BusyError(f"{self._subject} was cancelled: {self._cancelled}")
        if self.passed:
            option = f" ({self._option})" if self._option else ""
            raise BusyError(
                f"{self._subject} took longer than {self._limit_ms:.0f} ms{option} and was given up",
                option=self._option,
            )


NEVER = Deadline("nothing", None)
"""Deadline without an end. It is shared, and never cancelled."""


class BoundedStorage(ForwardingStorage):
    """Storage that passes calls on to `inner` until the `deadline`; then each raises BusyError.

    Another deadline may be set for the next operation. Deletions are bounded only with `bound_deletions`:
    an operation that is given up deletes the files that it wrote.
    """

    def __init__(self, inner: Storage, deadline: Deadline, *, bound_deletions: bool = False) -> None:
        super().__init__(inner)
        self.deadline = deadline
        self._bound_deletions = bound_deletions

    def _before(self, *, is_deletion: bool) -> None:
        if self._bound_deletions or not is_deletion:
            self.deadline.check()


class AnsweringStorage(ForwardingStorage):
    """Storage that gives up its first request if the service does not answer it.

    Clients of services repeat a request for many minutes, and no signal interrupts them. From the first
    answer on, calls are passed on directly.
    """

    def __init__(
        self,
        location: str,
        open_inner: Callable[[], Storage],
        *,
        limit_s: float = FIRST_ANSWER_S,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Open the storage, which may ask the service.

        Args:
            location: the URI, for the message.
            open_inner: opens it.
            limit_s: seconds in which the first answer has to come.
            runtime: threads.

        Raises:
            StorageError: the service did not answer in time.
        """
        self._first = partial(answered, location, limit_s=limit_s, runtime=runtime)
        self._has_answered = False
        super().__init__(self._first(open_inner))

    def list_files(self, directory: str) -> list[Entry]:
        return self._asked(lambda: self.inner.list_files(directory))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._asked(lambda: self.inner.read(path, offset, length))

    def exists(self, path: str) -> bool:
        return self._asked(lambda: self.inner.exists(path))

    def directories(self, directory: str | None = None) -> list[str]:
        return self._asked(lambda: self.inner.directories(directory))

    def close(self) -> None:
        self.inner.close()

    def _before(self, *, is_deletion: bool) -> None:
        """Look for a file before a first request that changes something: nobody would know if it did."""
        if not self._has_answered:
            self.exists(_ANY_FILE)

    def _asked(self, call: Callable[[], R]) -> R:
        if self._has_answered:
            return call()
        try:
            answer = self._first(call)
        except StateStoreError as error:
            self._has_answered = error.kind != "storage"
            raise
        self._has_answered = True
        return answer
