"""Files that a release wrote are read the same for ever, by this program and by a reader of the document."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from agent.harness import InProcess, Job, contents, rows_of

from golden.reader import read_version
from golden.write import batches, write
from state_store.core.checkpoint.stored_documents import FORMAT

HERE = Path(__file__).resolve().parent
FORMATS = sorted(HERE.glob("format-*"))
STORES = [(path, name) for path in FORMATS for name in ("ids", "no-ids")]


def expected(path: Path, name: str) -> list[tuple[int, str | None, dict[bytes, bytes]]]:
    versions = json.loads((path / "expected.json").read_text("utf-8"))[name]
    return [
        (
            version["version"],
            version["id"],
            {bytes.fromhex(key): bytes.fromhex(value) for key, value in version["rows"].items()},
        )
        for version in versions
    ]


def test_every_format_up_to_the_present_one_has_golden_files() -> None:
    assert [path.name for path in FORMATS] == [f"format-{number}" for number in range(1, FORMAT + 1)]
    for path, name in STORES:
        assert len(expected(path, name)) == len(batches())


@pytest.mark.parametrize(("path", "name"), STORES)
def test_this_program_reads_them(path: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(path / name, tmp_path / "state")
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", ids=name == "ids")
    for version, id_, rows in expected(path, name):
        answer = job.call("restore", version=version, id=id_)
        assert rows_of(answer) == rows
        assert answer["warnings"] == []


@pytest.mark.parametrize(("path", "name"), STORES)
def test_this_program_goes_on_from_them(path: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(path / name, tmp_path / "state")
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state", ids=name == "ids")
    version, id_, rows = expected(path, name)[-1]
    job.versions[version] = (id_, rows)
    job.restore(version)
    job.commit({b"\0\0new": b"1", b"\0\0list": None})
    assert contents(job.merge("incremental")["directory"]) == job.state
    assert contents(job.merge("full")["directory"]) == job.state
    fresh = Job(InProcess(tmp_path / "fresh"), tmp_path / "state", ids=name == "ids")
    fresh.versions[job.version] = (job.id, job.state)
    assert rows_of(fresh.restore(job.version)) == job.state


@pytest.mark.parametrize(("path", "name"), STORES)
def test_a_reader_of_the_document_reads_them(path: Path, name: str, tmp_path: Path) -> None:
    for version, id_, rows in expected(path, name):
        assert read_version(path / name, version, id_, tmp_path / str(version)) == rows


@pytest.mark.parametrize("name", ["ids", "no-ids"])
def test_a_reader_of_the_document_reads_what_is_written_today(name: str, tmp_path: Path) -> None:
    for written in write(tmp_path / "state", ids=name == "ids"):
        version, id_ = written["version"], written["id"]
        rows = read_version(tmp_path / "state", version, id_, tmp_path / f"read{version}")
        assert {key.hex(): value.hex() for key, value in rows.items()} == written["rows"]


def test_the_reader_knows_nothing_of_this_project() -> None:
    text = (HERE / "reader.py").read_text("utf-8")
    assert "state_store" not in text
