"""Tests of the comparison of engines, with a small engine in plain Python, and some that are wrong."""

from __future__ import annotations

import argparse
import itertools
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines import engine_job, measurements, side_by_side
from benchmarks.engines.engine_job import Form
from benchmarks.engines.workloads import GAP_MS, TURN, session_row

_ENGINE = """
import pickle, socket, sys, time
sys.path.insert(0, {engines!r})
from workloads import LATENCY, Progress, counter_row, options, outputs_of
asked = options("a job")
progress, outputs = Progress(asked.root, asked.rows), outputs_of(asked)
saved, new = asked.root / "state", asked.root / "new"
begin, counts = pickle.loads(saved.read_bytes()) if saved.exists() else (0, {{}})
numbers = range(begin, asked.rows * asked.batches)
if asked.purpose == LATENCY:
    numbers = map(int, socket.create_connection(("127.0.0.1", asked.port)).makefile())
for number in numbers:
    key, value = counter_row(number, asked.keys)
    count, total = counts.get(key, (0, 0.0))
    counts[key] = count + 1, total + value
    if outputs:
        outputs.add((key, *counts[key]))
    if (number + 1) % asked.rows == 0:
        {at_end_of_batch}
        time.sleep(asked.batch_s / 20)
    progress.add()
if outputs:
    {at_end}
    outputs.write()
"""
_SAVE = "new.write_bytes(pickle.dumps((number + 1, counts))); new.replace(saved)"
_ENGINES = {
    "right": (_SAVE, "pass"),
    "shuffled": (_SAVE, "outputs._outputs.reverse()"),
    "wrong": (_SAVE, "outputs.add((1, 1, 2.5))"),
    "forgets": ("pass", "pass"),
    "loses_state": (_SAVE.replace("counts", "{}"), "pass"),
}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the programs of the engines, and forms of them."""
    for name, (at_end_of_batch, at_end) in _ENGINES.items():
        lines = {"at_end_of_batch": at_end_of_batch, "at_end": at_end}
        text = _ENGINE.format(engines=str(engine_job.HERE), **lines)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    forms = {name: Form(name, max_rows=600, workloads=("counter",)) for name in _ENGINES}
    monkeypatch.setattr(engine_job, "FORMS", forms)
    monkeypatch.setattr(side_by_side, "FORMS", forms)
    monkeypatch.setattr(engine_job, "PROGRAMS", tmp_path)


def measured(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the comparison and return its exit code and its result."""
    out = tmp_path / "found.json"
    code = side_by_side.main(["--json", str(out), "--workloads", "counter", *words])
    return code, json.loads(out.read_text())


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("other", "code"), [("shuffled", 0), ("wrong", 1)])
def test_outputs_of_all_forms_have_to_be_equal(other: str, code: int, tmp_path: Path) -> None:
    ended, found = measured(tmp_path, "--quick", "--engines", f"right,{other}")
    assert (ended, found["outputs_equal"]) == (code, code == 0)


@pytest.mark.usefixtures("jobs")
def test_a_slow_form_gets_fewer_keys_with_as_many_rows_each(tmp_path: Path) -> None:
    words = ["--keys", "1000", "--rows-per-key", "20", "--batches", "3", "--turns", "2"]
    _, found = measured(tmp_path, "--engines", "right", *words)
    (run,) = found["runs"]
    assert (run["keys"], run["rows"], run["rows_a_key"], run["turns"]) == (30, 600, 20, 2)


def test_a_batch_may_have_a_part_of_the_keys() -> None:
    assert Form("quick").fitting(1000, 0.1) == (1000, 100)
    assert Form("slow", max_rows=50).fitting(1000, 0.1) == (500, 50)
    assert Form("slow", max_rows=50).fitting(1000, 2, max_rows=400) == (200, 400)


@pytest.mark.usefixtures("jobs")
def test_the_second_half_of_a_job_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [(1.0, 10), (3.0, 18), (5.0, 26), (6.0, 28), (7.0, 30)]
    usages = [(now_s, engine_job.Usage(cpu_s=cpu_s, written_bytes=cpu_s * 100)) for now_s, cpu_s in ends]
    monkeypatch.setattr(measurements, "_watch", lambda job, process: (usages[1:], [7_000_000]))
    assert measurements.speed("right", "counter", (10, 100, 4)) == {
        "rows_a_second": 100,
        "cpu_us_a_row": 20_000,
        "first_cpu_us_a_row": 80_000,
        "written_bytes_a_row": 2,
        "peak_mb": 7,
    }


def test_a_slow_form_gets_fewer_batches() -> None:
    asked = argparse.Namespace(
        keys=10, figures=["speed"], rows_per_key=[1], batches=16, rates=[], max_rows=None
    )
    (task,) = side_by_side.tasks(asked, "counter", "process-rocksdb")
    assert (task.facts["batches"], task.words[1][2]) == (8, 8)


