"""Options of the tests' JVMs name an archive that lies in a directory with blanks."""

from __future__ import annotations

import fcntl
import shlex
import subprocess
import threading
from pathlib import Path

import pyspark
import pytest
import quick_java
import scala_jars

pytestmark = [pytest.mark.spark]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache with blanks in its name, in which archives are empty files."""
    cache = tmp_path / "the cache of a user"
    monkeypatch.setattr(quick_java, "ARCHIVES", cache)
    monkeypatch.delenv(quick_java.VARIABLE, raising=False)
    monkeypatch.delenv(scala_jars.PROBES_VARIABLE, raising=False)
    return cache


def option_of(options: list[str], name: str) -> str:
    """Return the value of a Java option, which must be there once."""
    (value,) = (option.partition("=")[2] for option in options if option.startswith(f"{name}="))
    return value


def test_the_archive_of_spark_is_one_option(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def program(room: Path, options: list[str]) -> tuple[list[str], str]:
        command, _ = spark_program(room, options)
        java = shlex.split(command[command.index("--driver-java-options") + 1])
        made.append(Path(option_of(java, "-XX:ArchiveClassesAtExit")))
        return ["touch", str(made[0])], ""

    spark_program = quick_java._spark_program
    monkeypatch.setattr(quick_java, "_spark_program", program)
    options = shlex.split(quick_java.spark_options.__wrapped__())
    archive = Path(option_of(options, "-XX:SharedArchiveFile"))
    assert archive.is_file()
    assert [path.is_relative_to(cache) for path in (archive, *made)] == [True, True]


def test_the_archive_of_the_probes_is_one_option(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def program(room: Path, options: list[str]) -> tuple[list[str], str]:
        command, _ = probe_program(room, options)
        made.append(Path(option_of(command, "-XX:ArchiveClassesAtExit")))
        return ["touch", str(made[0])], ""

    jar = cache.parent / "a.jar"
    jar.touch()
    for name in ("probes_jar", "state_store_jar"):
        monkeypatch.setattr(scala_jars, name, lambda: jar)
    probe_program = quick_java._probe_program
    monkeypatch.setattr(quick_java, "_probe_program", program)
    archive = Path(option_of(quick_java.probe_options.__wrapped__(), "-XX:SharedArchiveFile"))
    assert archive.is_file()
    assert [path.is_relative_to(cache) for path in (archive, *made)] == [True, True]


def test_the_answers_of_a_program_have_no_warnings_of_the_jvm_among_them() -> None:
    unknown_tags = "-Xlog:gc+cds=info:stderr"
    command = ["java", *quick_java.QUICK_START.split(), unknown_tags, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "No tag set matches" in done.stderr
    assert done.stdout == ""


def test_nobody_waits_for_long_for_an_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(room: Path, options: list[str]) -> tuple[list[str], str]:
        return ["touch", option_of(options, "-XX:ArchiveClassesAtExit")], ""

    monkeypatch.setattr(quick_java, "_spark_program", program)
    monkeypatch.setattr(quick_java, "MAX_WAIT_S", 0.0)
    cache.mkdir()
    with open(cache / f"spark-{pyspark.__version__}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert quick_java.spark_options.__wrapped__() == quick_java.QUICK_START
    for thread in threading.enumerate():
        if thread.name.startswith("archive of"):
            thread.join()
    archive = Path(option_of(shlex.split(quick_java.spark_options.__wrapped__()), "-XX:SharedArchiveFile"))
    assert archive.is_file()
