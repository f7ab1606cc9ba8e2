"""A real HDFS for tests: NameNode, DataNode and WebHDFS of Hadoop's own mini cluster, on the loopback.

Use it as a fixture: `from minihdfs import hdfs_cluster`. It starts once a session (some seconds), on free
ports, in a temporary directory, and ends with the session, or with the test process if that is killed. The
one jar that PySpark does not bring is fetched with Maven into a cache. Tests are skipped only where Maven's
registry cannot be reached, and never when the environment says CI=true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CACHE = Path("~/.cache/incremental-state-store").expanduser()
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_UNREACHABLE = (
    "Could not transfer",
    "Unknown host",
    "Connection refused",
    "Network is unreachable",
    "timed out",
)
_FETCH_TIMEOUT_S = 600
_START_TIMEOUT_S = 180

# Ends the JVM when the pipe of standard input is closed, however the test process went.
_LEASH = '"$@" & pid=$!; trap "kill -9 $pid" TERM; cat >/dev/null; kill -9 $pid; wait $pid'


@dataclass(frozen=True)
class HdfsCluster:
    """A running cluster: `uri` is `hdfs://host:port`, `web` the `http://host:port` of WebHDFS, and
    `configuration` a directory fit for HADOOP_CONF_DIR."""

    uri: str
    web: str
    configuration: Path

    def webhdfs(self, path: str) -> str:
        """The `webhdfs://` URI of an absolute path."""
        return f"{self.web.replace('http', 'webhdfs', 1)}{path}"


@pytest.fixture(scope="session")
def hdfs_cluster() -> Iterator[HdfsCluster]:
    """A cluster with one DataNode, shared by all tests of the session: use a directory of your own."""
    with tempfile.TemporaryDirectory(prefix="minihdfs-", ignore_cleanup_errors=True) as directory:
        process = _start(_class_path(), Path(directory))
        try:
            yield _running(process, Path(directory))
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def _class_path() -> str:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    client = next(jars.glob("hadoop-client-api-*.jar"))
    version = client.stem.removeprefix("hadoop-client-api-")
    return f"{_minicluster_jar(version)}:{jars}/*"


def _minicluster_jar(version: str) -> Path:
    jar = _CACHE / f"hadoop-client-minicluster-{version}.jar"
    if jar.is_file():
        return jar
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
        _fetch(f"org.apache.hadoop:hadoop-client-minicluster:{version}", Path(directory))
        (Path(directory) / jar.name).replace(jar)
    return jar


def _fetch(artifact: str, directory: Path) -> None:
    if shutil.which("mvn") is None:
        _unavailable(f"{artifact} is needed for tests on HDFS, and there is no 'mvn' to fetch it")
    command = ["mvn", "-B", "-q", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
    )
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if any(sign in output for sign in _UNREACHABLE):
        _unavailable(f"the registry with {artifact} cannot be reached")
    raise RuntimeError(f"cannot fetch {artifact}: {output[-2000:]}")


def _unavailable(why: str) -> None:
    if os.environ.get("CI") == "true":
        raise RuntimeError(why)
    pytest.skip(why)


def _start(class_path: str, directory: Path) -> subprocess.Popen[bytes]:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    command += ["-D", f"hdfs.minidfs.basedir={directory / 'data'}", "-D", "dfs.permissions.enabled=false"]
    command += ["-writeConfig", directory / "starting.xml"]
    with open(directory / "log", "wb") as log:
        return subprocess.Popen(
            ["sh", "-c", _LEASH, "sh", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=directory,
        )


def _running(process: subprocess.Popen[bytes], directory: Path) -> HdfsCluster:
    """Waits until the configuration is written, which is after NameNode and DataNode are up."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        properties = _read(directory / "starting.xml")
        if "dfs.namenode.http-address" in properties and "dfs.namenode.rpc-address" in properties:
            return _describe(properties, directory)
        time.sleep(0.2)
    raise RuntimeError(f"HDFS did not start: {(directory / 'log').read_text(errors='replace')[-4000:]}")


def _read(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return {}
    return {item.findtext("name", ""): item.findtext("value", "") for item in root.iter("property")}


def _describe(properties: dict[str, str], directory: Path) -> HdfsCluster:
    rpc, http = properties["dfs.namenode.rpc-address"], properties["dfs.namenode.http-address"]
    configuration = directory / "conf"
    configuration.mkdir()
    _write(configuration / "core-site.xml", {"fs.defaultFS": f"hdfs://{rpc}"})
    _write(configuration / "hdfs-site.xml", {"dfs.namenode.http-address": http, "dfs.replication": "1"})
    return HdfsCluster(f"hdfs://{rpc}", f"http://{http}", configuration)


def _write(path: Path, properties: dict[str, str]) -> None:
    items = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>{items}</configuration>", encoding="utf-8")
