"""Tasks that fail, are killed with their executor, run twice or end the job: the result is as without.

`troubled_tasks.py` is the application, on a cluster of two executors. Files are compared by their numbers in
each directory, so that what a task has left is seen, of both checkpoint formats.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import state_store
from state_store.data.migration import migrate

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"
SIDES = ("left", "right")
TROUBLED, ALL = ("troubled", "twice", "again"), ("alone", "troubled", "twice", "again")
GO_ON = ("repartition", "cp", "migrate")
"""Tools that leave what they have done, for the same command, when they fail."""

BOTH, FORMAT_2 = ("ids", "no-ids"), ("ids",)


def others(*tools: str) -> list:
    """Return tools that the tier `long` adds: an application takes a minute of CPU."""
    return [pytest.param(tool, marks=pytest.mark.tier("long")) for tool in tools]


class Application:
    """The application, which runs for each tool once, and its results below a directory."""

    def __init__(self, root: Path, checkout: Path, forms: tuple[str, ...], partitions: int) -> None:
        self._root = root
        self._checkout = checkout
        for form in forms:
            if partitions == 1:
                shutil.copytree(JOIN / form, root / form)
            else:
                state_store.repartition(JOIN / form, root / form, partitions)
        self._outcomes: dict[str, dict] = {}

    def outcome(self, tool: str, form: str) -> dict:
        """Return the results of a tool on a checkpoint."""
        if f"{tool}/{form}" not in self._outcomes:
            self._run(tool)
        return self._outcomes[f"{tool}/{form}"]

    def _run(self, tool: str) -> None:
        paths = (self._checkout, self._checkout / "tests", Path(__file__).parent)
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("troubled_tasks.py"), self._root, tool],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        assert lines, done.stdout[-2000:] + done.stderr[-4000:]
        self._outcomes.update(json.loads(lines[0].removeprefix("FOUND ")))

    def source(self, form: str) -> Path:
        return self._root / form

    def place(self, tool: str, form: str, how: str) -> Path:
        return self._root / "of" / tool / form / how


@pytest.fixture(scope="module")
def stateful(tmp_path_factory, checkout) -> Application:
    """Tools on checkpoints of both formats."""
    return Application(tmp_path_factory.mktemp("stateful"), checkout, BOTH, 3)


@pytest.fixture(scope="module")
def with_ids(tmp_path_factory, checkout) -> Application:
    """Tools that only read state, or mend it, on a checkpoint of format 2."""
    return Application(tmp_path_factory.mktemp("with-ids"), checkout, FORMAT_2, 3)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory, checkout) -> Application:
    """Migrations: to Spark's RocksDB store of one format, to this store of the other."""
    return Application(tmp_path_factory.mktemp("migrated"), checkout, BOTH, 1)


def check_outcome(application: Application, tool: str, form: str) -> None:
    """Check that all trouble came, and that results and files are those of a process."""
    found = application.outcome(tool, form)
    troubles = found["came"]
    assert troubles["troubled"].keys() == {"failed-before", "failed-after", "killed-before", "killed-after"}
    assert troubles["again"].keys() == {"damaged-after"}
    assert troubles["twice"] == {"copied": ""}, troubles["twice"].get("failed-copy")
    assert [found[how] for how in TROUBLED] == [found["alone"]] * 3
    message, stays = found["said"]
    assert message.startswith("a task meets damage")
    assert ("same command goes on" in message) == (tool in GO_ON)
    assert stays == (tool not in ("import", "export"))


def files(place: Path) -> Counter[str]:
    """Return the number of files by their directory and the end of their name, without Hadoop's checksums."""
    paths = (path.relative_to(place) for path in place.rglob("*") if path.is_file())
    return Counter(f"{path.parent}/*{path.suffix}" for path in paths if path.suffix != ".crc")


def rows(checkpoint: Path) -> Iterator[list]:
    for side in SIDES:
        with state_store.open(checkpoint, store=side) as state:
            yield sorted(state.to_arrow().drop_columns("partition_id").to_pylist(), key=repr)


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("tool", ["repartition", *others("import", "cp", "full")])
def test_state_is_written_once_whatever_happens_to_tasks(stateful, tool, form):
    check_outcome(stateful, tool, form)
    expected = list(rows(stateful.source(form)))
    assert all(expected)
    alone = files(stateful.place(tool, form, "alone"))
    for how in ALL:
        place = stateful.place(tool, form, how)
        assert list(rows(place)) == expected, how
        if tool != "full":  # a task that is repeated makes another full checkpoint
            assert files(place) == alone, how
            assert not list(place.rglob("lease/*.json"))
        assert state_store.verify(place, all_versions=True, leave_result=False).ok


@pytest.mark.parametrize("tool", others("export", "verify", "repair"))
def test_state_is_read_whatever_happens_to_tasks(with_ids, tool):
    check_outcome(with_ids, tool, "ids")
    alone = files(with_ids.place(tool, "ids", "alone"))
    for how in TROUBLED:
        assert files(with_ids.place(tool, "ids", how)) == alone, how


@pytest.mark.tier("long")
@pytest.mark.parametrize("form", BOTH)
def test_state_is_migrated_once_whatever_happens_to_tasks(migrated, form, tmp_path):
    check_outcome(migrated, "migrate", form)
    expected = list(rows(migrated.source(form)))
    alone = files(migrated.place("migrate", form, "alone"))
    for how in TROUBLED:
        place = migrated.place("migrate", form, how)
        assert files(place) == alone, how
        if form == "ids":
            migrate(place, tmp_path / how, "incremental")
            place = tmp_path / how
        assert list(rows(place)) == expected, how
        assert state_store.verify(place, leave_result=False).ok
