"""The tab's verdict on a query is that of `state-store doctor`, by the same cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

CASES = json.loads((Path(__file__).resolve().parents[2] / "observe/cases/verdict.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_driver_s_verdict_equals_the_command_line_s(spark, case) -> None:
    package = spark._jvm.org.apache.spark.sql.execution.streaming.state.incremental
    verdict = package.observed.Verdict.of(package.checkpoint.Json.parse(json.dumps(case)))
    found = json.loads(package.observed.Documents.verdict(verdict).toString())
    assert (found["severity"], found["sentence"]) == (case["severity"], case["sentence"])
    assert len(found["findings"]) == len(case["findings"])
    for finding, wanted in zip(found["findings"], case["findings"], strict=True):
        assert {name: finding.get(name) for name in wanted} == wanted