@pytest.mark.usefixtures("jobs")
def test_a_job_that_ends_early_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="after 0 batches"):
        measurements.speed("right", "counter", (10, 0, 2))


@pytest.mark.usefixtures("jobs")
def test_the_others_go_on_after_a_job_that_failed(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("raise SystemExit('no engine')", encoding="utf-8")
    words = ["--keys", "10", "--rows-per-key", "2", "--batches", "2"]
    _, found = measured(tmp_path, "--engines", "wrong,right", *words)
    assert [run["form"] for run in found["runs"]] == ["right"]
    assert "no engine" in found["failed"]["wrong"]


@pytest.mark.usefixtures("jobs")
def test_a_killed_job_goes_on_where_it_was() -> None:
    found = measurements.recovery("right", (10, 100))
    assert found["recovery_s"] == pytest.approx(found["again_s"] - found["cold_s"], abs=0.02)


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("name", "error"), [("forgets", "began anew"), ("loses_state", "are wrong")])
def test_a_restart_without_its_state_is_an_error(name: str, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        measurements.recovery(name, (10, 100))


@pytest.mark.usefixtures("jobs")
def test_a_wait_is_that_of_each_row() -> None:
    found = measurements.latency("right", (10, 200, 2))
    assert 0 <= found["median_ms"] <= found["p99_ms"]  # a row that is sent late is answered within 0.05 ms


def test_waits_are_from_a_rows_arrival_to_its_result(tmp_path: Path) -> None:
    for name, moments_s in (("sent", [1.0, 2.0, 3.0]), ("moments", [1.5, 2.25, 3.125])):
        (tmp_path / name).write_bytes(array("d", moments_s).tobytes())
    assert measurements.waits_ms(tmp_path / "sent", tmp_path / "moments") == [500, 250, 125]


@pytest.mark.parametrize(
    ("waits_ms", "keeps_up"), [([50.0] * 200, True), ([20.0 * row for row in range(200)], False)]
)
def test_waits_that_grow_to_the_end_say_that_an_engine_falls_behind(
    waits_ms: list[float], keeps_up: bool
) -> None:
    assert measurements.figures(waits_ms)["keeps_up"] is keeps_up


def test_sessions_of_a_key_are_apart_by_more_than_all_engines_need() -> None:
    keys = 7
    events = sorted(session_row(number, keys)[::2] for number in range(keys * 40))
    gaps_ms = [
        later - earlier for (key, earlier), (other, later) in itertools.pairwise(events) if key == other
    ]
    short = [gap for gap in gaps_ms if gap <= GAP_MS]
    assert min(gap for gap in gaps_ms if gap > GAP_MS) > 2 * GAP_MS  # Quix Streams waits for two
    assert max(short) < GAP_MS / 2
    assert len(short) > (TURN - 2) * len(gaps_ms) / TURN


def test_figures_of_the_same_size_replace_earlier_ones(tmp_path: Path) -> None:
    run = {"workload": "counter", "form": "processor", "asked_keys": 10, "rows_a_key": 2}
    sums = {"counter": {"processor": {"rows": 1, "checksum": 2}}}
    result: dict[str, Any] = {"load": [1.0], "outputs": sums, "recovery": [], "latency": []}
    result["failed"] = {"quix": "it ended with 1"}
    for size, speed in ((2, 1), (20, 2), (2, 3)):
        runs = [{**run, "rows_a_key": size, "rows_a_second": speed}]
        side_by_side.keep({**result, "runs": runs}, [str(size)], tmp_path / "engines.json")
    kept = json.loads((tmp_path / "engines.json").read_text())
    assert [(each["rows_a_key"], each["rows_a_second"]) for each in kept["engines"]["runs"]] == [
        (2, 3),
        (20, 2),
    ]
    assert [command.split()[-1] for command in kept["commands"]] == ["2", "20"]
    assert kept["engines"]["failed"] == result["failed"]


@pytest.mark.parametrize("words", [["--figures", "sped"], ["--engines", "flnk"], ["--workloads", "counters"]])
def test_a_misspelt_word_measures_nothing_and_says_so(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        side_by_side.main(["--json", str(tmp_path / "found"), *words])
    assert ended.value.code == 2
    assert f"there is no {words[1]}; there are " in capsys.readouterr().err


def test_figures_are_not_kept_beside_those_of_other_outputs(tmp_path: Path) -> None:
    result: dict[str, Any] = {"load": [1.0], "failed": {}, "runs": [], "recovery": [], "latency": []}
    for workload, form, checksum in (("counter", "processor", 2), ("frames", "accelerate", 2)):
        sums = {workload: {form: {"rows": 1, "checksum": checksum}}}
        side_by_side.keep({**result, "outputs": sums}, [], tmp_path / "engines.json")
    sums = {"counter": {"bytewax": {"rows": 1, "checksum": 3}}}
    with pytest.raises(ValueError, match="outputs differ"):
        side_by_side.keep({**result, "outputs": sums}, [], tmp_path / "engines.json")
