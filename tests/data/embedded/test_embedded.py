"""The store without a JVM, against a dict, and together with the agent."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from agent.harness import InProcess, Job, contents
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.core.engine.database import write_delta
from state_store.core.snapshots.merge import MAX_RUNS
from state_store.core.storage import open_storage
from state_store.core.storage.local import LocalStorage
from state_store.data import embedded
from state_store.data.embedded import EmbeddedStore
from state_store.errors import ConflictError, LocalDiskError, MissingError, OptionError, StorageError

KEYS = st.one_of(st.binary(max_size=3), st.sampled_from([b"", b"\xff", b"\xff\xff", b"a", b"ab", b"a\xff"]))
FAMILIES = st.sampled_from(["default", "index"])
Rows = dict[tuple[str, bytes], bytes]


class Machine(RuleBasedStateMachine):
    """Every operation, on the store and on a dict."""

    @initialize(root=st.uuids())
    def start(self, root: object) -> None:
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        self.store = EmbeddedStore.open(self.directory.name + "/state")
        self.store.create_family("index")
        self.rows: Rows = {}
        self.committed: dict[VersionId, Rows] = {VersionId(0, None): {}}
        self.store.commit()
        self.committed[self.store.version] = {}

    @rule(family=FAMILIES, key=KEYS, value=st.binary(max_size=4))
    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.store.put(key, value, family)
        self.rows[family, key] = value

    @rule(family=FAMILIES, key=KEYS)
    def remove(self, family: str, key: bytes) -> None:
        self.store.remove(key, family)
        self.rows.pop((family, key), None)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        self.remove(*data.draw(st.sampled_from(sorted(self.rows))))

    @rule(family=FAMILIES)
    def scan_all(self, family: str) -> None:
        assert list(self.store.scan(family=family)) == self.rows_of(family)

    @rule(family=FAMILIES, key=KEYS)
    def get(self, family: str, key: bytes) -> None:
        assert self.store.get(key, family) == self.rows.get((family, key))

    @rule(family=FAMILIES, start=KEYS, end=st.one_of(st.none(), KEYS))
    def scan(self, family: str, start: bytes, end: bytes | None) -> None:
        expected = [row for row in self.rows_of(family) if row[0] >= start and (end is None or row[0] < end)]
        assert list(self.store.scan(start, end, family)) == expected

    @rule(family=FAMILIES, prefix=KEYS)
    def prefix(self, family: str, prefix: bytes) -> None:
        expected = [row for row in self.rows_of(family) if row[0].startswith(prefix)]
        assert list(self.store.prefix(prefix, family)) == expected

    @rule()
    def commit(self) -> None:
        self.committed[self.store.commit()] = dict(self.rows)

    @rule()
    def abort(self) -> None:
        self.store.abort()
        self.rows = dict(self.committed[self.store.version])

    @precondition(lambda self: len(self.committed) > 2)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([version for version in self.committed if version.number]))
        self.store.load(at)
        self.rows = dict(self.committed[at])

    @precondition(lambda self: self.store.version.number > 1)
    @rule(full=st.booleans())
    def checkpoint(self, full: bool) -> None:
        from contextlib import suppress

        from state_store.errors import ConflictError

        with suppress(ConflictError):  # the version exists already
            self.store.checkpoint(full=full)

    @invariant()
    def the_counts_are_exact(self) -> None:
        if hasattr(self, "store"):
            for name, family in self.store.families.items():
                assert family.keys == len(self.rows_of(name))

    def rows_of(self, family: str) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for (name, key), value in self.rows.items() if name == family)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.directory.cleanup()


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_it_reads_the_agent_s_commits_and_the_agent_reads_its_own(tmp_path: Path) -> None:
    job = Job(InProcess(tmp_path / "local"), tmp_path / "state")
    job.commit({b"\0\0a": b"1", b"\0\0b": b"2"})
    job.commit({b"\0\0a": None})
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        assert store.version == VersionId(2, job.id)
        assert list(store.scan()) == [(b"b", b"2")]
        store.put(b"c", b"3")
        at = store.commit()
        store.checkpoint(full=True)
    job.versions[3] = (at.checkpoint_id, {b"\0\0b": b"2", b"\0\0c": b"3"})
    answer = job.restore(3)
    assert answer["snapshot_version"] == 3
    assert contents(answer["directory"]) == job.state
    with EmbeddedStore.open(str(tmp_path / "state"), version=VersionId(1, job.versions[1][0])) as store:
        assert dict(store.scan()) == {b"a": b"1", b"b": b"2"}


def test_a_removed_key_is_in_no_scan_before_or_after_the_commit(tmp_path: Path) -> None:
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        for key in (b"a", b"b", b"c"):
            store.put(key, b"1")
        store.commit()
        store.remove(b"b")
        store.put(b"c", b"2")
        assert list(store.scan()) == [(b"a", b"1"), (b"c", b"2")]
        store.commit()
        assert list(store.scan()) == [(b"a", b"1"), (b"c", b"2")]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_scan_shows_the_rows_of_its_moment(tmp_path: Path, is_begun: bool) -> None:
    with EmbeddedStore.open(tmp_path) as store:
        store.put(b"a", b"1")
        store.put(b"b", b"1")
        store.commit()
        store.put(b"c", b"1")
        scan = store.scan(end=b"x")
        found = [next(scan)] if is_begun else []
        store.put(b"b", b"2")
        store.put(b"d", b"2")
        store.remove(b"a")
        store.commit()
        assert [*found, *scan] == [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
        assert list(store.scan()) == [(b"b", b"2"), (b"c", b"1"), (b"d", b"2")]


def test_no_family_gets_the_id_that_a_removed_one_had(tmp_path: Path) -> None:
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_family("removed")
        store.put(b"a", b"1", "removed")
        first = store.commit()
    at = VersionId(2, "01234567-89ab-cdef-0123-456789abcdef")
    kept = {"default": ColumnFamily(0)}
    metadata = DeltaMetadata(2, at.checkpoint_id, first.checkpoint_id, 0, 0, 1, kept, last_family=1)
    delta = tmp_path / "delta.sst"
    _, crc = write_delta(delta, [(b"\0\1a", None)], metadata)
    name = DeltaName(2, at.checkpoint_id, first.checkpoint_id, crc)
    open_storage(str(tmp_path / "store")).upload(delta, name.path)
    with EmbeddedStore.open(tmp_path / "store") as store:
        assert store.version == at
        store.put(b"b", b"1")
        store.commit()
        store.create_family("dropped")
        store.abort()
        store.create_family("later")
        assert store.families["later"].id == 2
        store.commit()
    with EmbeddedStore.open(tmp_path / "store") as store:
        store.create_family("last")
        assert store.families["last"].id == 3


def test_an_unknown_family_is_named_with_the_existing_ones(tmp_path: Path) -> None:
    with (
        EmbeddedStore.open(str(tmp_path / "state")) as store,
        pytest.raises(MissingError, match=r"'joined'.*there are: default"),
    ):
        store.get(b"a", "joined")


def test_nothing_of_it_remains(tmp_path: Path) -> None:
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        directory = store._directory
        store.put(b"a", b"1")
    assert not directory.exists()
    assert not (tmp_path / "state").exists()


def test_many_commits_and_checkpoints_leave_few_files_and_one_directory(tmp_path: Path) -> None:
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(3 * MAX_RUNS):
            store.put(b"key", b"%d" % number)
            store.put(b"key-%d" % number, b"")
            store.commit()
            if number % 20 == 0:
                store.checkpoint(full=number == 20)
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= MAX_RUNS + 2
        assert len(list(store._directory.glob("work/base-*"))) == 1
        assert store.get(b"key") == b"%d" % (3 * MAX_RUNS - 1)
        assert len(list(store.scan())) == 3 * MAX_RUNS + 1
        version = store.version
    with EmbeddedStore.open(str(tmp_path / "state")) as again:
        assert again.version == version
        assert len(list(again.scan())) == 3 * MAX_RUNS + 1


def test_rows_of_spark_are_decoded_to_arrow(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        for number in range(3):
            store.put(bytes(9) + number.to_bytes(8, "little"), bytes(9) + (number * 10).to_bytes(8, "little"))
        key, value = (arrow.schema([(name, arrow.int64())]) for name in ("id", "total"))
        assert store.to_arrow(key=key, value=value).to_pylist() == [
            {"id": number, "total": number * 10} for number in range(3)
        ]
        assert store.to_arrow(value=value).column_names == ["key", "total"]


@pytest.mark.dear("stands for the embedded store")
def test_the_example_counts_and_continues(tmp_path: Path, checkout: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "examples/embedded_store.py", str(tmp_path / "state")]
    for run in (1, 2):
        result = subprocess.run(
            command,
            cwd=checkout,
            env={"PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert f"{{'key': b'the', 'value': b'{4 * run}'}}" in result.stdout, result.stderr
        assert f"version {3 * run}: and the fox" in result.stdout


@pytest.mark.parametrize("step", ["open", "load", "commit", "checkpoint"])
def test_a_full_local_disk_is_an_error_of_the_store(tmp_path, monkeypatch, step):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "x"))

    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        store.put(b"a", b"1")
        store.commit()
        store.put(b"b", b"2")
        steps = {
            "open": lambda: EmbeddedStore.open(str(tmp_path / "state")),
            "load": store.load,
            "commit": store.commit,
            "checkpoint": store.checkpoint,
        }
        with monkeypatch.context() as patch:
            patch.setattr(os, "mkdir", fail)
            with pytest.raises(LocalDiskError, match=r"the disk of '.*' is full: No space left"):
                steps[step]()
        assert store.get(b"b") == b"2"
        store.commit()
        assert store.get(b"b") == b"2"


def test_the_second_writer_of_a_version_gets_an_error(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    with EmbeddedStore.open(directory) as first, EmbeddedStore.open(directory) as second:
        first.put(b"a", b"1")
        second.put(b"a", b"2")
        first.commit()
        with pytest.raises(ConflictError, match="committed by another program meanwhile"):
            second.commit()
        assert len(second.versions()) == 1
        assert second.get(b"a") == b"2"
        second.load()
        assert second.get(b"a") == b"1"
        second.put(b"a", b"3")
        assert second.commit().number == 2
        first.put(b"b", b"4")
        with pytest.raises(ConflictError):
            first.commit()
    with EmbeddedStore.open(directory) as store:
        assert dict(store.scan()) == {b"a": b"3"}


class Pausing(LocalStorage):
    """Storage in which others work after a delta was stored, before its writer looks."""

    def __init__(self, directory: str, others: Callable[[], object]) -> None:
        super().__init__(directory)
        self._others: Callable[[], object] | None = others

    def upload(self, local: Path, path: str, *, overwrite: bool = False) -> None:
        super().upload(local, path, overwrite=overwrite)
        others, self._others = self._others, None
        if others is not None:
            others()


def opened(directory: str, *, has_ids: bool) -> EmbeddedStore:
    return EmbeddedStore.open(directory, has_checkpoint_ids=has_ids)


def paused(directory: str, scratch: Path, others: Callable[[], object], *, has_ids: bool) -> EmbeddedStore:
    """Return a store at the newest version; others work in the midst of its first commit."""
    scratch.mkdir()
    store = EmbeddedStore(Pausing(directory, others), scratch, has_checkpoint_ids=has_ids)
    store.load()
    return store


def commit_of(store: EmbeddedStore, key: bytes) -> VersionId:
    store.put(key, b"1")
    return store.commit()


def rows_of(directory: str, *, has_ids: bool) -> set[bytes]:
    with opened(directory, has_ids=has_ids) as store:
        return {key for key, _ in store.scan()}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_version_that_another_program_has_gone_on_from_counts(tmp_path: Path, has_ids: bool) -> None:
    directory = str(tmp_path / "state")

    def go_on() -> None:
        with opened(directory, has_ids=has_ids) as other:
            commit_of(other, b"b")
            commit_of(other, b"c")

    with paused(directory, tmp_path / "scratch", go_on, has_ids=has_ids) as store:
        assert commit_of(store, b"a").number == 1
        with pytest.raises(ConflictError):
            commit_of(store, b"d")
    assert rows_of(directory, has_ids=has_ids) == {b"a", b"b", b"c"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_commit_on_a_version_that_is_given_up_stays_or_is_refused(tmp_path: Path, has_ids: bool) -> None:
    """A program goes on from a version, and another commits that version as well."""
    directory = str(tmp_path / "state")
    rival = opened(directory, has_ids=has_ids)
    counted: list[bytes] = []

    def attempt(store: EmbeddedStore, key: bytes) -> None:
        with suppress(ConflictError):
            commit_of(store, key)
            counted.append(key)

    def others() -> None:
        with opened(directory, has_ids=has_ids) as third:
            assert third.version.number == 1
            attempt(rival, b"b")
            attempt(third, b"c")

    with rival, paused(directory, tmp_path / "scratch", others, has_ids=has_ids) as store:
        attempt(store, b"a")
    with opened(directory, has_ids=has_ids) as again:
        rows = {key for key, _ in again.scan()}
        assert rows >= set(counted)
        assert commit_of(again, b"d").number == again.version.number
    assert rows_of(directory, has_ids=has_ids) == rows | {b"d"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_commit_stays_that_began_before_its_version_was_given_up(tmp_path: Path, has_ids: bool) -> None:
    directory = str(tmp_path / "state")
    rival = opened(directory, has_ids=has_ids)

    def others() -> None:
        with opened(directory, has_ids=has_ids) as third:
            commit_of(third, b"c")
        with pytest.raises(ConflictError):
            commit_of(rival, b"b")

    with rival, paused(directory, tmp_path / "scratch", others, has_ids=has_ids) as store:  # noqa: SIM117
        with suppress(ConflictError):
            commit_of(store, b"a")
    assert rows_of(directory, has_ids=has_ids) == {b"a", b"c"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_nothing_is_read_of_a_commit_that_gave_way(tmp_path: Path, has_ids: bool) -> None:
    directory = str(tmp_path / "state")
    rival = opened(directory, has_ids=has_ids)
    counted = set()

    def others() -> None:
        with pytest.raises(ConflictError):
            commit_of(rival, b"b")

    with rival, paused(directory, tmp_path / "scratch", others, has_ids=has_ids) as store:
        with suppress(ConflictError):
            commit_of(store, b"a")
            counted.add(b"a")
        rival.load()
        assert {key for key, _ in rival.scan()} == counted
        assert len(rival.versions()) == len(counted) == rival.version.number
        commit_of(rival, b"d")
    assert rows_of(directory, has_ids=has_ids) == counted | {b"d"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_commit_while_a_store_is_loaded_is_not_passed_over(tmp_path, monkeypatch, has_ids: bool) -> None:
    directory = str(tmp_path / "state")
    with opened(directory, has_ids=has_ids) as store, opened(directory, has_ids=has_ids) as other:
        with monkeypatch.context() as patch:

            def late(*arguments: Any) -> Any:
                patch.undo()
                commit_of(other, b"a")
                return embedded.restore(*arguments)

            patch.setattr(embedded, "restore", late)
            store.load()
        assert store.version.number == 0
        with pytest.raises(ConflictError):
            commit_of(store, b"b")
    assert rows_of(directory, has_ids=has_ids) == {b"a"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_commit_may_be_repeated_whose_answer_was_lost(tmp_path: Path, has_ids: bool) -> None:
    directory = str(tmp_path / "state")

    def lose() -> None:
        raise StorageError("the answer was lost")

    with paused(directory, tmp_path / "scratch", lose, has_ids=has_ids) as store:
        with pytest.raises(StorageError):
            commit_of(store, b"a")
        assert commit_of(store, b"b").number == 1
        assert commit_of(store, b"c").number == 2
    assert rows_of(directory, has_ids=has_ids) == {b"a", b"b", b"c"}


@pytest.mark.parametrize("method", ["ingest", "compact_runs"])
def test_a_commit_whose_rows_do_not_fit_on_the_disk_is_made_once(tmp_path, monkeypatch, method: str) -> None:
    """The disk is full when the delta is stored already."""
    directory = str(tmp_path / "state")

    def full(*_: object) -> None:
        raise LocalDiskError("the disk is full", file=directory)

    monkeypatch.setattr(embedded.merge, "MAX_RUNS", 0)
    with opened(directory, has_ids=True) as store:
        commit_of(store, b"a")
        with monkeypatch.context() as patch:
            patch.setattr(embedded.Database, method, full)
            with suppress(LocalDiskError):
                commit_of(store, b"b")
        before = store.version.number
        store.abort()
        assert {key for key, _ in store.scan()} == ({b"a", b"b"} if before == 2 else {b"a"})
        assert store.families["default"].keys == before
        commit_of(store, b"b")
        commit_of(store, b"c")
        assert store.families["default"].keys == 3 == len(list(store.scan()))
        assert len(store.versions()) == store.version.number
    assert rows_of(directory, has_ids=True) == {b"a", b"b", b"c"}


def test_the_checkpoint_of_a_query_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "checkpoint/offsets").mkdir(parents=True)
    (tmp_path / "checkpoint/offsets/0").write_text("v1")
    with pytest.raises(OptionError, match="the checkpoint of a query: its stores are below it"):
        EmbeddedStore.open(str(tmp_path / "checkpoint"))


def test_wrong_types_are_refused(tmp_path: Path) -> None:
    with EmbeddedStore.open(str(tmp_path / "state")) as store:
        for wrong in ("fox", 3, None):
            with pytest.raises(OptionError, match="key is bytes"):
                store.get(wrong)  # type: ignore[arg-type]
            with pytest.raises(OptionError, match="value is bytes"):
                store.put(b"fox", wrong)  # type: ignore[arg-type]
            with pytest.raises(OptionError, match="prefix is bytes"):
                store.prefix(wrong)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="version is a VersionId"):
            store.load(1)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="location is empty"):
        EmbeddedStore.open("")
