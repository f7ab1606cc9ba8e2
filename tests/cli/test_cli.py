"""`state-store` on real files: its output, the files that it makes, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.stored_documents import Cause
from state_store.data.query import Query, StoreKey

FIRST = StoreKey(0, 0)


@pytest.fixture(scope="module")
def six_batches(tmp_path_factory):
    """Two partitions after six batches: a merge at version 3, a full checkpoint at 5."""
    directory = tmp_path_factory.mktemp("six-batches")
    made = QueryDirectory(directory / "checkpoint", directory / "scratch")
    for batch in range(6):
        made.commit(rows(batch * 10, 30))
        if batch == 2:
            [made.merge(key, "incremental") for key in made.keys]
        if batch == 4:
            [made.merge(key, "full") for key in made.keys]
    return made


@pytest.fixture
def query(six_batches, tmp_path):
    return six_batches.copied(tmp_path / "checkpoint")


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys, *arguments: object) -> dict:
    code, out, err = run(capsys, *arguments, "--json")
    assert code in (0, 1), err
    return json.loads(out)


def test_checkpoints_calls_an_operator_as_the_page_does(tmp_path, capsys):
    flights = checkpoint("flights", tmp_path)
    _, out, _ = run(capsys, "checkpoints", flights)
    assert out.startswith("operator 0 (applyInPandasWithState on carrier), store default, 2 partitions\n")
    _, out, _ = run(capsys, "checkpoints", flights, "--each")
    assert "store 0/1/default (applyInPandasWithState on carrier)\n" in out


def test_checkpoints_sums_up_the_partitions(query, capsys):
    code, out, _ = run(capsys, "checkpoints", query.root)
    assert code == 0
    assert "operator 0 (applyInPandasWithState), store default, 2 partitions" in out
    lines = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert [int(line[0]) for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(line[-2] == "2" for line in lines)
    assert [" ".join([*line[3:-6], line[-1]]) for line in lines] == [
        "delta nothing +1 2",
        "delta nothing +2 4",
        "delta, merge merge 3 6",
        "delta merge 3 +1 8",
        "delta, full full 5 2",
        "delta full 5 +1 4",
    ]


def test_why_a_snapshot_was_made_is_said_where_it_is_known(query, capsys):
    query.merge(FIRST, "full", Cause("6 deltas\x1b[2J (maxDeltas)"))
    _, out, _ = run(capsys, "checkpoints", query.root)
    (line,) = [line for line in out.splitlines() if "maxDeltas" in line]
    assert line.split()[0] == "6" and line.endswith("6 deltas\\x1b[2J (maxDeltas)")
    made = run_json(capsys, "checkpoints", query.root, "--partition", 0)["stores"][0]["checkpoints"]
    assert [entry["reason"] for entry in made] == [None] * 5 + ["6 deltas\x1b[2J (maxDeltas)"]
    _, out, _ = run(capsys, "chain", query.root, "--partition", 0)
    assert "because: 6 deltas\\x1b[2J (maxDeltas)" in " ".join(out.split())
    chain = run_json(capsys, "chain", query.root, "--partition", 0)[0]["chain"]
    assert [link["reason"] for link in chain[:2]] == ["6 deltas\x1b[2J (maxDeltas)", None]


def test_a_full_checkpoint_says_who_asked_for_it(query, capsys):
    run(capsys, "full", query.root)
    made = run_json(capsys, "checkpoints", query.root, "--partition", 0)["stores"][0]["checkpoints"]
    assert made[-1]["reason"] == "requested beside the query (state-store full)"


def test_checkpoints_json_has_every_store_and_version(query, capsys):
    found = run_json(capsys, "checkpoints", query.root)
    assert found["checkpoint"] == str(query.root)
    assert found["batch"] == 5
    assert [(entry["operator"], entry["partition"], entry["name"]) for entry in found["stores"]] == [
        (0, 0, "default"),
        (0, 1, "default"),
    ]
    made = found["stores"][0]["checkpoints"]
    assert [entry["version"] for entry in made] == [1, 2, 3, 4, 5, 6]
    assert made[5]["id"] == query.newest[FIRST].checkpoint_id
    assert made[5]["snapshot"] == {"kind": "full", "version": 5}
    assert made[5]["deltas"] == 1
    assert made[4]["wrote"] == ["delta", "full"]
    assert all(entry["committed"] for entry in made)
    sizes = {path.name: path.stat().st_size for path in query.files(FIRST)}
    delta = next(size for name, size in sizes.items() if name.startswith(f"{6:020}_"))
    assert made[5]["new_bytes"] == delta
    assert made[0]["bytes"] == made[0]["new_bytes"]


def test_an_attempt_that_spark_did_not_commit_is_told_apart(query, capsys):
    committed = query.newest[FIRST]
    query.commit(rows(90, 5))
    query.write_version(FIRST, rows(0, 5), committed)
    made = run_json(capsys, "checkpoints", query.root, "--partition", 0)["stores"][0]["checkpoints"]
    assert [entry["version"] for entry in made] == [1, 2, 3, 4, 5, 6, 7, 7]
    assert [entry["version"] for entry in made if entry["committed"]] == [1, 2, 3, 4, 5, 6, 7]
    assert query.newest[FIRST].checkpoint_id in [entry["id"] for entry in made if entry["committed"]]


def test_checkpoints_each_has_a_table_for_each_store(query, capsys):
    _, out, _ = run(capsys, "checkpoints", query.root, "--each")
    assert "store 0/0/default" in out
    assert "store 0/1/default" in out


def test_files_counts_and_names_holders(query, capsys):
    found = run_json(capsys, "files", query.root, "--partition", 0)["stores"][0]["files"]
    on_disk = {
        str(path.relative_to(query.root / FIRST.path)): path.stat().st_size for path in query.files(FIRST)
    }
    assert {entry["path"]: entry["bytes"] for entry in found} == on_disk
    by_path = {entry["path"]: entry for entry in found}
    first_delta = next(entry for path, entry in by_path.items() if path.startswith(f"delta/{1:020}_"))
    assert [holder["version"] for holder in first_delta["holders"]] == [1, 2, 3, 4]
    assert first_delta["count"] == 4
    full = [entry for entry in found if entry["path"].startswith("shared/") and entry["origin"] == 5]
    assert full
    assert all([holder["version"] for holder in entry["holders"]] == [5, 6] for entry in full)
    fifth_delta = next(entry for path, entry in by_path.items() if path.startswith(f"delta/{5:020}_"))
    assert fifth_delta["count"] == 0


def test_files_can_be_narrowed(query, capsys):
    unneeded = run_json(capsys, "files", query.root, "--unneeded")["stores"][0]["files"]
    assert unneeded
    assert all(entry["count"] == 0 for entry in unneeded)
    needed = run_json(capsys, "files", query.root, "--needed-by", 6)["stores"][0]["files"]
    assert {entry["origin"] for entry in needed} == {5, 6}
    _, out, _ = run(capsys, "files", query.root, "--needed-by", 6)
    assert f"{2 * len(needed)} files" in out
    assert "5-6" in out


@pytest.mark.parametrize("ids", [True, False])
def test_full_cuts_the_chain(tmp_path, capsys, ids):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", ids=ids)
    for batch in range(4):
        query.commit(rows(batch * 10, 30))
    query.merge(FIRST, "incremental")
    query.commit(rows(0, 5, b"w"))
    made = run_json(capsys, "full", query.root)["stores"]
    assert [entry["version"] for entry in made] == [5, 5]
    assert [entry["keys"] for entry in made] == [60, 60]
    assert all(entry["chain_files"] > entry["files"] for entry in made)
    needed = run_json(capsys, "files", query.root, "--needed-by", 5)
    for store in needed["stores"]:
        assert {entry["origin"] for entry in store["files"]} == {5}
    assert run(capsys, "verify", query.root)[0] == 0


def test_full_of_one_partition_leaves_the_others(query, capsys):
    before = query.files(StoreKey(0, 1))
    made = run_json(capsys, "full", query.root, "--operator", 0, "--partition", 0)["stores"]
    assert [(entry["partition"], entry["version"]) for entry in made] == [(0, 6)]
    assert query.files(StoreKey(0, 1)) == before


def test_full_takes_the_version_that_spark_committed(query, capsys):
    committed = query.newest[FIRST]
    query.commit(rows(500, 3), logged=False)
    made = run_json(capsys, "full", query.root, "--partition", 0)["stores"]
    assert (made[0]["version"], made[0]["id"]) == committed


def test_verify_finds_nothing_wrong(query, capsys):
    code, out, _ = run(capsys, "verify", query.root)
    assert code == 0
    assert "no problem found" in out
    verdict = run_json(capsys, "verify", query.root, "--all-versions")
    assert verdict["ok"] is True
    assert [store["restored"]["version"] for store in verdict["stores"]] == [6, 6]
    assert [store["keys"] for store in verdict["stores"]] == [80, 80]
    assert [version["version"] for version in verdict["stores"][0]["restorable"]] == [1, 2, 3, 4, 5, 6]


def newest_delta(query):
    return next(path for path in query.files(FIRST) if path.name.startswith(f"{6:020}_"))


def full_file(query):
    return next(path for path in query.files(FIRST) if path.name.startswith(f"{5:020}-"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def truncate(path):
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("which", [newest_delta, full_file])
@pytest.mark.parametrize(
    "harm", [flip, truncate, lambda path: path.unlink()], ids=["flip", "truncate", "remove"]
)
def test_verify_names_what_is_wrong(query, capsys, which, harm):
    path = which(query)
    harm(path)
    code, out, _ = run(capsys, "verify", query.root)
    assert code == 1
    assert "damaged" in out
    verdict = run_json(capsys, "verify", query.root)
    assert verdict["ok"] is False
    found = [entry for store in verdict["stores"] for entry in store["findings"]]
    assert any(
        fnmatch(path.name, Path(entry["file"]).name)
        or path.name in entry["what"]
        or "cannot be restored" in entry["what"]
        for entry in found
    )
    assert verdict["stores"][1]["findings"] == []


def test_verify_names_a_damaged_snapshot(query, capsys):
    zips = [path for path in query.files(FIRST) if path.suffix == ".zip"]
    truncate(zips[0])
    verdict = run_json(capsys, "verify", query.root)
    assert verdict["ok"] is False
    assert any(zips[0].name in entry["file"] for entry in verdict["stores"][0]["findings"])


def test_stores_are_found_by_operator_partition_and_name(tmp_path, capsys):
    names = ("left-keyToNumValues", "right-keyToNumValues")
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=3, names=names)
    query.commit(rows(0, 4))
    found = run_json(capsys, "checkpoints", query.root, "--name", names[1], "--partition", 2)["stores"]
    assert [(entry["partition"], entry["name"]) for entry in found] == [(2, names[1])]
    assert len(run_json(capsys, "checkpoints", query.root)["stores"]) == 6
    committed = run_json(capsys, "checkpoints", query.root)["stores"][3]["checkpoints"]
    assert committed[0]["id"] == query.newest[StoreKey(0, 1, names[1])].checkpoint_id


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["checkpoints", "{root}", "--partition", "7"], ExitCode.NOT_FOUND, "partitions 0 to 1"),
        (
            ["checkpoints", "{root}/nowhere"],
            ExitCode.NOT_FOUND,
            "does not exist. Give the directory that the query has as checkpointLocation",
        ),
        (["files", "{root}", "--needed-by", "99"], ExitCode.NOT_FOUND, "versions that can be: "),
        (["chain", "{root}", "--version", "99"], ExitCode.NOT_FOUND, "there is no version 99 yet"),
        (["checkpoints", "ftp://host/checkpoint"], ExitCode.USAGE, "ftp"),
        (["options", "memoryBuget=1g"], ExitCode.USAGE, "nearest is"),
        (["options", "memoryBudget=much"], ExitCode.USAGE, "512m"),
        (["jar", "--spark", "3.5.0"], ExitCode.USAGE, "4.0, 4.1, 4.2 and 4.3 are supported"),
    ],
)
def test_errors_say_what_to_do_and_have_codes(query, capsys, arguments, code, sentence):
    given = [argument.format(root=query.root) for argument in arguments]
    found, out, err = run(capsys, *given)
    assert found == code
    assert sentence in err
    assert out == ""
    found, _, err = run(capsys, *given, "--json")
    assert found == code
    assert sentence in json.loads(err)["error"]["message"]


def test_a_query_without_state_is_told_from_another_directory(tmp_path, capsys):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    code, _, err = run(capsys, "checkpoints", tmp_path)
    assert code == ExitCode.NOT_FOUND
    assert "the query has not committed a batch yet" in err
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1")
    code, _, err = run(capsys, "checkpoints", tmp_path)
    assert "has no stateful operator" in err


def test_a_checkpoint_of_another_store_is_refused(tmp_path, capsys):
    other = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", provider=other)
    query.commit(rows(0, 4))
    code, _, err = run(capsys, "checkpoints", query.root)
    assert code == ExitCode.USAGE
    assert other in err


def test_wrong_usage_has_its_code(capsys):
    for arguments in ([], ["checkpoints"], ["nonsense"], ["checkpoints", "x", "--partition", "one"]):
        assert main(arguments) == ExitCode.USAGE
    assert "Usage: state-store" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(28, "No space left on device", "/tmp/full"), ExitCode.RETRY, "No space left on device"),
        (ValueError("never thought of"), ExitCode.DEFECT, "a defect of this program: ValueError"),
    ],
)
def test_an_error_that_nothing_caught_is_shown_with_its_code(
    query, capsys, monkeypatch, error, code, sentence
):
    def fail(location):
        raise error

    monkeypatch.setattr(Query, "open", fail)
    found, out, err = run(capsys, "checkpoints", query.root)
    assert (found, out) == (code, "")
    assert sentence in err.splitlines()[-1]
    found, _, err = run(capsys, "checkpoints", query.root, "--json")
    assert found == code
    assert sentence in json.loads(err)["error"]["message"]


def test_options_lists_explains_and_checks(capsys):
    assert "memoryBudget" in run(capsys, "options")[1]
    code, out, _ = run(capsys, "options", "restoreObjective=5s")
    assert code == 0
    assert "Trade-off" in out
    listed = json.loads(run(capsys, "options", "--json")[1])
    assert {"name", "key", "type", "unit", "default", "group", "scope", "doc", "trade_off"} == set(listed[0])
    assert "spark.jars" in run(capsys, "options", "--conf")[1]
    assert "# Options" in run(capsys, "options", "--markdown")[1]


@pytest.mark.tier("more")
def test_the_command_runs_as_a_process_and_bears_a_closed_pipe(query):
    command = [sys.executable, "-m", "state_store.cli", "files", str(query.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "needed by" in done.stdout
    piped = subprocess.run(
        f"{' '.join(command)} | true", shell=True, capture_output=True, text=True, timeout=240
    )
    assert "Traceback" not in piped.stderr


@pytest.mark.parametrize("command", ["files", "verify"])
def test_names_of_files_fit_a_pipe_of_80_columns_and_are_whole_with_wide(query, capsys, command):
    (broken,) = [path for path in query.files(FIRST) if path.name.startswith(f"{6:020}_")]
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    _, out, _ = run(capsys, command, query.root, "--partition", 0)
    assert max(map(len, out.splitlines())) <= 80
    number, own, parent, _ = broken.stem.split("_")
    assert f"delta/{int(number)}_{own[:8]}_{parent[:8]}.sst" in out
    assert broken.name not in out
    _, out, _ = run(capsys, command, query.root, "--partition", 0, "--wide")
    assert broken.name in out
