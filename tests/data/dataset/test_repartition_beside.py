"""A repartition beside a running query: in the end what a repartition of the stopped query makes."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import checkpoint
from dataset.running_query import RunningQuery, described
from state_store.core.checkpoint.stored_documents import MARKER, ColumnFamily
from state_store.data.dataset.partitions import Partitions
from state_store.data.dataset.rewriting import beside as module
from state_store.data.dataset.rewriting.beside import HeldDeltas
from state_store.data.dataset.rewriting.copying import repartition
from state_store.data.dataset.views import views
from state_store.data.query import Query

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SOURCES = {
    "flights": GOLDEN / "states" / "flights",
    "types": GOLDEN / "states" / "types",
    "ids": GOLDEN / "release-0.2.0" / "ids",
    "no-ids": GOLDEN / "release-0.2.0" / "no-ids",
    "lists": GOLDEN / "lists-of-spark-4.1" / "incremental",
}


def running(name: str, directory: Path, seed: int = 0) -> RunningQuery:
    return RunningQuery(Path(shutil.copytree(SOURCES[name], directory / "source")), seed)


@pytest.fixture
def meanwhile(monkeypatch):
    """Run batches of a query before each look at its newest version but the first."""

    def goes_on(query: RunningQuery, *batches: int) -> None:
        todo = [0, *batches]
        look = HeldDeltas.look

        def looked(held: HeldDeltas) -> module.Look:
            if threading.current_thread() is threading.main_thread():
                for _ in range(todo.pop(0) if todo else 0):
                    query.batch()
            return look(held)

        monkeypatch.setattr(module, "FEW_VERSIONS", 1)

        monkeypatch.setattr(HeldDeltas, "look", looked)

    return goes_on


def families(target: str) -> dict[str, dict[str, tuple[bool, int]]]:
    """Return the column families of each store of the newest version, as its files describe them."""
    query = Query.open(target)
    found = {}
    for operator in query.operators:
        for view in views(query, operator).values():
            with closing(Partitions(query, view, query.newest_batch() + 1)) as partitions:
                for number in partitions.numbers:
                    described_families = partitions.described_families(number)
                    found[partitions.key(number).path] = {
                        name: (family.internal, family.keys) for name, family in described_families.items()
                    }
    return found


def check_equal(query: RunningQuery, target: str, root: Path, partitions: int) -> None:
    """Compare with a repartition of the stopped query, and go on with the target."""
    plain = str(root / "plain")
    done = repartition(str(query.root), plain, partitions)
    rows = described(plain)
    assert described(target) == rows
    assert families(target) == families(plain)
    assert sum(keys for store in families(target).values() for _, keys in store.values()) == done.rows
    assert not (Path(target) / MARKER).exists() and not (Path(target) / "_written").exists()
    for path in ("metadata", "offsets", "state/0/_metadata"):
        assert _texts(Path(target) / path, target) == _texts(Path(plain) / path, plain)
    assert sorted(path.name for path in Path(target, "commits").iterdir()) == sorted(
        path.name for path in Path(plain, "commits").iterdir()
    )
    assert state_store.verify(target, all_versions=True, leave_result=False).ok
    state_store.full_checkpoint(target)
    assert described(target) == rows
    RunningQuery(Path(target), 99).batch()
    assert state_store.verify(target, leave_result=False).ok


def _texts(path: Path, location: str) -> dict[str, str]:
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {file.relative_to(location).as_posix(): file.read_text().replace(location, "") for file in files}


@pytest.mark.parametrize(
    ("name", "partitions"),
    [("flights", 4), ("ids", 3), ("no-ids", 4), ("lists", 3), ("types", 1), ("flights", 3), ("no-ids", 1)],
)
def test_the_target_is_that_of_a_repartition_of_the_stopped_query(name, partitions, tmp_path, meanwhile):
    query, target = running(name, tmp_path), str(tmp_path / "target")
    query.batch()
    before = Query.open(str(query.root)).newest_batch() + 1
    meanwhile(query, 3, 2, 1)
    begun = repartition(str(query.root), target, partitions, running=True)
    assert not begun.is_complete and begun.version == before + 5
    assert (Path(target) / MARKER).exists()
    for _ in range(2):
        query.batch()
    done = repartition(str(query.root), target, partitions)
    assert done.is_complete and done.version == before + 8
    check_equal(query, target, tmp_path, partitions)
