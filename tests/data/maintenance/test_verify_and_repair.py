"""`state_store.verify` and `state_store.repair`: the functions behind the commands of these names."""

from __future__ import annotations

import os

import pytest
from query_directory import QueryDirectory, rows

import state_store
from state_store.core.storage.local import LocalStorage
from state_store.errors import OptionError, StorageError


@pytest.fixture
def query(tmp_path):
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    for batch in range(3):
        made.commit(rows(batch * 10, 20))
    return made


def test_a_good_state_has_no_problem(query):
    verification = state_store.verify(str(query.root), progress=lambda update: None)
    assert verification.ok
    assert repr(verification) == "Verification(2 stores: no problem)"
    assert [verdict.restored.number for verdict in verification.verdicts] == [3, 3]
    repairs = state_store.repair(str(query.root))
    assert repr(repairs) == "Repairs(2 stores: 0 steps planned, 0 problems left)"


def test_damage_is_found_and_stays_if_nothing_can_repair_it(query):
    key = query.keys[1]
    (delta,) = (path for path in query.files(key) if path.name.startswith(f"{3:020}"))
    delta.write_bytes(b"x" + delta.read_bytes()[1:])
    verification = state_store.verify(str(query.root))
    assert {finding.key for finding in verification.findings} == {key}
    assert delta.name[:40] in verification._repr_html_()
    assert state_store.verify(str(query.root), partition=0).ok
    repairs = state_store.repair(str(query.root), apply=True)
    assert not repairs.ok
    assert delta.exists()


@pytest.mark.parametrize("work", [state_store.verify, state_store.repair])
def test_a_store_whose_directory_fails_keeps_no_other(query, work):
    """A file in the place of a directory: the storage refuses to list it."""
    first = query.root / query.keys[0].path
    (first / "snapshot").write_text("not a directory")
    result = work(str(query.root))
    findings = result.findings if work is state_store.verify else result.left
    (finding,) = findings
    assert (finding.key, finding.kind) == (query.keys[0], "storage")
    assert not result.ok
    of_stores = result.verdicts if work is state_store.verify else result.repairs
    assert [part.key for part in of_stores] == query.keys


def test_a_file_that_cannot_be_deleted_is_named_and_keeps_no_other(query, monkeypatch):
    held, other = (f"delta/{1:020}_x{n}_empty_00000001.sst.00c0ffee.tmp" for n in (1, 2))
    for key in query.keys:
        for path in (held, other):
            file = query.root / key.path / path
            file.write_bytes(b"x")
            os.utime(file, (1, 1))
    delete = LocalStorage.delete

    def refuse(storage, path):
        if path == held and storage.location.endswith(query.keys[0].path):
            raise StorageError(f"cannot delete '{path}': it is immutable", file=path)
        delete(storage, path)

    monkeypatch.setattr(LocalStorage, "delete", refuse)
    repairs = state_store.repair(str(query.root), apply=True, leaks_only=True)
    (finding,) = repairs.left
    assert (finding.key, finding.kind, finding.file) == (query.keys[0], "storage", held)
    assert "it is immutable" in finding.problem
    assert [[step.file for step in repair.steps] for repair in repairs.repairs] == [[other], [held, other]]
    left = [[path for path in (held, other) if (query.root / key.path / path).exists()] for key in query.keys]
    assert left == [[held], []]


@pytest.mark.parametrize("age", ["59min", "old", 3, None])
def test_an_invalid_age_is_refused(query, age):
    with pytest.raises(OptionError, match="is not an age") as refused:
        state_store.repair(str(query.root), older_than=age)
    assert refused.value.option == "older_than"
