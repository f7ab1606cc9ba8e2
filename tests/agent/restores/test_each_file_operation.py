"""Each operation of an agent on a local file fails in turn: nothing is left, and the next call goes on.

Python reports every operation on a path to its audit hooks before the operation runs, whichever module calls
it. So an operation that is new in the code is failed, too.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.harness import InProcess, Job, contents, rows_of
from agent.lazy.remote_storage import FailingStorage, five_versions
from state_store.errors import StateStoreError

OPERATIONS = {
    "open",
    "os.link",
    "os.listdir",
    "os.mkdir",
    "os.rename",
    "os.scandir",
    "os.truncate",
    "os.utime",
}
"""Operations that a disk refuses. Removals are left out: a removal that fails is repeated by a later one."""


class Refusals:
    """Refuse the n-th of the operations on paths below `root`."""

    root: Path | None = None
    left = 0
    refused = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.root is None or event not in OPERATIONS:
            return
        paths = [argument for argument in arguments[:2] if isinstance(argument, (str, bytes, Path))]
        if not any(str(path).startswith(str(self.root)) for path in paths):
            return
        self.left -= 1
        if self.left == -1:
            self.refused = f"{event} {paths}"
            raise OSError(errno.EIO, "Input/output error", str(paths[0]))


REFUSALS = Refusals()
sys.addaudithook(REFUSALS)


def refused(root: Path, uses: int, action: Callable[[], object]) -> str:
    """Run an action whose operation after `uses` others is refused.

    Returns the operation; empty if there are not so many. The action may fail or do without the operation.
    """
    REFUSALS.left, REFUSALS.refused, REFUSALS.root = uses, "", root
    try:
        action()
    except (OSError, StateStoreError):
        assert REFUSALS.refused, "the action fails, though no operation was refused"
    finally:
        REFUSALS.root = None
    return REFUSALS.refused


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return five_versions(tmp_path_factory.mktemp("written"), 200_000)


def bases(job: Job) -> list[Path]:
    return list(Path(job.opened["incoming"]).parent.glob("base-*"))


@pytest.mark.tier("more")
@pytest.mark.parametrize("mode", ["eager", "lazy", "pages"])
def test_nothing_is_left_of_a_restore_in_which_any_operation_fails(
    written: Job, tmp_path: Path, mode: str
) -> None:
    options = {"restoreMode": "eager" if mode == "eager" else "lazy"}
    if mode == "pages":
        options["localDiskLimit"] = "1m"
    uses, seen = 0, ""
    while uses == 0 or seen:
        place = tmp_path / f"reader-{uses}"
        client = InProcess(place) if mode == "eager" else FailingStorage(place)
        job = Job(client, written.location, **options)
        job.versions = dict(written.versions)
        answers: list[Any] = []
        seen = refused(place, uses, lambda: answers.append(job.restore_by_blocks(5)))  # noqa: B023
        assert len(bases(job)) == len(answers), f"'{seen}' leaves bases"
        answer = job.restore_by_blocks(5)
        if mode == "eager":
            assert rows_of(answer) == job.state
        job.close()
        assert not bases(job), f"'{seen}' leaves bases after the end"
        uses += 1
    assert bool(answers[0]["sparse"]) == (mode != "eager")
    assert uses > 10, f"only {uses} operations"


@pytest.mark.tier("more")
@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_nothing_is_left_of_a_merge_in_which_any_operation_fails(tmp_path: Path, kind: str) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", maxDeltas="1000")
    root = Path(job.opened["incoming"]).parent
    uses, seen = 0, ""
    while uses == 0 or seen:
        job.commit({b"\0\0%d" % uses: b"value"})
        before = set(bases(job))
        made: list[Any] = []
        seen = refused(root, uses, lambda: made.append(job.merge(kind)))  # noqa: B023
        assert len(set(bases(job)) - before) <= len(made), f"'{seen}' leaves bases"
        if not made:
            made.append(job.merge(kind))
        assert contents(made[0]["directory"]) == job.state, seen
        uses += 1
    assert uses > 5, f"only {uses} operations"


def test_a_commit_in_which_any_operation_fails_is_repeated(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    uses, seen = 0, ""
    while uses == 0 or seen:
        state = dict(job.state)
        seen = refused(tmp_path, uses, lambda: job.commit({b"\0\0%d" % uses: b"value"}))  # noqa: B023
        if job.state != state | {b"\0\0%d" % uses: b"value"}:
            job.commit({b"\0\0%d" % uses: b"value"})
        uses += 1
    other = Job(InProcess(tmp_path / "reader"), tmp_path / "state")
    other.versions = dict(job.versions)
    assert rows_of(other.restore(job.version)) == job.state
    assert uses > 3, f"only {uses} operations"
