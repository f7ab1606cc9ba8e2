"""A JVM for all histories."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import scala_jars

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bridge"))

from driver import Jvm


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    jvm = Jvm(scala_jars.probes_class_path(), tmp_path_factory.mktemp("jvm"))
    yield jvm
    jvm.end()
