"""The configurations for YARN and Kubernetes agree with the store's options."""

from __future__ import annotations

from pathlib import Path

import pytest

import state_store
from state_store.core.settings.option import BYTES, PREFIX
from state_store.core.settings.options import parse

ELSEWHERE = {PREFIX + "agentPython", "spark.jars", "spark.sql.extensions"}
"""Settings of `spark_conf()` that the command line of YARN gives, and an image has in itself."""


@pytest.fixture(params=["yarn", "kubernetes"])
def settings(request: pytest.FixtureRequest, checkout: Path) -> dict[str, str]:
    lines = (checkout / "conf" / request.param / "spark.conf").read_text("utf-8").splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def test_the_configuration_switches_the_store_on(settings: dict[str, str]) -> None:
    conf = state_store.spark_conf(spark_version="4.3.0")
    expected = {key: value for key, value in conf.items() if key not in ELSEWHERE}
    assert {key: settings.get(key) for key in expected} == expected
    parse({key.removeprefix(PREFIX): text for key, text in settings.items() if key.startswith(PREFIX)})


def test_the_overhead_has_room_for_the_budget(settings: dict[str, str]) -> None:
    found = {key: BYTES.parse(text) for key, text in settings.items() if "emory" in key}
    spare_bytes = found["spark.executor.memoryOverhead"] - found[PREFIX + "memoryBudget"]
    assert spare_bytes >= found["spark.executor.memory"] // 10 + (256 << 20)
