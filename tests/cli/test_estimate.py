"""`state-store estimate`, of a query that is planned and of one that has run."""

from __future__ import annotations

import json
import re

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
    assert estimated(capsys, *PLANNED, "--option", "fullAfterDeltas=50")["options"] == {
        "fullAfterDeltas": "50"
    }
    slow = estimated(capsys, *PLANNED, "--fetch-rate", "10m", "--partitions", "4")
    assert slow["restore_ms"]["average"] > 10 * usual["restore_ms"]["average"]


def test_estimate_prints_its_numbers_by_their_names(capsys):
    cores = ["--executors", "50", "--executor-cores", "4"]
    document = estimated(capsys, *PLANNED, *cores)
    assert main(["estimate", *PLANNED, *cores, "--interval", "30s"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    rows = {row[0]: row[1:] for row in (re.split(r"  +", line) for line in lines)}
    names = {name.replace("_", " ") for name in document if name.endswith(("_bytes", "_month", "_hour"))}
    assert names < rows.keys() and {"puts per minute", "files for no version"} < rows.keys()
    assert (rows["interval ms"], rows["hit ratio"], rows["executors"]) == (["30.00 s"], ["0.9"], ["50"])
    assert "Tools on all of this state, as jobs of Spark on 200 cores:" in lines
    repartition = document["tools"][0]
    assert rows["repartition"][1:3] == [str(repartition["tasks"]), f"{repartition['time_s']:.0f} s"]


def test_estimate_measures_a_checkpoint(flights, capsys):
    found = estimated(capsys, flights)
    measured = found["measured"]
    assert (measured["version"], measured["sampled"]) == (VERSIONS[-1], [0, 1])
    assert found["workload"]["keys"] == len(expected("flights", VERSIONS[-1]))
    assert measured["stored_files"] > 4 and measured["restore_ms"] > 0
    assert main(["estimate", flights, "--retain", "3"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert ["retain", "3"] in [line.split() for line in lines]
    (stored,) = [line.split() for line in lines if line.startswith("stored files")]
    assert stored[2] == str(measured["stored_files"]) and len(stored) == 5
    (price,) = [line.split()[-2:] for line in lines if line.startswith("storage dollars per month")]
    assert price == ["<", "0.01"]
    assert any("partitions 0, 1" in line for line in lines)


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


@pytest.mark.parametrize(
    "words", [("--prices", "nan", "1", "1"), ("--prices", "1", "inf", "1"), ("--hit-ratio", "nan")]
)
def test_numbers_are_finite(capsys, words):
    """They would make JSON that no parser takes."""
    assert main(["estimate", *PLANNED, *words, "--json"]) == ExitCode.USAGE
    assert "is not from" in capsys.readouterr().err
