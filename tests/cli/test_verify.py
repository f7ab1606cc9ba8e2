"""`state-store verify` beside a running query, and its words, which are those of a restore."""

from __future__ import annotations

import errno
import itertools
import json
import os
import tempfile

import pytest
from faults import FAULTS, FaultyStorage, once
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.names import VersionId
from state_store.data.maintenance.verification import verify_store
from state_store.data.query import Query, StoreKey
from state_store.errors import StorageError

FIRST = StoreKey(0, 0)


@pytest.fixture
def query(tmp_path):
    """A store of six versions: a merge at 2, a full checkpoint at 4."""
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    for batch in range(6):
        made.commit(rows(batch * 10, 20))
        if batch in (1, 3):
            made.merge(FIRST, "full" if batch == 3 else "incremental")
    return made


def retire_below(query, floor: int) -> None:
    """Do as a clean-up: remove all files older than version `floor`."""
    for path in query.files(FIRST):
        if int(path.name[:20]) < floor:
            path.unlink()


def during(query, operation, action, *, nth=1) -> FaultyStorage:
    """The store's storage; before the `nth` time of `operation` the query does `action`."""
    calls = itertools.count(1)  # downloads come from several threads

    def fault(called, path):
        if called == operation and next(calls) == nth:
            action()

    return FaultyStorage(query.store(FIRST), fault)


@pytest.mark.parametrize("every", [False, True])
def test_files_that_a_cleanup_removes_meanwhile_are_no_problem(query, every):
    storage = during(query, "download", lambda: retire_below(query, 4))
    verdict = verify_store(FIRST, storage, lambda: query.newest[FIRST], every=every)
    assert verdict.findings == ()
    assert verdict.restored == query.newest[FIRST]
    assert verdict.keys == len(query.state[FIRST])


@pytest.mark.parametrize(
    ("operation", "nth"), [("download", 1), ("list", 5)], ids=["while-files-are-read", "while-it-is-restored"]
)
def test_a_query_that_goes_on_and_retires_the_version_is_followed(query, operation, nth):
    def go_on():
        for batch in range(6, 9):
            query.commit(rows(batch * 10, 20))
        query.merge(FIRST, "full")
        query.commit(rows(0, 5, b"w"))
        retire_below(query, 9)

    storage = during(query, operation, go_on, nth=nth)
    verdict = verify_store(FIRST, storage, lambda: query.newest[FIRST])
    assert verdict.findings == ()
    assert verdict.restored == query.newest[FIRST]
    assert verdict.restored.number == 10


def test_a_file_that_is_needed_and_goes_meanwhile_is_a_problem(query):
    (table,) = [path for path in query.files(FIRST) if path.name.startswith(f"{4:020}-")]
    storage = during(query, "download", table.unlink)
    verdict = verify_store(FIRST, storage, lambda: query.newest[FIRST])
    assert any(table.name in problem.file for problem in verdict.findings)


def test_a_damaged_file_is_a_problem_although_the_query_goes_on(query):
    delta = next(path for path in query.files(FIRST) if path.name.startswith(f"{5:020}_"))
    data = bytearray(delta.read_bytes())
    data[100] ^= 1
    delta.unlink()
    delta.write_bytes(data)
    storage = during(query, "download", lambda: retire_below(query, 4))
    verdict = verify_store(FIRST, storage, lambda: query.newest[FIRST], every=True)
    assert {problem.file.rpartition("/")[2] for problem in verdict.findings} == {delta.name}
    (finding,) = verdict.findings
    assert [version.number for version in finding.versions] == [5, 6]
    assert finding.sentence().endswith("; versions 5-6 cannot be restored")
    assert 4 in {version.number for version in verdict.restorable}
    assert not {5, 6} & {version.number for version in verdict.restorable}


def test_a_committed_version_that_is_gone_is_a_problem(query):
    gone = VersionId(6, "another-id")
    verdict = verify_store(FIRST, query.store(FIRST), lambda: gone)
    assert verdict.restored is None
    (finding,) = verdict.findings
    assert finding.file == f"delta/{6:020}_another-id_*.sst"
    assert finding.sentence() == (
        "is missing, and version 6 (another-id), which Spark committed last, needs it; "
        "version 6 cannot be restored"
    )


def test_a_missing_delta_costs_all_versions_that_build_on_it(query):
    (gone,) = [path for path in query.files(FIRST) if path.name.startswith(f"{5:020}_")]
    gone.unlink()
    verdict = verify_store(FIRST, query.store(FIRST), lambda: query.newest[FIRST])
    (finding,) = verdict.findings
    assert finding.file == f"delta/{'_'.join(gone.name.split('_')[:2])}_*.sst"
    assert finding.sentence() == (
        f"is missing, and version {query.newest[FIRST]}, which Spark committed last, needs it; "
        "versions 5-6 cannot be restored"
    )
    assert max(version.number for version in verdict.restorable) == 4


