"""Since when keys have not been changed, where keys come and go."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

from query_directory import QueryDirectory

from state_store.data.dataset.reading.pinned import PinnedVersion
from state_store.data.dataset.stats import ages


def test_keys_that_come_again_or_go_count_once_or_not_at_all(tmp_path) -> None:
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    for rows in (
        {b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"},
        {b"b": b"2", b"c": b"2"},
        {b"c": None, b"e": b"3"},
        {},
        {b"e": None, b"c": b"5"},
    ):
        query.commit(rows)
    (key,) = query.keys
    pin = PinnedVersion(key, query.store(key), 5, query.newest[key], since=0)

    @contextmanager
    def pinned(version: int, since: int):
        assert (version, since) == (5, 0)
        yield {0: pin}

    partitions = SimpleNamespace(
        version=5,
        directory=tmp_path,
        count=lambda number: len(query.state[key]),
        family_id=lambda number: 0,
        pinned=pinned,
        committed_ms=lambda pin, delta: delta.version,
    )
    found = ages(partitions, [0])
    pin.release()
    assert {change.version: change.keys for change in found.last_changes} == {1: 2, 2: 1, 3: 0, 4: 0, 5: 1}
    assert (found.older, found.keys) == (0, 4)
