"""Numbers of requests that checkpoint storage gets for each call, as docs/operations.md has them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from faults import FaultyStorage
from runtimes import AdjustedRuntime

from agent.harness import InProcess, Job
from state_store.agent.calls import Calls
from state_store.core.engine.database import DatabaseSettings
from state_store.core.storage.local import LocalStorage

KINDS = {
    "LIST": ("list",),
    "GET": ("read", "download", "exists"),
    "PUT": ("write", "upload"),
    "DELETE": ("delete",),
}
HEADER = "| call | LIST | GET | PUT | DELETE |"


class Recorded(InProcess):
    """An agent that notes what it asks of storage that is not of its machine."""

    def __init__(self, directory: Path) -> None:
        self.storages: list[FaultyStorage] = []
        self.calls = Calls(
            directory,
            settings=lambda options: DatabaseSettings(
                threads=1, size_amplification_percent=1000, file_bytes=50_000
            ),
            open_storage=lambda uri, jvm: self._opened(uri),
            runtime=AdjustedRuntime(wall_ms=None),
        )

    def _opened(self, uri: str) -> FaultyStorage:
        self.storages.append(FaultyStorage(LocalStorage(uri)))
        return self.storages[-1]

    def took(self) -> list[tuple[str, str]]:
        """Return the requests since the last question: operation and path."""
        asked = [call for storage in self.storages for call in storage.calls]
        for storage in self.storages:
            storage.calls.clear()
        return asked


@pytest.fixture(scope="module")
def page(checkout: Path) -> dict[str, dict[str, str]]:
    """Return the cells of the table, by call and kind of request."""
    lines = iter((checkout / "docs" / "operations.md").read_text("utf-8").splitlines())
    assert HEADER in lines
    next(lines)
    rows = {}
    for line in iter(lambda: next(lines), ""):
        call, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[call] = {kind: cells[number] for number, kind in enumerate(KINDS)}
    return rows


@pytest.fixture(scope="module", params=[1, 2])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return Counts(request.param, tmp_path_factory.mktemp("requests")).live()


class Counts:
    """Return the requests of a store of that checkpoint format in each call of a life that has all calls."""

    def __init__(self, format_: int, directory: Path) -> None:
        self.by_call: dict[str, list[tuple[str, str]]] = {}
        self._format = format_
        self._directory = directory
        self._job = self._opened("first")

    def _opened(self, name: str) -> Job:
        client = Recorded(self._directory / name)
        return Job(client, self._directory / "state", ids=self._format == 2, retain=10)

    def live(self) -> Counts:
        job = self._job
        job.commit({b"\0\0%d" % row: os.urandom(50) for row in range(5000)})
        self._commits(20)
        job.merge("full")
        self._note("full merge")
        job.cleanup()
        self._note("clean-up, the first after an open or a restore, nothing due")
        self._commits(5)
        job.cleanup()
        self._note("clean-up, nothing due")
        job.merge("incremental")
        self._note("incremental merge")
        self._commits(8)
        job.cleanup()
        self._note("clean-up")
        job.restore_by_blocks()
        self._note("restore, all files local")
        self._job = self._opened("second")
        self._job.versions = job.versions
        self._job.restore_by_blocks(job.version)
        self._note("restore")
        if self._format == 1:
            self._job.look()
            self._note("begin of an attempt in memory, checkpoint format 1")
        self._commits(1)
        return self

    def _commits(self, count: int) -> None:
        self._job.client.took()
        for _ in range(count):
            self._job.commit({b"\0\0%d" % self._job.version: b"value"})
            self._note("commit, checkpoint format 1" if self._format == 1 else "commit")

    def _note(self, call: str) -> None:
        asked = self._job.client.took()
        assert Counter(map(kind_of, asked)) == Counter(map(kind_of, self.by_call.setdefault(call, asked)))


def kind_of(request: tuple[str, str]) -> str:
    return next(kind for kind, operations in KINDS.items() if request[0] in operations)


def terms_of(asked: list[tuple[str, str]]) -> Mapping[str, int]:
    """Return the words of the page for the requests of a call."""

    def number(operations: tuple[str, ...], *directories: str) -> int:
        return sum(operation in operations and path.startswith(directories) for operation, path in asked)

    return {
        "new files": number(("upload",), "shared/"),
        "files": number(("download",), "shared/", "delta/"),
        "archives": number(("read",), "snapshot/"),
        "deleted files": number(("delete",), "shared/", "delta/", "snapshot/"),
    }


def value_of(cell: str, terms: Mapping[str, int]) -> int:
    parts = [part.strip() for part in cell.split("+")]
    return sum(int(part) if part.isdigit() else terms[part] for part in parts)


def test_the_page_has_what_each_call_asks(page: dict[str, dict[str, str]], counted: Counts) -> None:
    for call, asked in counted.by_call.items():
        numbers = Counter(map(kind_of, asked))
        terms = terms_of(asked)
        expected = {kind: value_of(cell, terms) for kind, cell in page[call].items()}
        assert {kind: numbers[kind] for kind in KINDS} == expected, f"{call}: {asked}"


def test_every_call_on_the_page_is_counted(page: dict[str, dict[str, str]], counted: Counts) -> None:
    is_format_1 = "commit, checkpoint format 1" in counted.by_call
    calls = {call for call in page if is_format_1 or "format 1" not in call}
    assert calls - {"commit"} <= counted.by_call.keys()


def test_the_words_stand_for_something(counted: Counts) -> None:
    by_call = {call: terms_of(asked) for call, asked in counted.by_call.items()}
    assert by_call["full merge"]["new files"] > 2
    assert by_call["incremental merge"]["new files"] >= 1
    assert by_call["clean-up"]["deleted files"] > 10
    assert by_call["restore"]["files"] > 10
    assert by_call["restore, all files local"]["files"] == 0
    archives = {call: terms["archives"] for call, terms in by_call.items() if terms["archives"]}
    assert archives == {
        "clean-up, the first after an open or a restore, nothing due": 1,
        "incremental merge": 1,
        "clean-up": 1,
        "restore, all files local": 2,
        "restore": 2,
    }
