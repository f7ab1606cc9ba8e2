"""`state-store estimate`, of a query that is planned and of one that has run."""

from __future__ import annotations

import json

import pytest
from dataset.golden_states import VERSIONS, checkpoint, expected

from state_store.cli.main import main
from state_store.cli.process import ExitCode

PLANNED = ["--keys", "1e6", "--key-bytes", "24", "--value-bytes", "120", "--update-share", "0.02"]


@pytest.fixture(scope="module")
def flights(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


def estimated(capsys, *words: str) -> dict:
    assert main(["estimate", *words, "--json"]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


@pytest.mark.tier("more")
def test_estimate_follows_the_options_of_a_planned_query(capsys):
    usual = estimated(capsys, *PLANNED)
    assert usual["measured"] is None and usual["is_steady"]
    assert usual["workload"]["updates_per_batch"] == 20_000
    what_if = estimated(capsys, *PLANNED, "--retain", "5", "--full-every", "50", "--objective", "5s")
    assert what_if["options"] == {"fullAfterDeltas": "50", "restoreObjective": "5s"}
    assert what_if["stored_bytes"]["average"] < usual["stored_bytes"]["average"]
    assert what_if["full_per_hour"] > usual["full_per_hour"]
    slow = estimated(capsys, *PLANNED, "--fetch-rate", "10m", "--partitions", "4")
    assert slow["restore_ms"]["average"] > 10 * usual["restore_ms"]["average"]
    assert (
        estimated(capsys, *PLANNED, "--option", "fullAfterDeltas=50")["full_per_hour"]
        > usual["full_per_hour"]
    )
    assert main(["estimate", *PLANNED, "--interval", "30s"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "1000000 keys of 24 bytes with values of 120 in 200 partitions; a batch every 30 s" in shown
    assert "full checkpoints an hour" in shown and "memoryBudget that serves 90% of look-ups" in shown
    assert "memoryOverhead without Python workers" in shown
    assert "heap for look-ahead, each task" in shown


def test_estimate_measures_a_checkpoint(flights, capsys):
    found = estimated(capsys, flights)
    measured = found["measured"]
    assert (measured["version"], measured["sampled"]) == (VERSIONS[-1], [0, 1])
    assert found["workload"]["keys"] == len(expected("flights", VERSIONS[-1]))
    assert measured["stored_files"] > 4 and measured["restore_ms"] > 0
    assert main(["estimate", flights, "--retain", "3"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "3 versions retained" in shown and "partitions 0, 1" in shown
    (price,) = [line.split()[-2:] for line in shown.splitlines() if line.startswith("dollars a month for st")]
    assert price == ["<", "0.01"]
    assert "Tools on all of this state, as jobs of Spark on 1 core" in shown
    assert "rests on CPU time of a core, measured for rows of 88 bytes" in " ".join(shown.split())


@pytest.mark.tier("more")
def test_estimate_says_how_long_tools_take_on_executors(capsys):
    plan = ["--keys", "1e9", "--key-bytes", "24", "--value-bytes", "90", "--update-share", "0.001"]
    alone = estimated(capsys, *plan)
    many = estimated(capsys, *plan, "--executors", "50", "--executor-cores", "4")
    assert [tool["name"] for tool in alone["tools"]][:3] == ["repartition", "import", "verify"]
    for before, after in zip(alone["tools"], many["tools"], strict=True):
        assert before["cpu_s"] == after["cpu_s"] and before["time_s"] > 100 * after["time_s"]
        assert after["task_disk_bytes"] > 0 and after["task_memory_bytes"] > 0
    assert many["executor_cores"] == 4 and "88 bytes" in many["tools_rest_on"]
    assert main(["estimate", *plan, "--executors", "50", "--executor-cores", "4"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "as jobs of Spark on 200 cores" in shown
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("repartition")]
    assert line[3] == "200" and line[4:6] == [f"{many['tools'][0]['time_s']:.0f}", "s"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], ExitCode.USAGE, "without DIR"),
        (["--keys", "10"], ExitCode.USAGE, "--update-share"),
        (["DIR", "--keys", "10"], ExitCode.USAGE, "leave out keys"),
        ([*PLANNED, "--option", "maxDeltas"], ExitCode.USAGE, "NAME=VALUE"),
        ([*PLANNED, "--option", "maxDelta=3"], ExitCode.USAGE, "maxDeltas"),
        ([*PLANNED, "--interval", "soon"], ExitCode.USAGE, "duration"),
        (["DIR", "--operator", "3"], ExitCode.NOT_FOUND, "there are operator 0 "),
        (["nowhere"], ExitCode.NOT_FOUND, "the directory nowhere does not exist"),
    ],
)
def test_mistakes_are_named(flights, capsys, words, code, says):
    assert main(["estimate", *(flights if word == "DIR" else word for word in words)]) == code
    assert says in capsys.readouterr().err