def test_before_the_first_commit_the_files_alone_are_checked(query):
    verdict = verify_store(FIRST, query.store(FIRST), lambda: None)
    assert (verdict.restored, verdict.findings) == (None, ())


@pytest.mark.parametrize(
    ("counter", "sentence"),
    [
        ("family", "column family 'default' has 70 rows, but the record counts 69"),
        ("store", "there are 70 rows, but the record counts 69"),
    ],
)
@pytest.mark.parametrize("merged", [False, True])
def test_a_record_that_counts_a_row_too_few_is_a_problem(query, counter, sentence, merged):
    """Executors that have this many rows in memory would not look for others in the base."""
    query.uncounted[counter] = 1
    query.commit(rows(60, 10))
    if merged:
        query.merge(FIRST, "incremental")
    verdict = verify_store(FIRST, query.store(FIRST), lambda: query.newest[FIRST], every=True)
    (finding,) = verdict.findings
    assert (finding.kind, finding.versions) == ("damaged", (query.newest[FIRST],))
    assert sentence in finding.problem
    assert f"{7:020}" in finding.file
    assert finding.file.startswith("snapshot/" if merged else "delta/")


@pytest.mark.parametrize("harm", ["flip", "truncate"])
@pytest.mark.parametrize("prefix", [f"{6:020}_", f"{4:020}-"], ids=["delta", "table"])
def test_a_damage_is_told_in_the_words_of_a_restore(query, harm, prefix):
    path = next(path for path in query.files(FIRST) if path.name.startswith(prefix))
    data = bytearray(path.read_bytes())
    path.unlink()
    if harm == "flip":
        data[10] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(data[:-10])
    verdict = verify_store(FIRST, query.store(FIRST), lambda: query.newest[FIRST])
    of_the_file = next(
        problem for problem in verdict.findings if problem.file == f"{path.parent.name}/{path.name}"
    )
    sentence = query.complaints(FIRST)
    assert path.name in sentence
    assert of_the_file.problem in sentence


@pytest.mark.parametrize("fault", ["damaged-read", "short-read"])
def test_a_file_that_is_read_wrongly_once_is_not_called_damaged(query, fault):
    storage = FaultyStorage(query.store(FIRST), once("download", f"delta/{5:020}", FAULTS[fault].fault))
    verdict = verify_store(FIRST, storage, lambda: query.newest[FIRST])
    (finding,) = verdict.findings
    assert (finding.kind, finding.versions) == ("storage", ())
    assert "was read wrongly once" in finding.problem
    assert verdict.restorable == verify_store(FIRST, query.store(FIRST), lambda: None).restorable


def test_a_full_directory_for_temporary_files_is_named_as_such(query, monkeypatch, capsys):
    storage = FaultyStorage(query.store(FIRST))

    def fill(operation, path):
        if operation == "download":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    storage.fault = fill
    monkeypatch.setattr(Query, "storage", lambda self, key: storage)
    assert main(["verify", str(query.root)]) == ExitCode.RETRY
    said = capsys.readouterr().err
    assert "is full: No space left on device" in said and "TMPDIR" in said
    assert str(query.root) not in said


def test_a_directory_for_temporary_files_that_cannot_be_made_is_named_as_such(query, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(query.root / "absent"))
    assert main(["verify", str(query.root)]) == ExitCode.RETRY
    said = capsys.readouterr().err
    assert "cannot make a directory for temporary files" in said and "set TMPDIR" in said


def test_a_storage_that_fails_is_not_called_damaged(query, monkeypatch, capsys):
    storage = FaultyStorage(query.store(FIRST))

    def refuse(operation, path):
        if operation == "download" and f"{5:020}" in path:
            raise StorageError("the storage refused", file=path)

    storage.fault = refuse
    monkeypatch.setattr(Query, "storage", lambda self, key: storage)
    assert main(["verify", str(query.root), "--json"]) == ExitCode.RETRY
    (store,) = json.loads(capsys.readouterr().out)["stores"]
    assert {problem["kind"] for problem in store["findings"]} == {"storage"}
    next(path for path in query.files(FIRST) if path.name.startswith(f"{4:020}_")).write_bytes(b"damaged")
    assert main(["verify", str(query.root)]) == ExitCode.PROBLEM
