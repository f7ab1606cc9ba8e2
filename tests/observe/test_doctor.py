"""`state-store doctor`: words for people, JSON for programs, and exit codes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from query_directory import QueryDirectory

import state_store
from state_store.cli.main import main
from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import pack_tombstone
from state_store.observe.look import examine


def test_a_healthy_query_is_fine(grown: QueryDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", grown.location]) == 0
    assert capsys.readouterr().out.startswith(
        "Fine as far as listings show: batch 11 was committed last; 2 stores have "
    )


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
    (address,) = re.findall(r"See file://(.*)#alert-statestoredamaged", shown)
    assert '<h2 id="alert-statestoredamaged">' in Path(unquote(address)).read_text("utf-8")


@pytest.mark.parametrize(("hours", "files"), [(1, 0), (3, 2)])
def test_files_that_cannot_be_deleted_are_named_after_hours_of_commits(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str], hours: int, files: int
) -> None:
    """A tombstone that is older than leases last, whose files are there and not needed."""
    store = query.root / query.keys[0].path
    needed = max((store / "delta").glob("*.sst"))
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


def spoiled(query: QueryDirectory) -> Path:
    """Change a byte of the newest delta of a store, which no listing shows."""
    path = max(
        (path for path in query.files(query.keys[0]) if path.parent.name == "delta"), key=lambda p: p.name
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    return path


def test_a_verification_tells_the_doctor_what_it_found(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examine(query.location).verdict.sentence.endswith("The files were never verified.")
    path = spoiled(query)
    assert main(["doctor", query.location]) == 0, "no listing shows it"
    assert main(["verify", query.location]) == 1
    capsys.readouterr()
    assert main(["doctor", query.location]) == 1
    shown = capsys.readouterr().out
    assert "critical: Problems that `state-store verify` found, and whose files are still there: 1." in shown
    assert "the delta of version 12 in store 0/0/default is damaged" in shown
    assert "version 12 cannot be restored" in shown
    (problem,) = [
        store.verify_problem for store in examine(query.location).look.stores if store.verify_problem
    ]
    assert problem.file == f"delta/{path.name}"
    assert main(["verify", query.location, "--partition", "1"]) == 0
    assert main(["doctor", query.location]) == 1, "the other store alone was verified"
    assert state_store.verify(query.location, partition=0, leave_result=False).findings
    assert main(["doctor", query.location]) == 1


def test_damage_that_was_repaired_is_not_shown_any_more(query: QueryDirectory) -> None:
    path = spoiled(query)
    good = bytearray(path.read_bytes())
    good[len(good) // 3] ^= 1
    state_store.verify(query.location)
    assert examine(query.location).verdict.severity == "critical"
    path.write_bytes(good)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10**9))
    assert examine(query.location).verdict.severity == "fine", "it is another file now"
    state_store.verify(query.location)
    verdict = examine(query.location).verdict
    assert "The files were last verified " in verdict.sentence
    assert verdict.findings == []


def test_a_copy_was_not_verified(query: QueryDirectory, tmp_path: Path) -> None:
    state_store.verify(query.location)
    assert (query.root / "_verified.json").exists()
    assert main(["cp", query.location, str(tmp_path / "copy")]) == 0
    assert not (tmp_path / "copy/_verified.json").exists()
    assert state_store.verify(str(tmp_path / "copy"), leave_result=False).ok
    assert not (tmp_path / "copy/_verified.json").exists()


def test_a_verification_of_some_stores_is_none_of_the_query(query: QueryDirectory) -> None:
    assert state_store.verify(query.location, partition=1).not_left is None
    assert examine(query.location).verdict.sentence.endswith("The files were never verified.")
    assert state_store.verify(query.location).ok
    assert "last verified " in examine(query.location).verdict.sentence


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": 2}', b"\xff"])
def test_a_result_that_cannot_be_read_is_as_none(query: QueryDirectory, content: bytes) -> None:
    (query.root / "_verified.json").write_bytes(content)
    assert examine(query.location).verdict.sentence.endswith("The files were never verified.")


def test_a_result_that_cannot_be_left_is_said(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (query.root / "_verified.json").mkdir()
    assert main(["verify", query.location]) == 0
    assert "The result could not be left for `doctor` and `serve`: " in capsys.readouterr().out
    assert main(["doctor", query.location]) == 0


def test_a_query_without_a_checkpoint_for_long_is_what_its_alert_is(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (query.root / "commits").iterdir():
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 31 * 60))
    assert main(["doctor", query.location]) == 1
    assert "warning: The last checkpoint was made " in capsys.readouterr().out


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


def test_a_commit_log_that_is_damaged_has_the_remedy_of_its_message(
    query: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (query.root / "commits/11").write_text("v1\nnonsense")
    assert main(["doctor", query.location]) == 1
    said = capsys.readouterr().out
    assert "put it back from a copy of the checkpoint" in said
    assert "Do what the message says" in said and "figures below" not in said
