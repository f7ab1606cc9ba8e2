"""The jar that a session gets: the carried one, one kept from an earlier use, or one compiled now, once."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jvm.fakes import Compilations, spark_directory
from state_store.errors import OptionError
from state_store.session import build, jar, releases

NAME = "incremental-state-store-spark-4.3.jar"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: Compilations) -> Path:
    """Return the directory of an installed package without jars, beside a pyspark 4.3.0.

    The directories `cache` and `tmp` below it are the cache and the directory for temporary files.
    """
    pyspark = spark_directory(tmp_path / "pyspark", "4.3.0")
    monkeypatch.setattr(releases, "installed_pyspark", lambda: pyspark)
    monkeypatch.setattr(releases, "installed_spark", lambda: "4.3.0")
    monkeypatch.setattr(build, "is_checkout", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


def carry(installed: Path, version: str) -> Path:
    path = installed / "carried" / releases.jar_name(version)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    return path


def test_the_carried_jar_is_chosen_by_the_minor_version(installed, compilations):
    older, newer = carry(installed, "4.2"), carry(installed, "4.3")
    assert jar.jar_path("4.2.7") == older
    assert jar.jar_path() == newer
    assert compilations.count == 0


def test_the_first_use_prints_a_line_and_compiles_a_jar_that_is_kept(installed, compilations, capsys):
    found = jar.jar_path()
    assert found.name == NAME
    assert installed / "cache/incremental-state-store/jars" in found.parents
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert "compiling the jar for Spark 4.3.0, once" in line
    assert str(found.parent) in line
    assert jar.jar_path() == found
    assert capsys.readouterr().err == ""
    assert compilations.count == 1


def test_the_kept_jar_is_of_these_sources(installed, compilations, monkeypatch):
    before = jar.jar_path()
    code = {**build.agent_code(), "state_store/more.py": b"MORE = 1"}
    monkeypatch.setattr(build, "agent_code", lambda: code)
    assert jar.jar_path() != before


def test_a_damaged_kept_jar_is_built_again(installed, compilations):
    found = jar.jar_path()
    content = found.read_bytes()
    found.write_bytes(content[:100])
    assert jar.jar_path() == found
    assert found.read_bytes() == content


def test_a_single_caller_compiles_for_all_concurrent_callers(installed, compilations):
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: jar.jar_path(), range(4)))
    assert len(found) == 1
    assert compilations.count == 1


def test_the_temporary_directory_replaces_a_home_that_cannot_be_written(installed, compilations):
    (installed / "cache").touch()
    found = jar.jar_path()
    root = installed / "tmp" / f"incremental-state-store-{os.getuid()}"
    assert root in found.parents
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert jar.jar_path() == found
    assert compilations.count == 1


@pytest.mark.parametrize("planted", ["writable by others", "a link", "a file"])
def test_a_jar_that_others_could_have_put_there_is_not_taken(installed, compilations, planted):
    (installed / "cache").touch()
    found = jar.jar_path()
    root = installed / "tmp" / f"incremental-state-store-{os.getuid()}"
    if planted == "writable by others":
        root.chmod(0o777)
    else:
        root.rename(installed / "elsewhere")
        root.touch() if planted == "a file" else root.symlink_to(installed / "elsewhere")
    other = jar.jar_path()
    assert other != found
    assert root not in other.parents
    assert compilations.count == 2


def test_a_checkout_brings_its_own_jar_up_to_date(installed, compilations, monkeypatch, capsys):
    stale = carry(installed, "4.3")
    monkeypatch.setattr(build, "is_checkout", lambda: True)
    assert jar.jar_path() == stale
    assert build.stamped(stale) == build.current("4.3.0")
    assert "compiling" in capsys.readouterr().err
    assert not (installed / "cache").exists()


def test_the_error_for_another_version_names_the_supported_ones(installed):
    with pytest.raises(
        OptionError, match=r"4\.0, 4\.1, 4\.2 and 4\.3 are supported.*state-store jar --build"
    ):
        jar.jar_path("3.5.1")


def test_a_jar_that_was_built_for_another_version_is_taken(installed):
    built = carry(installed, "4.4")
    assert jar.jar_path("4.4.0") == built


def test_the_error_names_the_missing_part(installed, monkeypatch):
    with pytest.raises(OptionError, match=r"no jar for Spark 4\.2\.0.*installed pyspark is 4\.3\.0"):
        jar.jar_path("4.2.0")
    monkeypatch.setenv("JAVA_HOME", str(installed / "nowhere"))
    with pytest.raises(
        OptionError, match=r"nowhere/bin/java cannot be run.*Java 17, 21 or 25 is needed.*apt-get"
    ):
        jar.jar_path()
    monkeypatch.setattr(releases, "installed_pyspark", lambda: installed / "cache")
    with pytest.raises(OptionError, match="no jars directory"):
        jar.jar_path()


def test_releases_are_printed_for_the_makefile(capsys, monkeypatch):
    older = [("4.2.0", "4.2"), ("4.1.1", "4.1"), ("4.0.1", "4.0")]
    lines = [f"{spark} incremental-state-store-spark-{minor}.jar\n" for spark, minor in older]
    monkeypatch.setattr("sys.version_info", (3, 11, 7))
    releases.main()
    assert capsys.readouterr().out == f"4.3.0 {NAME}\n" + "".join(lines)
    monkeypatch.setattr("sys.version_info", (3, 10, 1))
    releases.main()
    assert capsys.readouterr().out == "".join(lines)
