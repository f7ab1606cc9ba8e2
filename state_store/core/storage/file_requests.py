"""File requests to the JVM and their answers, as in docs/protocol.md."""

from __future__ import annotations

from typing import Protocol, TypedDict


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
