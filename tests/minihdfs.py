"""A real HDFS for tests: NameNode, two DataNodes and WebHDFS of Hadoop's own mini cluster, on the loopback.

The fixture `hdfs_cluster` of all tests starts it once a session (some seconds), on free ports, in a temporary
directory. It ends with the session, or with the test process if that is killed. `running()` starts a cluster
for its context alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from called_jvm import called_jvm

_ACTIVE_TIMEOUT_S = 300

# Servers and clients notice a dead DataNode in seconds, not in minutes.
_SERVERS = {
    "dfs.replication": "2",
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.heartbeat.recheck-interval": "1000",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.webhdfs.socket.read-timeout": "20s",
}
CLIENTS = {
    "dfs.replication": "2",
    "dfs.client.socket-timeout": "10000",
    "ipc.client.connect.max.retries": "20",
    "ipc.client.connect.retry.interval": "500",
}


@dataclass(frozen=True)
class HdfsCluster:
    """A running cluster, whose superuser is the user that started it.

    `uri` is `hdfs://host:port`, `web` the `http://host:port` of WebHDFS, and `configuration` a directory for
    HADOOP_CONF_DIR.
    """

    uri: str
    web: str
    configuration: Path
    mini: Any
    """The MiniDFSCluster object."""

    jvm: Any
    pid: int
    """The process id of all daemons."""

    def webhdfs(self, path: str) -> str:
        """Return the `webhdfs://` URI of an absolute path."""
        return f"{self.web.replace('http', 'webhdfs', 1)}{path}"

    @property
    def files(self) -> Any:
        """Return the DistributedFileSystem of the superuser."""
        return self.mini.getFileSystem()

    def path(self, path: str) -> Any:
        """Return a Hadoop path."""
        return self.jvm.org.apache.hadoop.fs.Path(path)

    @contextmanager
    def without_a_datanode(self, number: int = 0) -> Iterator[None]:
        """Stop a DataNode silently for the context."""
        stopped = self.mini.stopDataNode(number)
        try:
            yield
        finally:
            self.mini.restartDataNode(stopped, True)
            self.wait_until_active()

    @contextmanager
    def in_safe_mode(self) -> Iterator[None]:
        """Let the NameNode refuse every change for the context."""
        action = self.jvm.org.apache.hadoop.fs.SafeModeAction
        self.files.setSafeMode(action.ENTER)
        try:
            yield
        finally:
            self.files.setSafeMode(action.LEAVE)

    @contextmanager
    def without_namenode(self) -> Iterator[None]:
        """Stop the NameNode for the context, and start it with the same addresses afterwards."""
        self.mini.shutdownNameNode(0)
        try:
            yield
        finally:
            self.restart_namenode()

    def restart_namenode(self) -> None:
        """Restart the NameNode, and return when it accepts calls."""
        self.mini.restartNameNode(False)
        self.wait_until_active()

    def set_space_quota(self, path: str, size_bytes: int | None) -> None:
        """Limit the bytes below a directory, replicas included; None removes the limit."""
        constants = self.jvm.org.apache.hadoop.hdfs.protocol.HdfsConstants
        limit = constants.QUOTA_RESET if size_bytes is None else size_bytes
        self.files.setQuota(self.path(path), constants.QUOTA_DONT_SET, limit)

    def set_mode(self, path: str, mode: str) -> None:
        """Set the permissions of a path, in octal digits."""
        permission = self.jvm.org.apache.hadoop.fs.permission.FsPermission
        self.files.setPermission(self.path(path), permission(mode))

    def wait_until_active(self) -> None:
        """Wait until both DataNodes have reported, and the NameNode has left safe mode."""
        end_s = time.monotonic() + _ACTIVE_TIMEOUT_S
        live = self.jvm.org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType.LIVE
        self.mini.waitActive()
        while len(self.files.getDataNodeStats(live)) < 2 or self.files.isInSafeMode():
            assert time.monotonic() < end_s, "the cluster does not become active"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def hdfs_cluster() -> Iterator[HdfsCluster]:
    """Yield a cluster with two DataNodes, shared by all tests of the session.

    Use a separate directory in each test, and leave the cluster as it was.
    """
    with running() as cluster:
        yield cluster


@contextmanager
def running(more: Iterable[Path] = ()) -> Iterator[HdfsCluster]:
    """Run a cluster with two DataNodes, in a JVM that has `more` jars on its class path."""
    import maven_jars  # needs pyspark, which not every test has

    with tempfile.TemporaryDirectory(prefix="minihdfs-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        class_path = [*maven_jars.minicluster_class_path(), *more, f"{maven_jars.SPARK_JARS}/*"]
        with called_jvm(directory, class_path) as gateway:
            try:
                cluster = _started(gateway, directory)
            except Exception as error:
                raise RuntimeError(f"{_end_of(directory / 'log')}\n{error}") from error
            yield cluster


def _started(gateway: Any, directory: Path) -> HdfsCluster:
    hadoop = gateway.jvm.org.apache.hadoop
    configuration = hadoop.conf.Configuration()
    for key, value in {**_SERVERS, "hdfs.minidfs.basedir": str(directory / "data")}.items():
        configuration.set(key, value)
    mini = hadoop.hdfs.MiniDFSCluster.Builder(configuration).numDataNodes(2).format(True).build()
    mini.waitActive()
    uri = f"hdfs://127.0.0.1:{mini.getNameNodePort()}"
    http = configuration.get("dfs.namenode.http-address")
    conf = directory / "conf"
    conf.mkdir()
    write_configuration(conf / "core-site.xml", {"fs.defaultFS": uri, **CLIENTS})
    write_configuration(conf / "hdfs-site.xml", {"dfs.namenode.http-address": http, **CLIENTS})
    return HdfsCluster(uri, f"http://{http}", conf, mini, gateway.jvm, gateway.java_process.pid)


def write_configuration(path: Path, properties: dict[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    items = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>{items}</configuration>", encoding="utf-8")


def _end_of(log: Path) -> str:
    return f"HDFS failed: {log.read_text(errors='replace')[-4000:]}"
