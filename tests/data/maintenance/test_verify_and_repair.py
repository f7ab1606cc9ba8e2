"""`state_store.verify` and `state_store.repair`: the functions behind the commands of these names."""

from __future__ import annotations

import os
import time

import pytest
from query_directory import QueryDirectory, rows
from runtimes import AdjustedRuntime

import state_store
from state_store.core.storage.local import LocalStorage
from state_store.data.maintenance.repair import repair_store
from state_store.data.query import Query
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


DAY_S = 86_400


def crash_loop(query, ages_s):
    """Run the next batch again and again, as a query does whose sink is down; return the attempts by age.

    The deltas are as old as given, by their ages in seconds.
    """
    before = {path for key in query.keys for path in query.files(key)}
    by_age: dict[int, set] = {}
    for number, age_s in enumerate(ages_s):
        again = rows(100 + number, 5)
        if number:
            query.run_again(again)
        else:
            query.commit(again, logged=False)
        made = {path for key in query.keys for path in query.files(key)} - before
        for path in made:
            os.utime(path, (time.time() - age_s, time.time() - age_s))
        before |= made
        by_age[age_s] = made
    return by_age


@pytest.mark.parametrize("ids", [True, False])
def test_attempts_of_failed_runs_go_when_they_are_old(tmp_path, ids):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", ids=ids)
    for batch in range(3):
        query.commit(rows(batch * 10, 20))
    committed = {path for key in query.keys for path in query.files(key)}
    ages_s = [3 * DAY_S, 2 * DAY_S, 2 * DAY_S - 7200, 2 * DAY_S - 7800]
    attempts = crash_loop(query, ages_s)
    planned = state_store.repair(str(query.root), leaks_only=True)
    offered = {
        query.root / repair.key.path / step.file for repair in planned.repairs for step in repair.steps
    }
    last_run = attempts[ages_s[2]] | attempts[ages_s[3]]
    assert offered == attempts[ages_s[0]] | attempts[ages_s[1]]
    assert {step.why for repair in planned.repairs for step in repair.steps} == {
        "an attempt at version 4 of a run that failed: Spark never committed it"
    }
    state_store.repair(str(query.root), leaks_only=True, apply=True)
    assert {path for key in query.keys for path in query.files(key)} == committed | last_run
    assert state_store.verify(str(query.root)).ok


def test_attempts_that_may_still_be_committed_stay(query):
    attempts = crash_loop(query, [DAY_S - 600, DAY_S - 1200, 300])
    assert not state_store.repair(str(query.root), leaks_only=True).repairs[0].steps
    (first,) = (path for path in attempts[DAY_S - 600] if query.keys[0].path in str(path))
    repairs = state_store.repair(str(query.root), leaks_only=True, older_than="1h").repairs
    assert first.name in {step.file.rpartition("/")[2] for step in repairs[0].steps}


def test_a_clock_that_is_ahead_makes_no_attempt_old(query):
    """Attempts of hours, as a long batch makes them when its tasks are lost: Spark may take any."""
    attempts = crash_loop(query, [3 * 3600, 60])
    key = query.keys[0]
    ahead = AdjustedRuntime(wall_ms=lambda: (time.time() + 3 * DAY_S) * 1000)
    committed = Query.open(str(query.root)).committed()[key]
    storage = LocalStorage(query.root / key.path)
    repair_store(
        key,
        storage,
        lambda: committed,
        apply=True,
        older_than_ms=DAY_S * 1000,
        leaks_only=True,
        runtime=ahead,
    )
    assert all(path.exists() for made in attempts.values() for path in made)


def test_a_state_that_is_newer_than_the_log_of_commits_is_left_alone(query):
    """The log was put back from an older copy; snapshots are made of committed versions alone."""
    attempts = crash_loop(query, [3 * DAY_S, 2 * DAY_S])
    query.merge(query.keys[0], "full")
    first, second = state_store.repair(str(query.root), leaks_only=True).repairs
    assert not first.steps
    assert {step.file for step in second.steps} == {
        f"delta/{path.name}" for path in attempts[3 * DAY_S] if query.keys[1].path in str(path)
    }


def test_attempts_that_a_kept_one_builds_on_stay(query):
    """The newest attempt at version 4 was copied in an hour that is older than the first one's."""
    attempts = crash_loop(query, [4 * DAY_S, 5 * DAY_S])
    crash = crash_loop(query, [3 * DAY_S, 2 * DAY_S])
    planned = state_store.repair(str(query.root), leaks_only=True)
    offered = {step.file for repair in planned.repairs for step in repair.steps}
    assert offered == {f"delta/{path.name}" for path in crash[3 * DAY_S]}
    assert not offered & {f"delta/{path.name}" for path in attempts[5 * DAY_S]}


def test_the_attempt_that_counts_without_ids_of_spark_stays(tmp_path):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", ids=False)
    query.commit(rows(0, 20))
    crash_loop(query, [3 * DAY_S, 2 * DAY_S, 5 * DAY_S])
    planned = state_store.repair(str(query.root), leaks_only=True)
    offered = [step.file for repair in planned.repairs for step in repair.steps]
    assert len(offered) == 2 and all("_a0-" in file.partition("delta/")[2][20:25] for file in offered)


@pytest.mark.parametrize("age", ["59min", "old", 3, None])
def test_an_invalid_age_is_refused(query, age):
    with pytest.raises(OptionError, match=r"is not an age|is too young: 1h or more is needed") as refused:
        state_store.repair(str(query.root), older_than=age)
    assert refused.value.option == "older_than"
