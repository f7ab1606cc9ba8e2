"""The build of the jar: the sources that it takes, and the Sparks and Javas that it refuses.

The tests in tests/packaging show, by `make test-long`, that the same sources make the same bytes.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

import state_store
from jvm.fakes import Compilations, spark_directory
from state_store.session import build, releases


@pytest.mark.spark
def test_the_jar_has_the_agents_code_and_no_other_python(tmp_path: Path) -> None:
    jar, _ = build.build(releases.installed_pyspark())
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        (tmp_path / "agent.zip").write_bytes(archive.read("state_store_agent.zip"))
        properties = archive.read(build.STAMP).decode()
    assert names[0] == "META-INF/MANIFEST.MF"
    assert names[1:] == sorted(names[1:])
    assert f"version={state_store.__version__}\n" in properties
    with zipfile.ZipFile(tmp_path / "agent.zip") as archive:
        inside = archive.namelist()
    assert "state_store/agent/__main__.py" in inside
    assert all(name.startswith("state_store/") and name.endswith(".py") for name in inside)


def test_a_jar_that_is_up_to_date_is_left_alone(compilations: Compilations, tmp_path: Path) -> None:
    pyspark = spark_directory(tmp_path / "spark", "4.3.0")
    jar, built = build.build(pyspark, tmp_path / "out")
    assert built
    before = jar.stat().st_mtime_ns
    assert build.build(pyspark, tmp_path / "out") == (jar, False)
    assert jar.stat().st_mtime_ns == before
    assert compilations.count == 1


def test_nothing_is_compiled_if_only_python_changed(
    compilations: Compilations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark = spark_directory(tmp_path / "spark", "4.3.0")
    build.build(pyspark, tmp_path / "out")
    code = {**build.agent_code(), "state_store/more.py": b"MORE = 1"}
    monkeypatch.setattr(build, "agent_code", lambda: code)
    jar, built = build.build(pyspark, tmp_path / "out")
    assert built
    assert compilations.count == 1
    with zipfile.ZipFile(jar) as archive:
        assert archive.read("Provider.class") == b"class\n"
        (tmp_path / "agent.zip").write_bytes(archive.read(build.AGENT_CODE))
    with zipfile.ZipFile(tmp_path / "agent.zip") as archive:
        assert archive.read("state_store/more.py") == b"MORE = 1"


def test_another_spark_or_other_sources_are_compiled(
    compilations: Compilations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.build(spark_directory(tmp_path / "older", "4.3.0"), tmp_path / "out")
    pyspark = spark_directory(tmp_path / "newer", "4.3.1")
    build.build(pyspark, tmp_path / "out")
    assert compilations.count == 2
    more = tmp_path / "sources/scala/More.scala"
    more.parent.mkdir(parents=True)
    (tmp_path / "sources/resources").mkdir()
    more.write_text("object More")
    monkeypatch.setattr(build, "CHECKOUT", tmp_path / "sources")
    build.build(pyspark, tmp_path / "out")
    assert compilations.count == 3


def test_a_file_of_a_release_is_for_later_ones_until_one_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scala/All", "scala-4.0/Moved", "scala-4.0/Kept", "scala-4.2/Moved", "scala-4.10/Kept"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.scala").touch()
    monkeypatch.setattr(build, "CHECKOUT", tmp_path)

    def of(spark: str) -> list[str]:
        return [path.relative_to(tmp_path).with_suffix("").as_posix() for path in build.scala_sources(spark)]

    assert of("4.0.5") == of("4.1.1") == ["scala/All", "scala-4.0/Kept", "scala-4.0/Moved"]
    assert of("4.2.0") == of("4.9.0") == ["scala/All", "scala-4.0/Kept", "scala-4.2/Moved"]
    assert of("4.10.0") == ["scala/All", "scala-4.10/Kept", "scala-4.2/Moved"]


def test_a_damaged_jar_is_built_again(compilations: Compilations, tmp_path: Path) -> None:
    pyspark = spark_directory(tmp_path / "spark", "4.3.0")
    jar, _ = build.build(pyspark, tmp_path / "out")
    content = jar.read_bytes()
    jar.write_bytes(content[: len(content) // 2])
    assert build.build(pyspark, tmp_path / "out") == (jar, True)
    assert jar.read_bytes() == content


def test_a_directory_that_cannot_be_written_is_named(compilations: Compilations, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(releases.BuildError, match=r"out/incremental.*cannot be written"):
        build.build(spark_directory(tmp_path / "spark", "4.3.0"), tmp_path / "out")


def test_the_refusal_of_another_spark_names_the_supported_ones(tmp_path: Path) -> None:
    with pytest.raises(
        releases.BuildError, match=r"Spark 3\.5\.1 is not supported: 4\.0, 4\.1, 4\.2 and 4\.3 are\. --force"
    ):
        build.build(spark_directory(tmp_path / "old", "3.5.1"), tmp_path / "out")


def test_a_directory_without_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(releases.BuildError, match="is not a pyspark package directory"):
        build.build(tmp_path, tmp_path / "out")


def test_a_virtual_environment_is_accepted(tmp_path: Path) -> None:
    spark_directory(tmp_path / "lib/python3.11/site-packages/pyspark", "3.5.1")
    with pytest.raises(releases.BuildError, match=r"Spark 3\.5\.1"):
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
def test_a_java_that_spark_does_not_run_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, says: str
) -> None:
    home = tmp_path / "jdk"
    if script is not None:
        (home / "bin").mkdir(parents=True)
        (home / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(
        releases.BuildError, match=f"{says}.*Java 17, 21 or 25 is needed.*openjdk-17-jdk-headless"
    ):
        build.java_version()


def test_the_java_of_this_machine_is_accepted() -> None:
    assert shutil.which("java")
    build.java_version()


@pytest.mark.tier("more")
def test_sources_that_do_not_compile_are_shown(tmp_path: Path) -> None:
    source = tmp_path / "Broken.scala"
    source.write_text("object Broken { val x: Int = nothing }\n")
    with pytest.raises(releases.BuildError, match=r"(?s)do not compile.*not found: value nothing"):
        build.compile_scala(releases.installed_pyspark() / "jars", [source], tmp_path)


def test_main_prints_the_error_without_a_stack_trace(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert build.main(["--pyspark", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("state_store.session.build: ")
