"""`state_store.full_checkpoint`: the function behind `state-store full`."""

from __future__ import annotations

import pytest
from query_directory import QueryDirectory, rows

import state_store
from state_store.errors import MissingError, OptionError


@pytest.fixture
def query(tmp_path):
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    for batch in range(3):
        made.commit(rows(batch * 10, 20))
    return made


def test_all_stores_get_a_full_checkpoint(query):
    updates: list[state_store.ProgressUpdate] = []
    made = state_store.full_checkpoint(str(query.root), progress=updates.append)
    assert [(store.key.partition, store.version.number) for store in made.made] == [(0, 3), (1, 3)]
    assert repr(made) == f"FullCheckpoints(2 stores, {sum(store.bytes for store in made.made)} bytes)"
    assert made._repr_html_().count("<tr>") == 3
    last = updates[-1]
    assert (last.stores_done, last.stores, last.unit) == (2, 2, "bytes")
    assert 0 < last.done <= (last.expected or 0)
    assert all(query.restored(key) == query.state[key] for key in query.keys)


def test_only_the_requested_stores_get_a_full_checkpoint(query):
    made = state_store.full_checkpoint(str(query.root), partition=1)
    assert [store.key.partition for store in made.made] == [1]


def test_a_failure_is_raised_after_the_other_stores_are_done(query):
    [path.unlink() for path in query.files(query.keys[0])]
    with pytest.raises(MissingError, match="cannot be restored"):
        state_store.full_checkpoint(str(query.root))
    assert any(path.suffix == ".zip" for path in query.files(query.keys[1]))
    reported = state_store.full_checkpoint(str(query.root), on_failure="report")
    assert [store.key for store in reported.made] == [query.keys[1]]
    assert [store.key for store in reported.failed] == [query.keys[0]]
    assert "1 failed" in repr(reported)


@pytest.mark.parametrize(
    "wrong",
    [{"compression": "zip"}, {"on_failure": "ignore"}, {"progress": 3}],
)
def test_wrong_arguments_are_refused(query, wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        state_store.full_checkpoint(str(query.root), **wrong)


def test_the_progress_bar_is_shown(query, capfd):
    state_store.full_checkpoint(str(query.root), progress=True)
