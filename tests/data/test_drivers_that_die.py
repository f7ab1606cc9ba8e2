"""A driver that dies after any step of a job leaves what the same command makes a whole checkpoint of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint
from running.running_query import RunningQuery

import state_store
from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.rewriting import beside
from state_store.data.dataset.rewriting import copying as module
from state_store.data.jobs import Threads

JOIN = Path(__file__).resolve().parents[1] / "golden" / "release-0.2.0"


class Elsewhere(Threads):
    """Tasks of a job, one after the other, in this process."""

    are_elsewhere = True


class Killed(BaseException):
    """The end of the driver's process: nothing that it would do afterwards is done."""


@pytest.fixture
def by_spark(monkeypatch):
    monkeypatch.setattr(module, "workers", lambda spark, runtime: Elsewhere(runtime))


def rows(place: Path, store: str | None) -> list[dict]:
    with state_store.open(place, store=store) as state:
        return sorted(state.to_arrow().drop_columns("partition_id").to_pylist(), key=repr)


def deltas(place: Path) -> list[str]:
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("delta/*.sst"))


class Driver:
    """A driver that is killed before the step of its own that has a number: a file written or removed."""

    def __init__(self, monkeypatch, dies_at: int) -> None:
        self.steps: list[str] = []
        for name in ("write", "delete", "delete_directory"):
            monkeypatch.setattr(LocalStorage, name, self._counted(getattr(LocalStorage, name), dies_at))

    def _counted(self, step, dies_at: int):
        def counted(storage, path, *given, **named):
            if len(self.steps) > dies_at:
                raise Killed
            self.steps.append(path)
            if len(self.steps) > dies_at:
                raise Killed
            return step(storage, path, *given, **named)

        return counted


def check_each_death(source: Path, root: Path, monkeypatch, store: str | None) -> None:
    """Let a driver die before each step after the last of its tasks; the same command ends its work."""
    expected = rows(source, store)
    with monkeypatch.context() as patches:
        undisturbed = Driver(patches, 1_000_000)
        state_store.repartition(source, root / "whole", 2, spark=object())
    last_of_tasks = max(number for number, path in enumerate(undisturbed.steps) if path.endswith(".json"))
    for step in range(last_of_tasks, len(undisturbed.steps)):
        target = root / f"target-{step}"
        with monkeypatch.context() as patches, pytest.raises(Killed):
            Driver(patches, step)
            state_store.repartition(source, target, 2, spark=object())
        if (target / MARKER).exists():
            state_store.repartition(source, target, 2, spark=object())
        assert rows(target, store) == expected, undisturbed.steps[step]
        assert len(deltas(target)) == len(deltas(root / "whole"))


def test_the_same_command_ends_what_a_driver_began_that_died(by_spark, tmp_path, monkeypatch):
    check_each_death(checkpoint("flights", tmp_path), tmp_path, monkeypatch, None)


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_so_it_does_with_a_join_in_both_formats(form, by_spark, tmp_path, monkeypatch):
    check_each_death(shutil.copytree(JOIN / form, tmp_path / form), tmp_path, monkeypatch, "left")


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_the_end_of_a_repartition_beside_a_query_is_made_again(form, tmp_path, monkeypatch):
    source = shutil.copytree(JOIN / form, tmp_path / form)
    query = RunningQuery(source)
    state_store.repartition(source, tmp_path / "begun", 2, running=True)
    query.batch()
    expected = rows(source, "left")
    shutil.copytree(tmp_path / "begun", tmp_path / "whole")
    with monkeypatch.context() as patches:
        patches.setattr(beside, "_PIECES", 1)
        undisturbed = Driver(patches, 1_000_000)
        state_store.repartition(source, tmp_path / "whole", 2)
    files = len(list((tmp_path / "whole").rglob("*.*")))
    for step in range(0, len(undisturbed.steps), 3):
        target = shutil.copytree(tmp_path / "begun", tmp_path / f"target-{step}")
        with monkeypatch.context() as patches, pytest.raises(Killed):
            patches.setattr(beside, "_PIECES", 1)
            Driver(patches, step)
            state_store.repartition(source, target, 2)
        if (target / MARKER).exists():
            state_store.repartition(source, target, 2)
        assert rows(target, "left") == expected, undisturbed.steps[step]
        left_over = list(target.rglob("lease/*.json"))
        assert len(list(target.rglob("*.*"))) - len(left_over) == files, undisturbed.steps[step]
        assert state_store.verify(target, leave_result=False).ok
