"""Failures of a task of a Spark job: which Spark is to repeat, which end the job, which are a result."""

from __future__ import annotations

import pickle
from contextlib import suppress
from types import SimpleNamespace

import pytest

from state_store import __version__
from state_store.core.runtime import SYSTEM
from state_store.data import jobs
from state_store.data.maintenance.verification import failed_store
from state_store.data.query import StoreKey
from state_store.errors import BusyError, DamagedError, LocalDiskError, StateStoreError, StorageError

ATTEMPTS = 3
KEY = StoreKey(0, 4, "default")
GROUP, POOL, TAGS = "spark.jobGroup.id", "spark.scheduler.pool", "spark.job.tags"


class Reports:
    def __init__(self) -> None:
        self.added: list = []

    def add(self, reports: list) -> None:
        self.added += reports


def tried(monkeypatch, error: Exception, attempt: int, otherwise=None) -> tuple[object, list]:
    """Return the result of an attempt at a task that fails, and what it reports."""

    def fail(item, meter):
        raise error

    reports = Reports()
    monkeypatch.setattr(jobs, "_attempt", lambda: attempt)
    task = jobs._Task(fail, otherwise, reports, __version__, ATTEMPTS)
    return task(KEY), reports.added


@pytest.mark.parametrize("otherwise", [None, lambda key, error: (key, error.message)])
@pytest.mark.parametrize("error", [StorageError("slow down"), LocalDiskError("full"), OSError(5, "io")])
def test_an_error_that_another_attempt_may_not_meet_is_repeated(monkeypatch, error, otherwise):
    for attempt in range(ATTEMPTS - 1):
        with pytest.raises(type(error)):
            tried(monkeypatch, error, attempt, otherwise)
    result, (report,) = tried(monkeypatch, error, ATTEMPTS - 1, otherwise)
    if otherwise is None:
        assert result.kind == report["kind"] == "storage"
    else:
        assert result == (KEY, report_of(error)) and report == (0, 0, 0)


def report_of(error: Exception) -> str:
    return jobs.as_store_error(error).message


def test_damage_is_a_result_at_once_if_the_tool_goes_on(monkeypatch):
    result, (report,) = tried(monkeypatch, DamagedError("bad"), 0, lambda key, error: error.kind)
    assert result == "damaged" and report == (0, 0, 0)
    result, (report,) = tried(monkeypatch, DamagedError("bad"), 0)
    assert result.message == report["message"] == "bad"


@pytest.mark.parametrize("error", [DamagedError("bad"), LocalDiskError("full")])
def test_only_a_failure_of_checkpoint_storage_is_a_finding(monkeypatch, error):
    assert failed_store(KEY, StorageError("slow down")).kind == "storage"
    with pytest.raises(StateStoreError) as raised:
        failed_store(KEY, error)
    assert raised.value is error
    result, (report,) = tried(monkeypatch, error, ATTEMPTS - 1, failed_store)
    assert result.message == report["message"] == error.message


class Properties(dict):
    """The properties of a thread of the JVM."""

    setProperty = dict.__setitem__
    getProperty = dict.get

    def clone(self):
        return Properties(self)


class Context:
    """A driver's context, which runs the tasks of a job here and loses what they report."""

    master = "local[2]"

    def __init__(self) -> None:
        self.properties = Properties({GROUP: "mine", POOL: "tools"})
        self.of_job = Properties()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def accumulator(self, value, param):
        return Reports()

    def getLocalProperties(self):
        return self.properties

    def setLocalProperties(self, properties):
        self.properties = properties

    def addJobTag(self, tag):
        self.properties[TAGS] = tag

    def parallelize(self, items, slices):
        self.items = items
        return self

    def map(self, task):
        self.results = map(pickle.loads, map(pickle.dumps, map(task, self.items)))
        return self

    def collect(self):
        self.of_job = Properties(self.properties)
        return list(self.results)

    def statusTracker(self):
        return SimpleNamespace(getJobIdsForTag=lambda tag: [], getJobInfo=None, getStageInfo=None)


def doubled(item, meter):
    if item == 3:
        raise DamagedError("3 is bad")
    return 2 * item


def test_a_failure_is_raised_though_the_driver_lost_its_report():
    tasks = jobs.SparkTasks(Context(), SYSTEM)
    assert tasks.run(doubled, [1, 2], at_once=1) == [2, 4]
    with pytest.raises(DamagedError, match="3 is bad"):
        tasks.run(doubled, [1, 2, 3], at_once=1)


@pytest.mark.parametrize("items", [[1], [3]])
def test_a_job_belongs_to_the_callers_group_and_pool_whose_properties_stay(items):
    context = Context()
    callers = context.properties
    with suppress(DamagedError):
        jobs.SparkTasks(context, SYSTEM).run(doubled, items, at_once=1)
    tag = context.of_job.pop(TAGS)
    described = {jobs._DESCRIPTION: "state-store", jobs._INTERRUPTS: "true"}
    assert context.of_job == {GROUP: "mine", POOL: "tools", **described} and tag.startswith("state-store-")
    assert context.properties is callers and callers == {GROUP: "mine", POOL: "tools"}


def test_threads_take_the_same_results():
    def work(item, meter):
        if item % 2:
            raise StorageError(f"{item} fails")
        return item

    found = jobs.Threads().run(work, [0, 1, 2], at_once=1, otherwise=lambda item, error: error.message)
    assert found == [0, "1 fails", 2]
    with pytest.raises(StorageError, match="1 fails"):
        jobs.Threads().run(work, [0, 1, 2], at_once=1)


def shuffled(tasks: list[list[tuple[int, tuple[int, list]]]], partitions: int) -> dict[int, list]:
    """Return the rows that come to each partition from tasks that send rows."""
    rows_of: dict[int, list] = {number: [] for number in range(partitions)}
    for source, pairs in enumerate(tasks):
        for partition, found in jobs._counted(partitions, source, iter(pairs)):
            rows_of[partition].append(found)
    return rows_of


def test_rows_of_a_shuffle_are_taken_only_if_all_came():
    """Spark ends the rows of a Python task early if it cannot fetch the others."""
    tasks = [[(0, (0, ["a", "b"])), (1, (1, ["c"]))], [(0, (1, ["d"]))], []]
    rows_of = shuffled(tasks, 3)
    expected = {0: [(0, ["a", "b"]), (1, ["d"])], 1: [(1, ["c"])], 2: []}
    for partition, found in rows_of.items():
        assert list(jobs.all_rows(iter(found), partition, len(tasks))) == expected[partition]
        for some in range(len(found)):
            with pytest.raises(BusyError, match=f"rows came to partition {partition} from"):
                list(jobs.all_rows(iter(found[:some]), partition, len(tasks)))
    with pytest.raises(BusyError, match="1 rows came to partition 0 from 3 of 3 tasks"):
        list(jobs.all_rows((pair for pair in rows_of[0] if pair != (0, ["a", "b"])), 0, len(tasks)))
    assert BusyError("").kind in jobs._RETRIED


def test_an_error_in_the_place_of_rows_is_raised():
    rows_of = shuffled([[(0, (jobs._FAILED, [DamagedError("bad row").to_json()]))]], 1)
    with pytest.raises(DamagedError, match="bad row"):
        list(jobs.all_rows(iter(rows_of[0]), 0, 1))
