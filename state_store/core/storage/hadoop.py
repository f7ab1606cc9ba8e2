"""Checkpoint storage on any URI that Spark's Hadoop configuration can write, through the executor's JVM.

The JVM does the work with Spark's own credentials: `HadoopStorage` sends it the file requests of
docs/protocol.md, whose types come first here. Spark's checkpoint file manager makes the files, so they are as
atomic and durable as Spark's checkpoints there. On S3A they are put under their own names, on condition that
the name is free.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypedDict

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage.contract import Entry, Span, Storage, check_path, new_local_file, with_remedy
from state_store.core.storage.local_disk import failed_download
from state_store.errors import ConflictError, MissingError, StorageError

CHUNK_BYTES = 32 << 20
"""Bytes of a frame at most; the protocol's limit is 64 MiB."""

PAGE_ENTRIES = 20_000
"""Files in an answer to `list` at most; with names of 100 characters, about 3.5 MB."""

_FIRST_WRITE_BYTES = 8 << 10


# ---- requests and answers -------------------------------------------------------------------------------


class _Named(TypedDict):
    fs: str
    path: str


_Page = TypedDict("_Page", {"after": "str | None", "most": int}, total=False)  # noqa: UP013 -- a field that no attribute may be named after
"""Page of a listing: the name after which it begins, and its files at most."""


class SpanFields(TypedDict):
    """A span of the request `spans`; `pieces` has offset and length of each piece."""

    path: str
    to: str
    pieces: list[int]


class FileRequest(_Named, _Page, total=False):
    """A request: `fs` is the operation on `path`, a URI; the other fields depend on it.

    `background` tells that nobody waits for the answer, and the JVM may do other requests first.
    """

    store: int
    background: bool
    offset: int
    length: int | None
    overwrite: bool
    upload: str
    to: str
    spans: list[SpanFields]


class ListedFile(TypedDict):
    """A file in the answer to `list`."""

    name: str
    bytes: int
    modified_ms: int


class FileAnswer(TypedDict, total=False):
    """The `ok` object of `list`, `download` of a part, `spans` and `exists`.

    `copied` has the bytes of each span.
    """

    entries: list[ListedFile]
    more: bool
    bytes: int
    copied: list[int]
    exists: bool


class FileSystemCalls(Protocol):
    """The JVM as it answers file requests. Safe for any thread."""

    def fs(self, operation: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]:
        """Return the `ok` object of the answer, and a body.

        Raises:
            StateStoreError: The error of the answer.
        """


# ---- the storage ----------------------------------------------------------------------------------------


class HadoopStorage(Storage):
    """Files below the directory at `location`, a URI in Hadoop's form (not percent-encoded)."""

    takes_spans_together = True

    def __init__(self, location: str, jvm: FileSystemCalls, *, runtime: Runtime = SYSTEM) -> None:
        self.location = location.rstrip("/")
        self._jvm = jvm
        self._made: set[str] = set()
        self._lock = runtime.lock()

    def list_files(self, directory: str) -> list[Entry]:
        """Return the files of a directory, in pages by name; one that changes meanwhile may be missing."""
        entries: list[Entry] = []
        more = True
        while more:
            after = entries[-1].name if entries else None
            answer, _ = self._call({"fs": "list", "path": directory, "after": after, "most": PAGE_ENTRIES})
            entries += [Entry(file["name"], file["bytes"], file["modified_ms"]) for file in answer["entries"]]
            more = answer["more"]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        parts: list[bytes] = []
        remaining = length
        while remaining is None or remaining > 0:
            request = CHUNK_BYTES if remaining is None else min(remaining, CHUNK_BYTES)
            _, part = self._call({"fs": "read", "path": path, "offset": offset, "length": request})
            parts.append(part)
            offset += len(part)
            remaining = None if remaining is None else remaining - len(part)
            if len(part) < request:
                break
        return b"".join(parts)

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        if len(data) > CHUNK_BYTES:
            with tempfile.NamedTemporaryFile(prefix="upload-") as file:
                file.write(data)
                file.flush()
                self.upload(Path(file.name), path, overwrite=overwrite)
            return
        self._make_parent(path)
        self._call({"fs": "write", "path": path, "overwrite": overwrite}, data)

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        if not local.is_file():
            raise StorageError(f"cannot upload '{local}': it is not a file", file=str(local))
        self._make_parent(path)
        self._call({"fs": "write", "path": path, "upload": str(local), "overwrite": overwrite})

    def download(self, path: str, local: Path) -> None:
        with new_local_file(local):
            self._call({"fs": "download", "path": path, "to": str(local)})

    def download_part(self, path: str, local: Path, offset: int, length: int) -> int:
        answer, _ = self._call(
            {"fs": "download", "path": path, "to": str(local), "offset": offset, "length": length}
        )
        return int(answer["bytes"])

    def download_spans(self, spans: Sequence[Span]) -> list[int]:
        if not spans:
            return []
        request: list[SpanFields] = [
            {
                "path": f"{self.location}/{check_path(span.path)}",
                "to": str(span.local),
                "pieces": [number for piece in span.pieces for number in piece],
            }
            for span in spans
        ]
        answer, _ = self._call({"fs": "spans", "path": spans[0].path, "spans": request})
        return answer["copied"]

    def delete(self, path: str) -> None:
        self._call({"fs": "delete", "path": path})

    def exists(self, path: str) -> bool:
        answer, _ = self._call({"fs": "exists", "path": path})
        return bool(answer["exists"])

    def _make_parent(self, path: str) -> None:
        """Make the directory of `path`, unless this object has made it before."""
        parent = check_path(path).rpartition("/")[0]
        with self._lock:
            if parent in self._made:
                return
        self._call({"fs": "mkdirs", "path": parent})
        with self._lock:
            self._made.add(parent)

    def _call(self, request: FileRequest, body: bytes = b"") -> tuple[FileAnswer, bytes]:
        """Send a request, whose `path` is below this storage's location."""
        operation, uri = request["fs"], f"{self.location}/{check_path(request['path'])}"
        try:
            return self._jvm.fs({**request, "path": uri}, body)
        except MissingError as error:
            raise MissingError(f"'{uri}' does not exist ({error.message})", file=uri) from error
        except ConflictError as error:
            if operation != "write":
                raise StorageError(f"cannot {operation} '{uri}': {error.message}", file=uri) from error
            raise ConflictError(f"'{uri}' exists already ({error.message})", file=uri) from error
        except StorageError as error:
            local, size_bytes = _written(request)
            failure = failed_download(error.message, local, size_bytes) if local else None
            if failure is not None:
                raise failure from error
            why = with_remedy(error.message)
            raise StorageError(f"cannot {operation} '{uri}': {why}", file=uri) from error


def _written(request: FileRequest) -> tuple[str | None, int]:
    """Return a local file that the JVM writes for a request, and the bytes of all, or of the first write."""
    spans = request.get("spans")
    if spans:
        return spans[0]["to"], sum(sum(span["pieces"][1::2]) for span in spans)
    return request.get("to"), request.get("length") or _FIRST_WRITE_BYTES
