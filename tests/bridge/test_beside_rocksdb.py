"""Random calls on this store and on Spark's RocksDB store, through the interface that operators use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import quick_java

from state_store.session.jar import OPENED

pytestmark = pytest.mark.tier("more")

MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.probe.BesideRocksDB"
LONG = [
    pytest.param(seed, words, marks=pytest.mark.tier("long"))
    for seed in range(5, 25)
    for words in ("", "feed", "families", "families feed", "families avro", "families numbers")
]


@pytest.mark.parametrize(
    ("seed", "words"), [(1, "avro"), (2, "feed"), (3, "families"), (4, "families feed numbers"), *LONG]
)
def test_calls_are_answered_as_by_sparks_store(
    driver_class_path: str, tmp_path: Path, seed: int, words: str
) -> None:
    command = ["java", "-Xmx1g", *quick_java.probe_options(), f"-Djava.io.tmpdir={tmp_path}"]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += [f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}"]
    command += ["-DincrementalStateStore.checkMemory=true", "-cp", driver_class_path, MAIN]
    (tmp_path / "stores").mkdir()
    ran = subprocess.run(
        [*command, str(tmp_path / "stores"), str(seed), "40", *words.split()],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert f"seed {seed}: 0 differences" in ran.stdout
