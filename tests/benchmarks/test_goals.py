"""Goals of the benchmarks: results that are recorded, compared and judged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import medians, recorded
from benchmarks.page import goals
from benchmarks.results import HDFS, OURS, Ratio, Results
from benchmarks.scenarios import services


def _ratios(value: float) -> Results:
    def step(median: float) -> dict:
        return {"batch": {"wall_ms": {"median": median, "n": 1}}}

    cases = {"base": {"uniform 20k": {"hdfs": step(value), "incremental": step(1.0)}}}
    return Results({"store": {"bench": "standard", "cases": cases}})


def test_a_ratio_that_halved_warns_and_a_lesser_fall_does_not(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    recorded.write(_ratios(10.0), file)
    assert recorded.warnings(_ratios(5.1), file) == []
    assert recorded.warnings(_ratios(4.9), file) == ["store/base/uniform 20k/hdfs was 10x and is 4.9x now"]


def test_recording_an_extent_keeps_the_other_extents(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps({"quick": {"a": 1.0}}))
    recorded.write(_ratios(3.0), file)
    assert json.loads(file.read_text())["quick"] == {"a": 1.0}


def test_missed_goals_have_their_distance() -> None:
    rows = [
        outcome
        for outcome in goals.outcomes(_ratios(2.5))
        if outcome.setting.startswith("500k keys, 100 B, batch 20k uniform")
    ]
    found = {outcome.against: outcome for outcome in rows}
    assert found["HDFS-backed"].verdict == "**missed** 2.0x short"
    assert found["HDFS-backed"].met is False
    assert found["RocksDB + changelog"].met is None


def _verdict(found: Results, setting: str) -> tuple[str, bool | None]:
    (outcome,) = (outcome for outcome in goals.outcomes(found) if outcome.setting == setting)
    return outcome.measured, outcome.met


def test_announced_keys_are_compared_with_the_same_batch_of_a_store_that_takes_none() -> None:
    def took(ms: float) -> dict:
        return {"recover": {"end_ms": {"median": ms, "n": 1}}}

    plain, ahead = (services.first_batch(services.LARGE, ahead=ahead) for ahead in (False, True))
    steps = {
        plain: {"rocksdb": took(120_000.0), "incremental-lazy": took(12_000.0)},
        ahead: {"incremental-lazy": took(3_000.0)},
    }
    found = Results({"services": {"bench": "standard", "cases": {services.HDFS_CASE: steps}}})
    outcomes = [outcome for outcome in goals.outcomes(found) if outcome.setting.startswith("6 GB on HDFS")]
    assert [(outcome.measured, outcome.met) for outcome in outcomes] == [("3e+03 ms", True), ("40x", True)]


def test_the_worst_age_counts() -> None:
    def took(kind: str, name: str, ours: float, theirs: float) -> dict:
        times = {OURS: ours, "rocksdb-changelog": theirs, HDFS: 1000.0}
        return {subject: {kind: {name: {"median": value, "n": 1}}} for subject, value in times.items()}

    def verdicts(late: float) -> list[tuple[str, bool | None]]:
        steps = {
            "restore at 0": took("restore", "total_ms", 10.0, 40.0),
            "restore at 10": took("restore", "total_ms", late, 20.0),
            "batches to 10": took("batch", "wall_ms", 10.0, 30.0),
        }
        found = Results({"age": {"bench": "full", "cases": {"age": steps}}})
        return [_verdict(found, setting) for setting in ("a restore at every age", "a batch at every age")]

    assert verdicts(10.0) == [
        ("2.0x at least (restore at 10)", True),
        ("3.0x at least (batches to 10)", True),
    ]
    assert verdicts(40.0)[0] == ("0.5x at least (restore at 10)", False)


def test_the_worst_prediction_counts() -> None:
    def verdict(*restores: tuple[int, int, int], local: int = 0) -> tuple[str, bool | None]:
        steps = {
            f"restore {place}": {
                OURS: {
                    "restore": {
                        "total_ms": {"median": 1.0, "n": 1},
                        "custom": {
                            "incrementalRestorePredictedMs": predicted_ms,
                            "incrementalRestoreChooseMs": choose_ms,
                            "incrementalRestoreFetchMs": fetch_ms,
                            "incrementalRestoreLocalFiles": local,
                        },
                    }
                }
            }
            for place, (predicted_ms, choose_ms, fetch_ms) in enumerate(restores)
        }
        found = Results({"services": {"bench": "full", "cases": {"S3": steps}}})
        return _verdict(found, "time of a restore without local files, as predicted")

    assert verdict((125, 10, 90), (12, 0, 3)) == (
        "25 % at most (125 ms, was 100 ms: S3, restore 0), 2 restores",
        True,
    )
    assert verdict((125, 10, 90), (60, 0, 100)) == (
        "40 % at most (60 ms, was 100 ms: S3, restore 1), 2 restores",
        False,
    )
    assert verdict((12, 1, 1)) == ("0 % at most (12 ms, was 2 ms: S3, restore 0), 1 restores", True)
    assert verdict((125, 1, 1), local=3) == ("not measured", None)


_TIMES = st.lists(st.floats(0.01, 10_000), min_size=1, max_size=9)
_RATIO = re.compile(r"([\d.]+)x(?: \(([\d.]+)-([\d.]+)\))?")
_WITH_QUARTILES = re.compile(r"([\d.]+)x? \(([\d.]+)-([\d.]+)\)")


def _ratio(theirs: list[float], ours: list[float]) -> Ratio:
    step = {
        name: {"batch": {"wall_ms": medians.spread(times)}} for name, times in ((HDFS, theirs), (OURS, ours))
    }
    found = Results({"store": {"cases": {"base": {"uniform": step}}}})
    ratio = found.ratio(("store", "base", "uniform"), (HDFS,), "batch")
    assert ratio is not None
    return ratio


@given(_TIMES, _TIMES)
def test_a_ratio_is_shown_within_the_ratios_of_the_quartiles(theirs: list[float], ours: list[float]) -> None:
    match = _RATIO.fullmatch(str(_ratio(theirs, ours)))
    assert match is not None
    assert (match[2] is None) == (min(len(theirs), len(ours)) < 2)
    if match[2]:
        assert float(match[2]) <= float(match[1]) <= float(match[3])


def test_the_bounds_of_a_ratio_can_be_computed_from_the_quartiles() -> None:
    assert (
        str(_ratio([90.0, 100.0, 120.0, 130.0, 150.0], [8.0, 10.0, 10.0, 12.5, 20.0])) == "12.0x (8.0-13.0)"
    )


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "benchmarks/GOALS.md", "benchmarks/RESULTS.md"])
def test_every_figure_of_a_page_lies_within_its_brackets(checkout: Path, page: str) -> None:
    figures = _WITH_QUARTILES.findall((checkout / page).read_text(encoding="utf-8"))
    assert figures
    assert [
        figure for figure in figures if not float(figure[1]) <= float(figure[0]) <= float(figure[2])
    ] == []
