"""The build of the jar: what it takes, what it refuses, and that the same sources give the same bytes."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import scala_jars

from jvm_bridge import build


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the jar that the checkout has."""
    return Path(shutil.copy(scala_jars.state_store_jar(), tmp_path_factory.mktemp("jars")))


@pytest.mark.spark
@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(jar: Path, tmp_path: Path) -> None:
    again, built = build.build(build.installed_pyspark(), tmp_path)
    assert built
    assert again.name == jar.name
    assert again.read_bytes() == jar.read_bytes()


@pytest.mark.spark
@pytest.mark.slow
def test_a_jar_that_is_up_to_date_is_left_alone(jar: Path) -> None:
    before = jar.stat().st_mtime_ns
    assert build.build(build.installed_pyspark(), jar.parent) == (jar, False)
    assert jar.stat().st_mtime_ns == before


@pytest.mark.spark
def test_python_alone_that_changed_is_packed_without_a_compiler(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path(shutil.copy(jar, tmp_path))
    changed = dict(build._resources()) | {"state_store_agent.zip": b"another agent"}
    monkeypatch.setattr(build, "_resources", lambda: changed.items())
    monkeypatch.setattr(build, "compile_scala", lambda *_: pytest.fail("compiled"))
    assert build.build(build.installed_pyspark(), tmp_path) == (old, True)
    with zipfile.ZipFile(old) as new, zipfile.ZipFile(jar) as before:
        assert new.read("state_store_agent.zip") == b"another agent"
        assert new.namelist() == before.namelist()
        classes = [name for name in new.namelist() if name.endswith(".class")]
        assert classes and all(new.read(name) == before.read(name) for name in classes)


@pytest.mark.spark
def test_scala_that_changed_is_compiled(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(jar, tmp_path)
    monkeypatch.setattr(build, "scala_sources", lambda _: [Path(build.__file__)])
    with pytest.raises(build.BuildError, match="do not compile"):
        build.build(build.installed_pyspark(), tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_the_jar_brings_the_agents_code_and_nothing_else_of_python(jar: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        (tmp_path / "agent.zip").write_bytes(archive.read("state_store_agent.zip"))
        properties = archive.read(build.STAMP).decode()
    assert names[0] == "META-INF/MANIFEST.MF"
    assert names[1:] == sorted(names[1:])
    assert f"version={build._project_version()}\n" in properties
    with zipfile.ZipFile(tmp_path / "agent.zip") as archive:
        inside = archive.namelist()
    assert "state_store/agent/__main__.py" in inside
    assert all(name.startswith("state_store/") and name.endswith(".py") for name in inside)


def _spark(room: Path, version: str) -> Path:
    (room / "jars").mkdir(parents=True)
    (room / "jars" / f"spark-sql_2.13-{version}.jar").touch()
    return room


def test_another_spark_is_refused_with_those_that_are_supported(tmp_path: Path) -> None:
    with pytest.raises(
        build.BuildError, match=r"Spark 4\.1\.0 is not supported: 4\.2 and 4\.3 are\. --force"
    ):
        build.build(_spark(tmp_path / "old", "4.1.0"), tmp_path / "out")


def test_a_directory_without_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match="no pyspark package directory"):
        build.build(tmp_path, tmp_path / "out")


def test_a_virtual_environment_will_do(tmp_path: Path) -> None:
    _spark(tmp_path / "lib/python3.11/site-packages/pyspark", "4.1.0")
    with pytest.raises(build.BuildError, match=r"Spark 4\.1\.0"):
        build.build(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "cannot be run"),
        ("echo 'openjdk version \"11.0.2\"' >&2", r'is openjdk version "11\.0\.2"'),
        ("exit 1", "cannot be run"),
    ],
    ids=["missing", "too old", "broken"],
)
def test_java_must_be_one_that_spark_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str
) -> None:
    home = tmp_path / "jdk"
    if script is not None:
        (home / "bin").mkdir(parents=True)
        (home / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(build.BuildError, match=f"{says}.*A JDK 17 or 21 is needed.*openjdk-17-jdk-headless"):
        build.check_java()


def test_the_java_of_this_machine_will_do() -> None:
    assert shutil.which("java")
    build.check_java()


def test_sources_that_do_not_compile_are_shown(tmp_path: Path) -> None:
    source = tmp_path / "Broken.scala"
    source.write_text("object Broken { val x: Int = nothing }\n")
    with pytest.raises(build.BuildError, match=r"(?s)do not compile.*not found: value nothing"):
        build.compile_scala(build.installed_pyspark() / "jars", [source], tmp_path)


def test_main_says_what_is_wrong_without_a_stack_trace(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert build.main(["--pyspark", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("jvm_bridge.build: ")
