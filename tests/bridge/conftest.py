"""Fixtures of the tests of the bridge between an executor's JVM and its agent."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import scala_jars
from driver import Jvm


@pytest.fixture(scope="session")
def driver_class_path() -> str:
    return scala_jars.probes_class_path()


@pytest.fixture(scope="module")
def shared_jvm(driver_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    jvm = Jvm(driver_class_path, tmp_path_factory.mktemp("jvm"))
    yield jvm
    _end(jvm)


@pytest.fixture
def jvm(shared_jvm: Jvm) -> Iterator[Jvm]:
    """Yield a JVM that a module's tests share; after each, providers are closed and file calls reset."""
    yield shared_jvm
    shared_jvm("on_fs", operation="never", action="fail")
    shared_jvm("close_all")


@pytest.fixture
def own_jvm(driver_class_path: str, tmp_path: Path) -> Iterator[Jvm]:
    """Yield a JVM for a single test, which may end it."""
    jvm = Jvm(driver_class_path, tmp_path)
    yield jvm
    _end(jvm)


def _end(jvm: Jvm) -> None:
    if jvm.process.poll() is None:
        jvm.kill()
    shutil.rmtree(jvm.tmp, ignore_errors=True)
