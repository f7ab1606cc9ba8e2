"""HDFS that fails under a store: a dead DataNode, a NameNode that restarts, safe mode, rights, a quota.

Both ways to HDFS: connections that the JVM lends, and WebHDFS. Each failure heals, or is an error that names
the file and what to do; afterwards the store goes on, and nothing is lost.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from minihdfs import HdfsCluster

from state_store.core.checkpoint.names import TEMPORARY_SUFFIX
from state_store.core.storage import Entry, Storage, open_storage
from state_store.core.storage.webhdfs import WebHdfsStorage
from state_store.errors import StateStoreError, StorageError

from .file_server import serving
from .witness import Witness

pytestmark = [pytest.mark.hdfs, pytest.mark.spark]
pytest.importorskip("hdfs")

Open = Callable[[str], Storage]
"""Takes a path of the cluster, and gives the storage there."""


@pytest.fixture(params=["jvm", "webhdfs"])
def opened(request, hdfs_cluster: HdfsCluster) -> Open:
    if request.param == "webhdfs":
        return lambda path: open_storage(hdfs_cluster.webhdfs(path))
    jvm = request.getfixturevalue("hdfs_jvm")
    return lambda path: open_storage(f"{hdfs_cluster.uri}{path}", jvm=jvm)


@pytest.fixture
def path() -> str:
    return f"/faults/{uuid.uuid4()}"


@pytest.fixture
def witness(opened: Open, path: str, tmp_path: Path) -> Witness:
    """Return a store with a few versions."""
    witness = Witness(opened(path), tmp_path)
    for _ in range(3):
        witness.commit()
    witness.checkpoint()
    return witness


def goes_on(witness: Witness) -> None:
    """The store takes commits, snapshots and clean-ups, and all is there."""
    witness.commit()
    witness.checkpoint(full=True)
    witness.clean_up(keep=2)
    witness.check(newest=2)


def test_in_safe_mode_nothing_is_written_and_all_is_read(
    hdfs_cluster: HdfsCluster,
    witness: Witness,
) -> None:
    newest = witness.store.version
    with hdfs_cluster.in_safe_mode():
        for write in (witness.store.commit, witness.store.checkpoint):
            with pytest.raises(StorageError, match=r"faults/.*`hdfs dfsadmin -safemode get`") as refused:
                write()
            assert "\n" not in refused.value.message
        assert witness.restored(newest) == witness.rows[newest]
    goes_on(witness)


def _denied(cluster: HdfsCluster, path: str, stranger: Storage) -> None:
    cluster.set_mode(path, "755")
    (present, *_) = stranger.list_files("delta")
    with pytest.raises(StorageError, match=r"delta/a.*Permission denied.*must be allowed to") as refused:
        stranger.write("delta/a", b"a")
    assert "\n" not in refused.value.message
    with pytest.raises(StorageError, match=r"delta/.*must be allowed to"):
        stranger.delete(f"delta/{present.name}")
    cluster.set_mode(path, "700")
    with pytest.raises(StorageError, match=r"delta.*must be allowed to"):
        stranger.list_files("delta")


@pytest.mark.parametrize("opened", ["webhdfs"], indirect=True)
def test_a_denied_permission_is_named(hdfs_cluster: HdfsCluster, witness: Witness, path: str) -> None:
    _denied(hdfs_cluster, path, WebHdfsStorage([hdfs_cluster.web], path, user="stranger"))
    goes_on(witness)


@pytest.mark.tier("long")
@pytest.mark.parametrize("opened", ["jvm"], indirect=True)
def test_a_permission_denied_to_the_jvm_is_named(
    hdfs_cluster: HdfsCluster, witness: Witness, path: str
) -> None:
    conf, user = hdfs_cluster.configuration, {"HADOOP_USER_NAME": "stranger"}
    with serving(hdfs_cluster.uri, configuration=conf, environment=user) as jvm:
        _denied(hdfs_cluster, path, open_storage(f"{hdfs_cluster.uri}{path}", jvm=jvm))
    goes_on(witness)


def test_an_exceeded_quota_is_named_with_the_fix_and_loses_nothing(
    hdfs_cluster: HdfsCluster, witness: Witness, path: str
) -> None:
    before = _finished(witness.storage)
    hdfs_cluster.set_space_quota(path, 1000)
    try:
        with pytest.raises(StorageError, match=r"delta/.*quota.*exceeded.*-setSpaceQuota"):
            witness.store.commit()
        with pytest.raises(StorageError, match=r"quota.*exceeded"):
            witness.store.checkpoint(full=True)
        assert witness.restored(witness.store.version) == witness.rows[witness.store.version]
    finally:
        hdfs_cluster.set_space_quota(path, None)
    assert _finished(witness.storage) == before
    goes_on(witness)


def _finished(storage: Storage) -> dict[str, list[Entry]]:
    """Return the files without the unfinished ones, which are swept later, by their age."""
    return {
        directory: [
            entry for entry in storage.list_files(directory) if not entry.name.endswith(TEMPORARY_SUFFIX)
        ]
        for directory in ("delta", "shared", "snapshot")
    }


@pytest.mark.tier("long")
def test_a_store_goes_on_after_the_death_of_a_datanode_in_mid_upload(
    hdfs_cluster: HdfsCluster,
    witness: Witness,
    tmp_path: Path,
) -> None:
    data = uuid.uuid4().bytes * (4 << 20)
    names = [f"shared/big-{number}" for number in range(4)]
    (tmp_path / "big").write_bytes(data)
    failures: dict[str, StateStoreError] = {}
    started = threading.Event()

    def upload() -> None:
        for name in names:
            started.set()
            try:
                witness.storage.upload(tmp_path / "big", name)
            except StateStoreError as error:
                failures[name] = error

    uploading = threading.Thread(target=upload)
    uploading.start()
    started.wait()
    with hdfs_cluster.without_a_datanode():
        uploading.join()
        for name, error in failures.items():
            assert name in str(error.file)
            witness.storage.upload(tmp_path / "big", name)
        for name in names:
            assert witness.storage.read(name) == data
            witness.storage.delete(name)
        goes_on(witness)
    goes_on(witness)


@pytest.mark.tier("long")
def test_a_store_goes_on_after_a_restart_of_the_namenode(hdfs_cluster: HdfsCluster, witness: Witness) -> None:
    stop = threading.Event()

    def restart() -> None:
        try:
            hdfs_cluster.restart_namenode()
        finally:
            stop.set()

    restarting = threading.Thread(target=restart)
    restarting.start()
    while not stop.wait(0.05):
        try:
            witness.commit()
        except StateStoreError as error:  # after very many attempts
            assert "faults/" in str(error.file)
    restarting.join()
    goes_on(witness)
