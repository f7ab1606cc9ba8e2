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
    SPARKS,
    Environment,
    built_wheel,
    environment_of,
    run,
    spark_environment,
)


@pytest.fixture(scope="session")
def tree(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, without what git ignores."""
    tree = tmp_path_factory.mktemp("tree")
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=checkout).stdout.splitlines()
    for name in listed:
        if (checkout / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, tree / name)
    return tree


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with what a build needs and no more, as frontends make one for an isolated build."""
    return Environment(tmp_path_factory.mktemp("builder"), "setuptools")


@pytest.fixture(scope="session")
def wheel(checkout: Path, tree: Path, builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the jars for all releases of Spark that are tested."""
    if DIST_VARIABLE in os.environ:
        (built,) = (checkout / os.environ[DIST_VARIABLE]).glob("*.whl")
        return built
    full = tmp_path_factory.mktemp("with-jars") / "tree"
    shutil.copytree(tree, full)
    for spark in SPARKS:
        run(environment_of(checkout, spark), "-m", "state_store.jvm.build", cwd=checkout)
    shutil.copytree(checkout / "state_store/jars", full / "state_store/jars")
    return built_wheel(builder, full)


@pytest.fixture(scope="session")
def environments(
    checkout: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Environment]:
    """Gives the clean environment with a release of Spark and the wheel."""

    @functools.cache
    def made(spark: str) -> Environment:
        clean = spark_environment(checkout, spark, tmp_path_factory.mktemp(f"clean-{spark}"))
        clean.pip_install(wheel, cwd=clean.directory)
        return clean

    return made
