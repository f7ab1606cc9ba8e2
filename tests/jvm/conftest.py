"""A fixture of a Java that only counts its compilations."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm.fakes import Compilations
from state_store.session import build


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilations:
    """Return a Java that only counts its compilations, beside a package that carries no jar."""
    found = Compilations(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(found.home))
    monkeypatch.setattr(build, "JAR_DIRECTORY", tmp_path / "carried")
    return found
