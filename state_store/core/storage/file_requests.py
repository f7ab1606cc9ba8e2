"""File requests to the JVM and its answers, as docs/protocol.md has them."""

from __future__ import annotations

from typing import Protocol, TypedDict


class _Named(TypedDict):
    fs: str
    path: str


class FileRequest(_Named, total=False):
    """`fs` says what is to be done with `path`, a URI; which of the others are there depends on that."""

    store: int
    after: str | None
    most: int
    offset: int
    length: int | None
    overwrite: bool
    upload: str
    to: str


class ListedFile(TypedDict):
    """A file of an answer to `list`."""

    name: str
    bytes: int
    modified_ms: int


class FileAnswer(TypedDict, total=False):
    """The `ok` object: `entries` and `more` for `list`, `bytes` for parts of a `download`, `exists`
    for that.
    """

    entries: list[ListedFile]
    more: bool
    bytes: int
    exists: bool


class FileSystemCalls(Protocol):
    """The JVM's side: one file request, safe for any thread.

    Takes the request and a body; gives the `ok` object of the answer and a body.
    Raises the StateStoreError that the `error` object stands for.
    """

    def fs(self, operation: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]: ...
