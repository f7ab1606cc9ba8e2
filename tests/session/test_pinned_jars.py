"""Jars that tests fetch are those that were pinned."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pinned_jars
import pytest

LIBRARIES = (
    *(pinned_jars.BROKER, pinned_jars.KAFKA, pinned_jars.DELTA, pinned_jars.ICEBERG),
    *(pinned_jars.S3_SERVICE, pinned_jars.SBT),
)
PIN = pinned_jars.Pin("org.example", "a", "1.0", hashlib.sha256(b"a").hexdigest())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_has_its_own_jar_first(library: str) -> None:
    first, *needed = pinned_jars.pins(library)
    assert f"{first.group}:{first.artifact}" == library
    assert not {f"{pin.group}:{pin.artifact}" for pin in needed} & set(LIBRARIES)
    assert all(len(bytes.fromhex(pin.sha256)) == 32 for pin in (first, *needed))


def test_the_pinned_jar_passes(tmp_path: Path) -> None:
    (tmp_path / "a-1.0.jar").write_bytes(b"a")
    pinned_jars.check(tmp_path, [PIN])


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a-1.0.jar").write_bytes(b"b")
    with pytest.raises(ValueError, match=r"are not those of maven_pins.txt: a-1.0.jar"):
        pinned_jars.check(tmp_path, [PIN])


def test_a_jar_that_is_missing_or_one_too_many_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b-1.0.jar").touch()
    with pytest.raises(ValueError, match=r"a-1.0.jar, b-1.0.jar"):
        pinned_jars.check(tmp_path, [PIN])
