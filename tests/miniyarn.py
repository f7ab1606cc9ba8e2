"""A real YARN for tests: ResourceManager and two NodeManagers of Hadoop's own mini cluster, beside an HDFS.

`running()` starts both for its context, in one JVM, on free ports, in a temporary directory. The NodeManagers
start containers as processes, compare their memory with their limits, and aggregate their logs on HDFS.
Containers that live at the end are ended with the context.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minihdfs
import pinned_jars
from minihdfs import HdfsCluster

NODES = 2
NODE_MIB = 6144
"""The memory of a node. All containers of two applications have room, whichever node each is on."""

_KINDS = {
    "state-store-agent.py": "agent",
    "YarnCoarseGrainedExecutorBackend": "executor",
    "ExecutorLauncher": "master",
    "ApplicationMaster": "master",
    "pyspark": "worker",
}
_PATIENCE_MS = 300_000
_QUEUE = "yarn.scheduler.capacity."
_SERVERS = {
    # The mini cluster switches the memory check off unless it is told not to.
    "yarn.minicluster.control-resource-monitoring": "true",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(NODE_MIB),
    "yarn.nodemanager.resource.memory-mb": str(NODE_MIB),
    "yarn.nodemanager.resource.cpu-vcores": "8",
    "yarn.nodemanager.pmem-check-enabled": "true",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # By default the NodeManager leaves limits to cgroups, whether it uses them or not.
    "yarn.nodemanager.resource.memory.enforced": "false",
    "yarn.nodemanager.container-monitor.interval-ms": "500",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "0",
    "yarn.log-aggregation-enable": "true",
    "yarn.scheduler.minimum-allocation-mb": "128",
    f"{_QUEUE}maximum-am-resource-percent": "1.0",
    f"{_QUEUE}root.queues": "default",
    f"{_QUEUE}root.default.capacity": "100",
    f"{_QUEUE}root.default.state": "RUNNING",
}


@dataclass(frozen=True)
class YarnCluster:
    """A running cluster; `configuration` is a directory for HADOOP_CONF_DIR."""

    hdfs: HdfsCluster
    configuration: Path
    directory: Path
    """The directory with all files of the NodeManagers."""

    mini: Any
    """The MiniYARNCluster object."""

    def processes(self) -> dict[int, list[str]]:
        """Return the arguments of each process that runs in a container, by its id."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):  # it ended
                if (entry / "cwd").readlink().is_relative_to(self.directory):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
        return found

    def resident(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Return the memory of each process in a container: its kind, and bytes of each kind of memory."""
        found = {}
        for process, words in self.processes().items():
            with suppress(OSError):  # it ended
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
                sizes = dict(line.split(":", 1) for line in lines if line.startswith(("Rss", "VmRSS")))
                text = " ".join(words)
                kind = next((kind for part, kind in _KINDS.items() if part in text), "other")
                bytes_of = {name: int(size.split()[0]) << 10 for name, size in sizes.items()}
                found[f"{process}"] = (kind, bytes_of)
        return found

    def uploaded(self, file: Path) -> str:
        """Copy a local file to HDFS, and return its URI there."""
        target = f"{self.hdfs.uri}/{file.name}"
        self.hdfs.files.copyFromLocalFile(self.hdfs.path(str(file)), self.hdfs.path(target))
        return target

    def local_files(self, application: str) -> list[Path]:
        """Return the directories of an application on the disks of the NodeManagers."""
        return list(self.directory.glob(f"*-localDir-*/usercache/*/appcache/{application}"))

    def wait_until(self, condition: Callable[[], Any], purpose: str) -> Any:
        """Wait until a condition is true, and return its value."""
        end_s = time.monotonic() + _PATIENCE_MS / 1000
        while not (found := condition()):
            assert time.monotonic() < end_s, f"{purpose} did not come"
            time.sleep(0.2)
        return found

    def containers(self, number: int) -> list[str]:
        """Return the containers that a NodeManager has now."""
        of = self.mini.getNodeManager(number).getNMContext().getContainers()
        return [str(name.toString()) for name in of.keySet()]

    def stop_node(self, number: int) -> None:
        """Stop a NodeManager with its containers, for good."""
        self.mini.getNodeManager(number).stop()

    def attempts(self, application: str) -> int:
        """Return the number of attempts that an application has had."""
        return int(self._application(application).getAppAttempts().size())

    def diagnostics(self, application: str) -> str:
        """Return the messages of the ResourceManager about an application."""
        return str(self._application(application).getDiagnostics().toString())

    def logs(self, application: str) -> str:
        """Return the aggregated logs of an application; wait until they are complete."""
        app = self._application(application)

        def aggregated() -> bool:
            status = app.getLogAggregationStatusForAppReport()
            return status is not None and str(status.toString()) in ("SUCCEEDED", "FAILED", "TIME_OUT")

        self.wait_until(aggregated, "the aggregation of the logs")
        jvm, text = self.hdfs.jvm, ""
        files = self.hdfs.files.listFiles(self.hdfs.path("/tmp/logs"), True)
        while files.hasNext():
            path = files.next().getPath()
            if application in path.toString():
                stream = self.hdfs.files.open(path)
                text += bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
                stream.close()
        return text

    def _application(self, application: str) -> Any:
        name = self.hdfs.jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(application)
        return self.mini.getResourceManager().getRMContext().getRMApps().get(name)


@contextmanager
def running() -> Iterator[YarnCluster]:
    """Run HDFS and YARN, each with two nodes."""
    with minihdfs.running(pinned_jars.jars(pinned_jars.YARN)) as hdfs:
        cluster = _started(hdfs)
        try:
            yield cluster
        finally:
            cluster.mini.stop()
            for process in cluster.processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def _started(hdfs: HdfsCluster) -> YarnCluster:
    hadoop = hdfs.jvm.org.apache.hadoop
    configuration = hadoop.yarn.conf.YarnConfiguration(hdfs.mini.getConfiguration(0))
    for key, value in {**_SERVERS, "fs.defaultFS": hdfs.uri}.items():
        configuration.set(key, value)
    mini = hadoop.yarn.server.MiniYARNCluster("tests", NODES, 1, 1)
    mini.init(configuration)
    mini.start()
    if not mini.waitForNodeManagersToConnect(_PATIENCE_MS):
        raise RuntimeError("the NodeManagers do not connect")
    directory = Path(str(mini.getTestWorkDir().getAbsolutePath()))
    of_clients = hadoop.conf.Configuration(mini.getConfig())
    of_clients.unset("net.topology.node.switch.mapping.impl")  # a class that clients do not have
    stream = hdfs.jvm.java.io.FileOutputStream(str(hdfs.configuration / "yarn-site.xml"))
    of_clients.writeXml(stream)
    stream.close()
    return YarnCluster(hdfs, hdfs.configuration, directory, mini)
