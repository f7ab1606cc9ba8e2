"""`scripts/format_scala.py` runs only the jars whose digests are written down."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path

import pytest


def test_each_jar_of_scalafmt_has_a_digest(checkout: Path) -> None:
    script = runpy.run_path(str(checkout / "scripts/format_scala.py"))
    assert f"scalafmt-cli_2.13-{script['version']()}.jar" in script["digests"]()


def test_a_changed_and_an_unknown_jar_are_refused(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(checkout / "scripts/format_scala.py"))
    expected = {"a.jar": hashlib.sha256(b"a").hexdigest()}
    verify = script["verify"]
    monkeypatch.setitem(verify.__globals__, "digests", lambda: expected)
    (tmp_path / "a.jar").write_bytes(b"a")
    verify(tmp_path)
    (tmp_path / "b.jar").write_bytes(b"b")
    with pytest.raises(SystemExit, match=r"b\.jar"):
        verify(tmp_path)
    (tmp_path / "b.jar").unlink()
    (tmp_path / "a.jar").write_bytes(b"changed")
    with pytest.raises(SystemExit, match=r"a\.jar"):
        verify(tmp_path)
