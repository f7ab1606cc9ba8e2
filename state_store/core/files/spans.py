"""Requests for many pieces of stored files: pieces that lie close together come with one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from state_store.core.compat import zip
from state_store.core.files.transfer import check_count, parallel
from state_store.core.runtime import Runtime
from state_store.core.storage.contract import Span, Storage

GAP_BYTES = 128 << 10
"""Bytes between two pieces that are read rather than skipped: they take less time than another request."""

SPAN_BYTES = 2 << 20
"""Bytes from which on a span takes no further piece, so that a large request is divided among threads."""

AT_ONCE = 32
"""Spans that are requested at a time, of storage that does not take them together."""


def spans_of(path: str, local: Path, pieces: Iterable[tuple[int, int]]) -> Iterator[Span]:
    """Join neighbouring pieces of a file into spans, each of which is fetched by one request.

    Args:
        path: The stored file.
        local: The local file that gets the bytes.
        pieces: Start and end of each piece, in ascending order.
    """
    span: list[tuple[int, int]] = []
    start = end = 0
    for first, last in pieces:
        if span and (first - end > GAP_BYTES or last - start > SPAN_BYTES):
            yield Span(path, local, tuple(span))
            span = []
        if not span:
            start = first
        span.append((first, last - first))
        end = last
    if span:
        yield Span(path, local, tuple(span))


def fetch_spans(storage: Storage, spans: Sequence[Span], runtime: Runtime) -> None:
    """Fetch spans and write each at the same offset of its local file, many at a time.

    Raises:
        DamagedError: A stored file is too short.
        StateStoreError: The storage or the disk fails.
    """
    if storage.takes_spans_together:
        counts = storage.download_spans(spans)
    else:
        counts = parallel(AT_ONCE, lambda span: storage.download_spans([span])[0], spans, runtime=runtime)
    for span, count in zip(spans, counts, strict=True):
        check_count(storage, span.path, span.pieces[0][0], span.size_bytes, count)
