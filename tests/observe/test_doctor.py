"""`state-store doctor`: words for people, JSON for programs, and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from query_directory import QueryDirectory

from state_store.cli.main import main
from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.observe.doctor import examine


def test_a_healthy_query_is_fine(grown: QueryDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", grown.location]) == 0
    assert capsys.readouterr().out.startswith("Fine: batch 11 was committed last; 2 stores have ")


def test_a_restore_above_the_objective_is_a_finding(
    grown: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", grown.location, "--restore-objective", "1ms", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    (finding,) = shown["verdict"]["findings"]
    assert finding["code"] == "restore-above-objective"
    assert finding["count"] == 2
    assert shown["batch"] == 11
    assert len(shown["stores"]) == 2


def test_a_damaged_store_is_a_problem(query: QueryDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    assert main(["doctor", query.location]) == 1
    shown = capsys.readouterr().out
    assert "critical: 1 of the stores cannot be restored" in shown
    assert "docs/alerts.md#alert-statestoredamaged" in shown


@pytest.mark.parametrize(("hours", "files"), [(1, 0), (3, 2)])
def test_files_that_cannot_be_deleted_are_named_after_hours_of_commits(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str], hours: int, files: int
) -> None:
    """A tombstone that is older than leases last, whose files are there and not needed."""
    store = query.root / query.keys[0].path
    needed = next((store / "delta").glob("*.sst"))
    held = ["shared/00000000000000000001_a_0_00000000.sst", "shared/00000000000000000001_a_1_00000000.sst"]
    (store / "shared").mkdir(exist_ok=True)
    for path in held:
        (store / path).write_bytes(b"held")
    tombstone = store / tombstone_path("cleaner")
    tombstone.parent.mkdir(exist_ok=True)
    tombstone.write_bytes(pack_tombstone([*held, f"delta/{needed.name}", "shared/gone.sst"]))
    newest_s = max(path.stat().st_mtime for path in (store / "delta").iterdir())
    os.utime(tombstone, (newest_s - 3600 * hours, newest_s - 3600 * hours))
    assert examine(query.location).look.stores[0].undeletable_files == files
    assert main(["doctor", query.location]) == (1 if files else 0)
    shown = capsys.readouterr().out
    assert ("2 files of store 0/0/default are still there" in shown) == bool(files)


def test_there_is_no_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path), "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "missing"


def test_a_wrong_duration_names_the_option(grown: QueryDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", grown.location, "--restore-objective", "soon", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["option"] == "restoreObjective"


def test_a_storage_that_fails_is_a_finding(query: QueryDirectory) -> None:
    (query.root / "commits").rename(query.root / "elsewhere")
    (query.root / "commits").write_text("not a directory")
    examination = examine(query.location)
    assert examination.look is None
    assert examination.verdict.severity == "critical"
