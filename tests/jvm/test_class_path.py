"""The jars on the class path of a JVM: one jar for this Spark is right, others are refused by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest
import scala_jars

from state_store.session import build, releases

RELEASE = "org.apache.spark.sql.execution.streaming.state.incremental.release."
HERE = releases.minor_of(pyspark.__version__)
pytestmark = pytest.mark.spark


def restamped(directory: Path, **changed: str) -> Path:
    """Copy this Spark's jar and change its stamp."""
    original, copy = scala_jars.state_store_jar(), directory / "-".join(["copy", *changed.values()])
    copy = copy.with_name(copy.name + ".jar")
    with zipfile.ZipFile(original) as archive, zipfile.ZipFile(copy, "w") as out:
        for entry in archive.infolist():
            content = archive.read(entry)
            if entry.filename == build.STAMP:
                lines = dict(line.split("=", 1) for line in content.decode().splitlines() if "=" in line)
                content = "".join(f"{key}={text}\n" for key, text in {**lines, **changed}.items()).encode()
            out.writestr(entry, content)
    return copy


def printed_by(*jars: Path, program: str = "WhichJars") -> str:
    places = [scala_jars.probes_jar(), *jars, f"{scala_jars.SPARK_JARS}{os.sep}*"]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, places)), RELEASE + program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.strip()


@pytest.mark.tier("more")
def test_a_single_jar_for_this_spark_is_right(tmp_path: Path) -> None:
    jar = scala_jars.state_store_jar()
    assert printed_by(jar) == "one jar, for this Spark"
    same = shutil.copy(jar, tmp_path / "same.jar")
    assert printed_by(jar, same) == "one jar, for this Spark"


def test_a_jar_for_another_spark_is_refused(tmp_path: Path) -> None:
    assert printed_by(restamped(tmp_path, spark="4.9.1")) == (
        "this jar of the incremental state store was built for Spark 4.9 and Spark is "
        f"{pyspark.__version__}. Keep the one jar for Spark {HERE}, whose path `state-store jar` prints."
    )


def test_two_jars_that_differ_are_refused_with_their_places(tmp_path: Path) -> None:
    right, room = scala_jars.state_store_jar(), tmp_path / "jars of mine"
    room.mkdir()
    other = restamped(room, version="0.0.1")
    text = printed_by(right, other)
    assert text.startswith("different jars of the incremental state store are on the class path: ")
    assert str(right) in text
    assert f"{other} (release 0.0.1 for Spark {HERE})" in text
    assert f"Keep the one jar for Spark {HERE}" in text


@pytest.mark.tier("more")
def test_the_code_for_workers_is_made_anew_and_a_disk_that_fails_ends_no_task() -> None:
    assert printed_by(scala_jars.state_store_jar(), program="PackagedCode").splitlines() == [
        "the same: true",
        "without a directory: None",
    ]
