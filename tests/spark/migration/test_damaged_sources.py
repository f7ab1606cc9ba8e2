"""A damaged source is not migrated: the error names store, version and directory, and nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint

import state_store
from state_store.cli.main import main
from state_store.errors import DamagedError, StateStoreError

pytestmark = [pytest.mark.spark, pytest.mark.tier("long"), pytest.mark.timeout(900)]


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.fixture(scope="module")
def sources(scala_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a query in two state stores."""
    root = tmp_path_factory.mktemp("sources")
    found = {"incremental": checkpoint("flights", root), "rocksdb": root / "rocksdb"}
    state_store.migrate(found["incremental"], found["rocksdb"], "rocksdb")
    return found


@pytest.mark.parametrize(
    ("store", "file", "damage"),
    [
        ("incremental", "delta/*4_*.sst", flipped),
        ("rocksdb", "*.zip", flipped),
        ("rocksdb", "*.zip", cut),
    ],
)
def test_a_damaged_source_is_refused_by_its_name(
    sources: dict[str, Path],
    tmp_path: Path,
    store: str,
    file: str,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, target = Path(shutil.copytree(sources[store], tmp_path / "source")), tmp_path / "target"
    (path,) = (source / "state/0/1").glob(file)
    damage(path)
    to = "rocksdb" if store == "incremental" else "incremental"
    with pytest.raises(StateStoreError) as raised:
        state_store.migrate(source, target, to)
    assert isinstance(raised.value, DamagedError)
    assert "version 4 of store 0/1/default cannot be copied" in raised.value.message
    assert f"{source}/state/0/1" in raised.value.message
    assert "\n" not in raised.value.message
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source"]
    assert main(["migrate", str(source), str(target), "--to", to]) == 1
    assert raised.value.message in capsys.readouterr().err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source"]
