"""Since when keys have not been changed, where keys come and go."""

from __future__ import annotations

from types import SimpleNamespace

from query_directory import QueryDirectory

from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.dataset.stats import _ages, _last_written


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

    times_ms: dict[int, int | None] = {}
    opened = SimpleNamespace(directory=tmp_path, committed_ms=lambda pin, delta: delta.version)
    written = _last_written(opened, pin, b"\0\0", times_ms)
    size = SimpleNamespace(rows=len(query.state[key]))
    found = _ages([SimpleNamespace(written=written, times_ms=times_ms, size=size)])
    pin.release()
    assert {change.version: change.keys for change in found.last_changes} == {1: 2, 2: 1, 3: 0, 4: 0, 5: 1}
    assert (found.older, found.keys) == (0, 4)
