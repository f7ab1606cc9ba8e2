"""A copy of the checkout to build from, and the wheel that `make wheel` builds."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import (
    DIST_VARIABLE,
    LEFT_OVER,
    SPARKS,
    STALE_JAR,
    Environment,
    built_sdist,
    built_wheel,
    environment_of,
    run,
    spark_environment,
)

from state_store.session.releases import jar_name


@pytest.fixture(scope="session")
def tree(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a copy of the checkout, without files that git ignores."""
    tree = tmp_path_factory.mktemp("tree")
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=checkout).stdout.splitlines()
    for name in listed:
        if (checkout / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, tree / name)
    return tree


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Make an environment with a build's requirements only, like a frontend's isolated build."""
    return Environment(tmp_path_factory.mktemp("builder"), "setuptools")


@pytest.fixture(scope="session")
def wheel(checkout: Path, tree: Path, builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the jars for all releases of Spark that are tested.

    The tree that it is built from has what may not be shipped, too: `STALE_JAR` and `LEFT_OVER`.
    """
    if DIST_VARIABLE in os.environ:
        (built,) = (checkout / os.environ[DIST_VARIABLE]).glob("*.whl")
        return built
    full = tmp_path_factory.mktemp("with-jars") / "tree"
    shutil.copytree(tree, full)
    (full / STALE_JAR).parent.mkdir()
    for spark in SPARKS:
        run(environment_of(checkout, spark), "-m", "state_store.session.build", cwd=checkout)
        shutil.copy(checkout / "state_store/jars" / jar_name(spark), full / "state_store/jars")
    (full / STALE_JAR).write_bytes(b"of other sources")
    (full / "build/lib" / LEFT_OVER).parent.mkdir(parents=True)
    (full / "build/lib" / LEFT_OVER).touch()
    return built_wheel(builder, full)


@pytest.fixture(scope="session")
def sdist(checkout: Path, tree: Path, builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    if DIST_VARIABLE in os.environ:
        (built,) = (checkout / os.environ[DIST_VARIABLE]).glob("*.tar.gz")
        return built
    room = tmp_path_factory.mktemp("sdist")
    return built_sdist(builder, shutil.copytree(tree, room / "tree"), room)


@pytest.fixture(scope="session")
def environments(
    checkout: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Environment]:
    """Return a function that makes a clean environment with a release of Spark and the wheel."""

    @functools.cache
    def made(spark: str) -> Environment:
        clean = spark_environment(checkout, spark, tmp_path_factory.mktemp(f"clean-{spark}"))
        clean.pip_install(wheel, cwd=clean.directory)
        return clean

    return made
