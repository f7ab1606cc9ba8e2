"""The wheel with all jars, in clean environments without the source tree: contents, a query, the tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from environments import (
    DIST_VARIABLE,
    NEWEST,
    SPARKS,
    Environment,
    of_a_small_query,
    run,
    spark_environment,
)

from state_store.session.build import STAMP
from state_store.session.releases import jar_name

pytestmark = [pytest.mark.packaging, pytest.mark.spark]
BRIDGE = "state_store/session/bridge"

# A release is tested on all Sparks at once.
OLDER_MARKS = () if DIST_VARIABLE in os.environ else (pytest.mark.tier("long"),)


def test_the_wheel_carries_jars_sources_and_the_template(wheel, tree):
    """The wheel has neither a jar of other sources nor files of an earlier build."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {name for name in names if name.endswith(".jar")} == {
        f"state_store/jars/{jar_name(version)}" for version in SPARKS
    }
    sources = [path for path in (tree / "jvm_bridge").rglob("*") if path.is_file()]
    carried = {f"{BRIDGE}/{path.relative_to(tree / 'jvm_bridge').as_posix()}" for path in sources}
    assert {name for name in names if name.startswith(f"{BRIDGE}/")} == carried
    python = {path.relative_to(tree).as_posix() for path in (tree / "state_store").rglob("*.py")}
    assert {name for name in names if name.endswith(".py") and not name.startswith(BRIDGE)} == python
    assert "state_store/py.typed" in names
    assert any(name.endswith("data/share/incremental-state-store/spark-defaults.conf") for name in names)
    assert {name.split("/")[0].rpartition(".")[2] for name in names} == {"state_store", "data", "dist-info"}
    assert "License-Expression: Apache-2.0" in metadata
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


def test_an_index_would_take_the_wheel_and_the_source_archive(wheel, sdist, tmp_path):
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, cwd=tmp_path)


@pytest.mark.parametrize(
    "version", [pytest.param(spark, marks=() if spark == NEWEST else OLDER_MARKS) for spark in SPARKS]
)
def test_a_query_runs_and_continues_from_its_checkpoint(environments, version, tmp_path):
    clean = environments(version)
    script = shutil.copy(Path(__file__).with_name("small_query.py"), tmp_path)
    (tmp_path / "work").mkdir()
    done = clean.run("python", script, tmp_path / "work", cwd=tmp_path, **of_a_small_query(version))
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"].startswith(version)
    assert found["package"].startswith(str(clean.directory))
    assert len(found["files"]["delta"]) + len(found["files"]["snapshot"]) >= 6
    checkpoint = tmp_path / "work/checkpoint"
    listed = clean.run("state-store", "checkpoints", checkpoint, "--json", cwd=tmp_path)
    (store,) = json.loads(listed.stdout)["stores"]
    assert store["checkpoints"][-1]["version"] == 6
    clean.run("state-store", "verify", checkpoint, cwd=tmp_path)


def test_the_command_line_finds_the_jar_and_makes_another(environments, tmp_path):
    clean = environments(NEWEST)
    path = clean.run("state-store", "jar", "--path", cwd=tmp_path).stdout.strip()
    assert path == str(clean.site / "state_store/jars" / jar_name(NEWEST))
    built = clean.run("state-store", "jar", "--build", "--out", tmp_path, cwd=tmp_path).stdout.strip()
    assert built == str(tmp_path / jar_name(NEWEST))
    with zipfile.ZipFile(built) as fresh, zipfile.ZipFile(path) as shipped:
        assert fresh.namelist() == shipped.namelist()
        assert fresh.read(STAMP) == shipped.read(STAMP)
    refused = clean.run("state-store", "jar", "--spark", "3.5.1", cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "Spark 4.0, 4.1, 4.2 and 4.3 are supported" in refused.stderr


def test_a_job_needs_the_properties_file_and_the_jar_alone(environments, checkout, tmp_path):
    clean = environments(NEWEST)
    jar = shutil.copy(clean.run("state-store", "jar", cwd=tmp_path).stdout.strip(), tmp_path)
    template = (clean.directory / "share/incremental-state-store/spark-defaults.conf").read_text()
    properties = tmp_path / "job.conf"
    properties.write_text(re.sub(r"^spark\.jars .*$", f"spark.jars {jar}", template, flags=re.MULTILINE))
    bare = spark_environment(checkout, NEWEST, tmp_path / "bare")
    script = shutil.copy(Path(__file__).with_name("small_query.py"), tmp_path)
    (tmp_path / "work").mkdir()
    submit = [bare.site / "pyspark/bin/spark-submit", "--properties-file", properties]
    command = [*submit, "--driver-memory", "1g", script, tmp_path / "work", "submitted"]
    done = run(*command, cwd=tmp_path, PYSPARK_PYTHON=str(bare.python), **of_a_small_query(NEWEST))
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"].startswith(NEWEST)
    assert found["package"] is None
    assert len(found["files"]["delta"]) >= 2


def test_the_message_names_a_missing_pyspark(wheel, tmp_path):
    clean = Environment(tmp_path / "env", "rocksdict", "click", "rich")
    clean.pip_install(wheel, cwd=tmp_path)
    done = clean.run("state-store", "jar", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "pyspark is not installed" in done.stderr
    assert "Traceback" not in done.stderr
