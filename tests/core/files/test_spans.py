"""Spans: pieces of stored files that lie close together come with one request."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from faults import Call, FaultyStorage

from state_store.core.files.sparse import AT_ONCE, GAP_BYTES, SPAN_BYTES, fetch_spans, spans_of
from state_store.core.files.transfer import make_hole
from state_store.core.runtime import SYSTEM
from state_store.core.storage.contract import Span
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, StorageError

PATIENCE_S = 120


def pieces_of(spans: list[Span]) -> list[tuple[int, int]]:
    return [(offset, offset + length) for span in spans for offset, length in span.pieces]


def test_pieces_with_small_gaps_come_together_and_others_do_not() -> None:
    pieces = [(0, 10), (10 + GAP_BYTES, 20 + GAP_BYTES), (21 + 2 * GAP_BYTES, 30 + 2 * GAP_BYTES)]
    spans = list(spans_of("shared/a", Path("a"), pieces))
    assert [len(span.pieces) for span in spans] == [2, 1]
    assert pieces_of(spans) == pieces
    assert [span.size_bytes for span in spans] == [20, 9]


def test_a_span_has_a_bounded_length_and_every_piece_is_in_one() -> None:
    chance = random.Random(1)
    at, pieces = 0, []
    for _ in range(3000):
        at += chance.randrange(1, 60_000)
        pieces.append((at, at := at + chance.randrange(1, 9000)))
    spans = list(spans_of("shared/a", Path("a"), pieces))
    assert pieces_of(spans) == pieces
    assert 20 < len(spans) < 200
    assert all(sum(span.pieces[-1]) - span.pieces[0][0] <= SPAN_BYTES for span in spans)


def test_a_piece_that_is_longer_than_a_span_is_a_span() -> None:
    pieces = [(0, 3 * SPAN_BYTES), (3 * SPAN_BYTES + 1, 3 * SPAN_BYTES + 2)]
    assert [len(span.pieces) for span in spans_of("a", Path("a"), pieces)] == [1, 1]


def stored(tmp_path: Path, size: int) -> tuple[LocalStorage, bytes, Path]:
    data = random.Random(2).randbytes(size)
    storage = LocalStorage(tmp_path / "stored")
    storage.write("shared/a", data)
    make_hole(tmp_path / "a", size)
    return storage, data, tmp_path / "a"


def test_only_the_pieces_are_written(tmp_path: Path) -> None:
    storage, data, local = stored(tmp_path, 100_000)
    fetch_spans(
        storage,
        [Span("shared/a", local, ((10, 5), (50_000, 7))), Span("shared/a", local, ((99_990, 10),))],
        SYSTEM,
    )
    expected = bytearray(100_000)
    for start, end in ((10, 15), (50_000, 50_007), (99_990, 100_000)):
        expected[start:end] = data[start:end]
    assert local.read_bytes() == expected


def test_a_stored_file_that_ends_before_is_damaged(tmp_path: Path) -> None:
    storage, _, local = stored(tmp_path, 1000)
    with pytest.raises(DamagedError, match="it ends at"):
        fetch_spans(storage, [Span("shared/a", local, ((0, 10), (995, 10)))], SYSTEM)


def test_spans_are_requested_at_the_same_time(tmp_path: Path) -> None:
    storage, data, local = stored(tmp_path, 100 * AT_ONCE)
    together = threading.Barrier(AT_ONCE)

    def waits(operation: str, path: str) -> object:
        return (lambda call: (together.wait(PATIENCE_S), call())[1]) if operation == "read" else None

    spans = [Span("shared/a", local, ((100 * i, 100),)) for i in range(AT_ONCE)]
    fetch_spans(FaultyStorage(storage, waits), spans, SYSTEM)
    assert local.read_bytes() == data


def test_a_request_that_fails_is_an_error(tmp_path: Path) -> None:
    storage, _, local = stored(tmp_path, 1000)

    def fails(call: Call) -> object:
        raise call.failed("it is down")

    spans = [Span("shared/a", local, ((at, 10),)) for at in (0, 100, 200)]
    with pytest.raises(StorageError, match="it is down"):
        fetch_spans(FaultyStorage(storage, lambda operation, path: fails), spans, SYSTEM)
