"""A cleaner of temporary files removes local files of a query that runs: its results stay right."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from queries.session_settings import PREFIX
from queries.small.flow import Flow

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

BATCHES = [[(f"key{key}", number) for key in range(number % 3, 60)] for number in range(8)]


def all_files(local: Path) -> None:
    """Remove every file, and no directory, as a cleaner that goes by age does."""
    files = [path for path in local.rglob("*") if path.is_file()]
    assert files, "there is nothing to remove"
    for path in files:
        path.unlink(missing_ok=True)


def all_directories(local: Path) -> None:
    """Remove everything in the directory."""
    assert list(local.iterdir()), "there is nothing to remove"
    for path in local.iterdir():
        shutil.rmtree(path, ignore_errors=True)


def the_socket(local: Path) -> None:
    """Remove the sockets of the agents, with their directories."""
    sockets = _sockets()
    assert sockets, "no agent listens"
    for path in sockets:
        shutil.rmtree(path.parent, ignore_errors=True)


def _sockets() -> list[Path]:
    """Return the sockets that agents of this test's JVM listen on."""
    inodes = set()
    for process in _family():
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            try:
                inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
            except OSError:  # it is closed
                continue
    listed = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    found = {Path(words[7]) for words in listed if len(words) > 7 and words[6] in inodes}
    return [path for path in found if path.parent.name.startswith("state-store-")]


def _family() -> list[int]:
    """Return this process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended
                continue
    family = [os.getpid()]
    for process in family:
        family += [child for child, parent in parents.items() if parent == process]
    return family


@pytest.mark.parametrize("clean", [all_files, all_directories, the_socket])
def test_a_query_goes_on(spark, provider: str, tmp_path: Path, clean: Callable[[Path], None]) -> None:
    if provider != "incremental":
        pytest.skip("Spark's own stores have other local files")
    local = tmp_path / "local"
    options = {"incremental.localDir": str(local), "incremental.fullAfterDeltas": "3"}
    flow = Flow(spark, tmp_path / "flow", **{PREFIX + key: value for key, value in options.items()})
    expected: dict[str, tuple[int, int]] = {}

    def compare_and_clean(frame, batch_id: int) -> None:
        for key, value in BATCHES[batch_id]:
            count, total = expected.get(key, (0, 0))
            expected[key] = (count + 1, total + value)
        found = {row["key"]: (row["n"], row["total"]) for row in frame.collect()}
        assert found == {key: expected[key] for key, _ in BATCHES[batch_id]}
        if batch_id in (1, 4):
            clean(local)

    flow.run(*BATCHES[:6], sink=compare_and_clean)
    clean(local)
    flow.run(*BATCHES[6:], sink=compare_and_clean)
    assert {key: tuple(row.values()) for key, row in flow.state_of_keys().items()} == expected
