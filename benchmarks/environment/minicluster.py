"""A real HDFS on the loopback: NameNode and DataNode of Hadoop's mini cluster, of pyspark's version."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from benchmarks.environment import jvm

_START_S = 180
_CACHE = Path("~/.cache/incremental-state-store").expanduser()


class MiniclusterError(RuntimeError):
    """The jar could not be fetched, or the cluster did not start; the message names the log."""


def jar() -> Path:
    """Return `hadoop-client-minicluster`, which `mvn` fetches once from Maven Central into the cache."""
    version = _hadoop_version()
    target = _CACHE / f"hadoop-client-minicluster-{version}.jar"
    if target.is_file():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise MiniclusterError(
            "mvn was not found; it is needed to fetch Hadoop's mini cluster (Debian: apt install maven)"
        )
    _CACHE.mkdir(parents=True, exist_ok=True)
    artifact = f"org.apache.hadoop:hadoop-client-minicluster:{version}"
    with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
        command = [
            maven,
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={artifact}",
            f"-DoutputDirectory={scratch}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=scratch)
        fetched = Path(scratch) / target.name
        if done.returncode or not fetched.is_file():
            raise MiniclusterError(f"mvn could not fetch {artifact}:\n{(done.stdout + done.stderr)[-2000:]}")
        fetched.replace(target)
    return target


@contextlib.contextmanager
def started(cluster_jar: Path, log: Path) -> Iterator[str]:
    """Run the cluster for the `with` block, and yield its `hdfs://` URI."""
    with tempfile.TemporaryDirectory(prefix="minicluster-") as work, open(log, "wb") as sink:
        written = Path(work) / "started.xml"
        command = [
            jvm.java(),
            "-Xmx512m",
            f"-Djava.io.tmpdir={work}",
            "-cp",
            f"{cluster_jar}:{jvm.SPARK_JARS}/*",
        ]
        command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
        command += ["-D", f"hdfs.minidfs.basedir={work}/data", "-D", "dfs.permissions.enabled=false"]
        command += ["-writeConfig", str(written)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=work)
        try:
            yield f"hdfs://{_address(process, written, log)}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], written: Path, log: Path) -> str:
    """Return host and port of the NameNode, from the configuration that the running cluster writes."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(FileNotFoundError, ElementTree.ParseError):
            for item in ElementTree.parse(written).getroot().iter("property"):
                if item.findtext("name") == "dfs.namenode.rpc-address":
                    return str(item.findtext("value"))
        time.sleep(0.3)
    code = process.poll()
    how = f"did not start within {_START_S} s" if code is None else f"ended with {code} before it had started"
    raise MiniclusterError(f"Hadoop's mini cluster {how}; its log is {log}")


def _hadoop_version() -> str:
    name = next(jvm.SPARK_JARS.glob("hadoop-client-api-*.jar")).name
    return re.sub(r"^hadoop-client-api-|\.jar$", "", name)
