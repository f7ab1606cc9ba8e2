"""The page that leads through a commit names files and functions that are there, and all that it passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from agent.harness import InProcess, Job, serve

from state_store.core.storage.hadoop import FileAnswer, FileRequest, HadoopStorage
from state_store.core.storage.local import LocalStorage

DATA_PLANE = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
ROOTS = {"data": DATA_PLANE, "control": "state_store"}
_ROW = re.compile(r"(?m)^\| (data|control) \| `([^`]+)` \| `(\w+)` \|")

TOOLS: Mapping[str, str] = {
    "agent/lazy/remote_bases.py": "the progress of lazy restores, for the answer",
    "core/codec.py": "JSON to values and back",
    "core/files/transfer.py": "a CRC-32",
    "core/files/workspace.py": "the copy that stays on this machine",
    "core/planning/cost.py": "the predicted time of a restore, for the answer",
    "core/runtime.py": "clocks",
    "core/storage/contract.py": "the check of a path",
}
"""Files of the control plane that a commit calls for one value or a copy: nobody reads them to follow it."""


def steps(checkout: Path) -> list[tuple[str, str, str]]:
    """Return plane, file and place of each step."""
    page = (checkout / "docs/architecture.md").read_text(encoding="utf-8")
    _, heading, section = page.partition("## A commit, file by file")
    assert heading
    return _ROW.findall(section.partition("\n## ")[0])


def is_defined(name: str, source: str) -> bool:
    return re.search(rf"\b(def|class|object) {name}\b", source) is not None


def test_each_step_is_in_its_file(checkout: Path) -> None:
    for plane, file, name in steps(checkout):
        source = (checkout / ROOTS[plane] / file).read_text(encoding="utf-8")
        assert is_defined(name, source), f"{file} has no {name}"


def test_a_commit_passes_through_few_files(checkout: Path) -> None:
    """A newcomer has to read them all: one more is one that has to be worth it."""
    assert 10 < len({(plane, file) for plane, file, _ in steps(checkout)}) <= 14


class Jvm:
    """The JVM as it answers file requests, from a directory; it is not part of what is followed."""

    def __init__(self, directory: Path) -> None:
        self._storage = LocalStorage(directory)

    def fs(self, operation: FileRequest, body: bytes) -> tuple[FileAnswer, bytes]:
        following = sys.getprofile()
        sys.setprofile(None)
        try:
            return serve(self._storage, dict(operation), body)
        finally:
            sys.setprofile(following)


def followed(job: Job, changes: dict[bytes, bytes | None], root: Path) -> set[str]:
    """Commit, and return the files below `root` of which a function was called for it in this thread."""
    call = {"op": "commit", "store": job.store, **job.write(changes)}
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        job.client.calls.handle(call).to_json()
    finally:
        sys.setprofile(None)
    return {Path(file).relative_to(root).as_posix() for file in files if file.startswith(f"{root}/")}


@pytest.mark.parametrize("ids", [True, False])
def test_the_files_of_the_control_plane_are_those_that_a_commit_calls(
    ids: bool, checkout: Path, tmp_path: Path
) -> None:
    def storage(uri: str) -> HadoopStorage:
        return HadoopStorage(uri, Jvm(tmp_path / "stored"))

    job = Job(InProcess(tmp_path / "local", storages=storage), "remote:/state", ids=ids)
    for number in range(3):
        job.commit({b"\0\0%d" % number: b"row"})
    called = followed(job, {b"\0\0last": b"row"}, checkout / "state_store")
    assert called - TOOLS.keys() == {file for plane, file, _ in steps(checkout) if plane == "control"}
    assert called >= TOOLS.keys()


@pytest.mark.parametrize(("name", "expected"), [("commit", True), ("comm", False), ("DeltaName", True)])
def test_a_name_is_found_as_a_whole(name: str, expected: bool) -> None:
    assert is_defined(name, "class DeltaName:\n    def commit(self): ...\n") is expected
