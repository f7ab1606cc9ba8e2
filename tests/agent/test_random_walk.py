"""Random histories of two executors on one store, with dicts as the model, over real files.

Either executor may commit, merge, clean up, roll back and restore; at times one goes on although the other
has taken the store over. After every step the agent's registry is what the files say, and every retained
version of the lineage that counts can be restored, exactly, by a third executor that has no local files.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.harness import InProcess, Job, contents
from state_store.core.deletion.lease import StoreContents
from state_store.core.storage.local import LocalStorage
from state_store.errors import ConflictError

RETAIN = 3
KEYS = st.integers(0, 12).map(lambda number: b"\0\0key%02d" % number)
VALUES = st.one_of(st.none(), st.binary(max_size=40))
CHANGES = st.dictionaries(KEYS, VALUES, max_size=8)
WRITERS = st.integers(0, 1)


class TwoExecutors(RuleBasedStateMachine):
    ids = True

    @initialize()
    def start(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.storage = LocalStorage(self.root / "state")
        self.jobs = [self.executor(f"local{number}") for number in range(2)]
        self.owner = 0
        self.floor = 1
        self.lineage: list[tuple[str | None, dict[bytes, bytes]]] = [(None, {})]

    def executor(self, name: str) -> Job:
        client = InProcess(self.root / name, max_runs=2)
        return Job(client, self.root / "state", ids=self.ids, retain=RETAIN)

    @property
    def newest(self) -> int:
        return len(self.lineage) - 1

    @property
    def oldest(self) -> int:
        """The oldest version that must be there: no clean-up has been entitled to it."""
        return min(self.newest, max(self.floor, self.newest - RETAIN + 1))

    def clean(self, job: Job) -> None:
        self.floor = max(self.floor, job.version - RETAIN + 1)
        job.cleanup()

    @rule(changes=CHANGES)
    def commit(self, changes: dict[bytes, bytes | None]) -> None:
        job = self.jobs[self.owner]
        try:
            job.commit(changes)
        except ConflictError:  # the other executor was there first: Spark runs the task again
            assert not self.ids
            job.look()
            job.commit(changes)
        self.lineage = [*self.lineage[: job.version], (job.id, job.state)]

    @precondition(lambda self: self.newest > 0)
    @rule(kind=st.sampled_from(["ingest", "incremental", "full"]))
    def merge(self, kind: str) -> None:
        job = self.jobs[self.owner]
        answer = job.merge(kind)
        if "skipped" not in answer:
            assert contents(answer["directory"]) == job.state
            job.call("release", directory=answer["directory"])

    @precondition(lambda self: self.newest > 0)
    @rule()
    def cleanup(self) -> None:
        self.clean(self.jobs[self.owner])

    @precondition(lambda self: self.newest > 0)
    @rule()
    def move(self) -> None:
        """The other executor takes over where this one stopped."""
        self.owner = 1 - self.owner
        self.load(self.newest)

    @precondition(lambda self: self.newest > 1)
    @rule(back=st.integers(1, 2))
    def roll_back(self, back: int) -> None:
        """A batch runs again, in either executor: its earlier commit no longer counts."""
        version = max(self.oldest, self.newest - back)
        self.load(version)
        self.lineage = self.lineage[: version + 1]

    @precondition(lambda self: 0 < self.jobs[1 - self.owner].version <= self.newest)
    @rule(changes=CHANGES, then=st.sampled_from(["nothing", "incremental", "full", "cleanup"]))
    def zombie(self, changes: dict[bytes, bytes | None], then: str) -> None:
        """The executor that lost the store finishes its batch on what it has; that may fail, never harm."""
        job = self.jobs[1 - self.owner]
        try:
            job.commit(changes)
            if then == "cleanup":
                self.clean(job)
            elif then != "nothing":
                job.merge(then)
        except Exception as error:
            assert getattr(error, "kind", None) in (["missing"] if self.ids else ["missing", "conflict"]), (
                error
            )

    def load(self, version: int) -> None:
        job = self.jobs[self.owner]
        job.versions[version] = self.lineage[version]
        assert job.rows(version) == self.lineage[version][1]

    @invariant()
    def the_registry_is_what_the_files_say(self) -> None:
        if not hasattr(self, "jobs") or self.newest == 0:
            return
        registry = self.jobs[self.owner].open_store.head.registry
        if registry is not None:
            floor = min(version.number for version in registry.checkpoints())
            rebuilt = StoreContents.read(self.storage).registry(floor)
            running = {  # older versions may be gone by a clean-up of the other executor
                at: paths(registry, at) for at in registry.checkpoints() if at.number >= self.floor
            }
            assert running.items() <= {at: paths(rebuilt, at) for at in rebuilt.checkpoints()}.items()

    @invariant()
    def every_retained_version_can_be_restored(self) -> None:
        if not hasattr(self, "jobs") or self.newest == 0:
            return
        fresh = self.executor("fresh")
        for version in {self.oldest, self.newest}:
            fresh.versions[version] = self.lineage[version]
            assert fresh.rows(version) == self.lineage[version][1]
        fresh.call("close")
        shutil.rmtree(self.root / "fresh")

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)


class TwoExecutorsWithoutIds(TwoExecutors):
    """Checkpoint format 1: versions are asked for by their numbers alone."""

    ids = False


def paths(registry: object, version: object) -> set[str]:
    return {file.path for file in registry.files(version)}


WALK = settings(
    max_examples=6,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
LONG_WALK = settings(WALK, max_examples=60)
TestTwoExecutors = TwoExecutors.TestCase
TestTwoExecutors.settings = WALK
TestTwoExecutorsWithoutIds = TwoExecutorsWithoutIds.TestCase
TestTwoExecutorsWithoutIds.settings = WALK


@pytest.mark.tier("long")
@pytest.mark.parametrize("machine", [TwoExecutors, TwoExecutorsWithoutIds])
def test_many_walks_agree_with_the_model(machine: type[TwoExecutors]) -> None:
    run_state_machine_as_test(machine, settings=LONG_WALK)
