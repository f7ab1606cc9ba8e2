"""Packages installed from source in each way work: from a directory, git, a source archive."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from environments import (
    NEWEST,
    Environment,
    built_wheel,
    environment_of,
    of_a_small_query,
    run,
    spark_environment,
)
from jvm.fakes import Compilations

from state_store.session.releases import jar_name

pytestmark = [pytest.mark.packaging]


@pytest.fixture
def java(tmp_path: Path) -> Compilations:
    """Make a Java that compiles nothing, but counts its calls."""
    return Compilations(tmp_path)


def jars(environment: Environment) -> list[str]:
    return sorted(path.name for path in environment.site.glob("state_store/jars/*"))


def test_a_build_beside_pyspark_makes_its_jar(checkout, tree, java, tmp_path):
    clean = spark_environment(checkout, NEWEST, tmp_path / "env", "setuptools")
    clean.pip_install(shutil.copytree(tree, tmp_path / "tree"), cwd=tmp_path, JAVA_HOME=str(java.home))
    assert java.count == 1
    assert jars(clean) == [jar_name(NEWEST)]
    found = clean.run("state-store", "jar", cwd=tmp_path, JAVA_HOME="/nowhere").stdout.strip()
    assert found == str(clean.site / "state_store/jars" / jar_name(NEWEST))


def test_a_build_without_java_leaves_the_jar_to_the_first_use(checkout, tree, java, tmp_path):
    clean = spark_environment(checkout, NEWEST, tmp_path / "env", "setuptools")
    clean.pip_install(shutil.copytree(tree, tmp_path / "tree"), cwd=tmp_path, JAVA_HOME="/nowhere")
    assert jars(clean) == []
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    refused = clean.run("state-store", "jar", cwd=tmp_path, check=False, JAVA_HOME="/nowhere", **cache)
    assert refused.returncode == 2
    assert "/nowhere/bin/java cannot be run" in refused.stderr
    assert "apt-get install" in refused.stderr
    done = clean.run("state-store", "jar", cwd=tmp_path, JAVA_HOME=str(java.home), **cache)
    assert "compiling the jar" in done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "cache")
    again = clean.run("state-store", "jar", cwd=tmp_path, JAVA_HOME="/nowhere", **cache)
    assert (again.stdout, again.stderr) == (done.stdout, "")


@pytest.fixture
def from_git(checkout, tree, builder, tmp_path) -> Environment:
    """Make an environment as `pip install git+...` leaves it, whose isolated build has no pyspark."""
    repository = shutil.copytree(tree, tmp_path / "repository")
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "all"]):
        run("git", *command, cwd=repository)
    builder.pip_install("--target", tmp_path / "built", f"git+file://{repository}", cwd=tmp_path)
    clean = spark_environment(checkout, NEWEST, tmp_path / "env")
    for path in (tmp_path / "built").iterdir():
        if path.name != "bin":
            shutil.move(path, clean.site / path.name)
    assert jars(clean) == []
    return clean


def test_from_git_by_an_isolated_build_the_first_use_compiles_the_jar(from_git, java, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = from_git.run(
        "python", "-m", "state_store.cli", "jar", cwd=tmp_path, JAVA_HOME=str(java.home), **cache
    )
    assert done.stderr.count("compiling the jar") == 1
    assert java.count == 1
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "cache")


@pytest.mark.tier("long")
@pytest.mark.spark
def test_from_git_the_first_query_compiles_the_jar_of_a_checkout(from_git, checkout, tmp_path):
    """The compiler and the query are real, and the same sources make the same bytes in any directory."""
    clean = from_git
    (tmp_path / "work").mkdir()
    script = shutil.copy(Path(__file__).with_name("small_query.py"), tmp_path)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = clean.run("python", script, tmp_path / "work", cwd=tmp_path, **cache, **of_a_small_query(NEWEST))
    assert done.stderr.count("compiling the jar") == 1
    (compiled,) = (tmp_path / "cache").rglob("*.jar")
    run(environment_of(checkout, NEWEST), "-m", "state_store.session.build", cwd=checkout)
    assert compiled.read_bytes() == (checkout / "state_store/jars" / jar_name(NEWEST)).read_bytes()
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["package"].startswith(str(clean.site))
    assert len(found["files"]["delta"]) + len(found["files"]["snapshot"]) >= 6


def test_the_source_archive_builds_the_same_wheel_as_the_tree(sdist, wheel, builder, tmp_path):
    """Except for the jars, the wheel equals that of `python -m build`, which uses the source archive."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "extracted")
    (extracted,) = (tmp_path / "extracted").iterdir()
    with zipfile.ZipFile(built_wheel(builder, extracted)) as rebuilt, zipfile.ZipFile(wheel) as original:
        names = [name for name in original.namelist() if not name.endswith(".jar")]
        assert rebuilt.namelist() == names
        differing = [name for name in names if rebuilt.read(name) != original.read(name)]
    # RECORD lists the jars, and WHEEL names the setuptools that built it.
    assert {name.rpartition("/")[2] for name in differing} <= {"RECORD", "WHEEL"}
