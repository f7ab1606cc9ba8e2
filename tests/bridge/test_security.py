"""The visibility of a running store to other users, and paths with names that a shell would misread."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import DriverError, Jvm

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

ODD = 'a b\'c "d" $(touch x) `touch x` ;& é ☃ %41 #'


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd") / ODD
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def jvm_at_odd_places(driver_class_path: str, odd: Path) -> Iterator[Jvm]:
    """The agent's interpreter is a script that notes the line that starts the agent."""
    python = odd / "python"
    python.write_text(
        "#!/bin/sh\n"
        "read -r line\n"
        'printf "%s\\n" "$line" > "$(dirname "$0")/start"\n'
        f'(printf "%s\\n" "$line"; cat) | {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    jvm = Jvm(driver_class_path, odd, python=str(python))
    yield jvm
    if jvm.process.poll() is None:
        jvm.kill()
    shutil.rmtree(jvm.tmp, ignore_errors=True)


def test_a_store_works_in_places_with_odd_names(jvm_at_odd_places: Jvm, odd: Path) -> None:
    jvm = jvm_at_odd_places
    jvm.provider("p", odd / "state", localDir=str(odd / "local"))
    version, id = jvm.batch("p", 0, None, a="1", b="2")
    version, id = jvm.batch("p", version, id, c="3")
    jvm.provider("q", odd / "state")
    assert jvm.rows("q", version, id) == {"a": "1", "b": "2", "c": "3"}
    assert len(list(odd.glob("state/**/delta/*.sst"))) == 2
    assert list(odd.glob("local/agent-*"))
    assert not (odd / "x").exists()


def test_the_token_is_not_visible(jvm_at_odd_places: Jvm, odd: Path) -> None:
    jvm = jvm_at_odd_places
    jvm.provider("r", odd / "other")
    version, _ = jvm.batch("r", 0, None, a="1")
    with pytest.raises(DriverError) as failure:
        jvm.rows("r", version + 1, "none")
    token = json.loads((odd / "start").read_text())["token"]
    assert len(token) == 32
    assert token not in str(failure.value)
    assert token not in jvm.log
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            try:
                assert token.encode() not in (process / file).read_bytes(), f"{process}/{file}"
            except OSError:
                continue
    for path in (*odd.rglob("*"), *jvm.tmp.rglob("*")):
        if path.is_file() and path.name != "start":
            assert token.encode() not in path.read_bytes(), path


def test_local_directories_are_this_users_alone(jvm_at_odd_places: Jvm, odd: Path) -> None:
    jvm = jvm_at_odd_places
    jvm.provider("s", odd / "third", localDir=str(odd / "local"))
    jvm.batch("s", 0, None, a="1")
    found = [path for path in (*jvm.tmp.iterdir(), *(odd / "local").iterdir()) if path.is_dir()]
    ours = [path for path in found if path.name.startswith(("state-store-", "agent-", "kept"))]
    assert len(ours) >= 3
    assert {path: oct(path.stat().st_mode & 0o777) for path in ours} == dict.fromkeys(ours, "0o700")
    assert all(path.stat().st_uid == os.getuid() for path in ours)
