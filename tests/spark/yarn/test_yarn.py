"""Queries on a YARN cluster with an environment from an archive: exact output, whatever is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import environment_archive
import miniyarn
import pytest
from submission import Application

pytestmark = [pytest.mark.spark, pytest.mark.tier("long"), pytest.mark.timeout(1400)]


@pytest.fixture(scope="module")
def packed_environment(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    path = tmp_path_factory.mktemp("packed") / "environment.tar"
    environment_archive.pack(path, checkout / "state_store")
    return path


@pytest.fixture(scope="module")
def yarn() -> Iterator[miniyarn.YarnCluster]:
    with miniyarn.running() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def archive(yarn: miniyarn.YarnCluster, packed_environment: Path) -> str:
    """Return the URI of the environment on HDFS, from which each application takes it."""
    return yarn.uploaded(packed_environment)


def sockets(yarn: miniyarn.YarnCluster) -> list[Path]:
    """Return the sockets of agents in the directories of containers."""
    return [path for path in yarn.directory.rglob("agent-*.sock") if path.is_socket()]


def test_a_query_in_client_mode(yarn: miniyarn.YarnCluster, packed_environment: Path, tmp_path: Path) -> None:
    """The environment is a local file, which `spark-submit` uploads."""
    with Application(yarn, tmp_path / "client", "client", str(packed_environment)) as application:
        application.feed(4)
        application.submit(until=5)
        application.wait_until(lambda: application.is_committed(3), "the fourth batch")
        agents = [words for words in yarn.processes().values() if "state-store-agent.py" in " ".join(words)]
        assert {words[0] for words in agents} == {"./environment/bin/python"}
        local = f"/appcache/{application.id}/"
        assert all(local in words[1] for words in agents), agents
        assert len(sockets(yarn)) == len({words[1] for words in agents})
        application.feed(1)
        application.finish()
        logs = yarn.logs(application.id)
        assert "Started agent process" in logs
        assert "./environment/bin/python' (spark.pyspark.python)" in logs
        yarn.wait_until(lambda: not yarn.local_files(application.id), "removal of the local files")


def test_two_applications_in_cluster_mode(yarn: miniyarn.YarnCluster, archive: str, tmp_path: Path) -> None:
    with (
        Application(yarn, tmp_path / "first", "cluster", archive) as first,
        Application(yarn, tmp_path / "second", "cluster", archive) as second,
    ):
        for application in (first, second):
            application.feed(2)
            application.submit(until=3)
        for application in (first, second):
            application.wait_until(lambda of=application: of.is_committed(1), "the second batch")
        for application in (first, second):
            application.feed(1)
            application.finish()
            (attempt,) = application.attempts()
            assert attempt["python"].endswith("/environment/bin/python")
            assert "/environment/lib/" in attempt["package"]


def test_a_second_attempt_continues(yarn: miniyarn.YarnCluster, archive: str, tmp_path: Path) -> None:
    """The driver, which is in the ApplicationMaster, is killed between two batches."""
    with Application(yarn, tmp_path / "attempts", "cluster", archive) as application:
        application.feed(3)
        application.submit(until=6)
        application.wait_until(lambda: application.is_committed(2), "the third batch")
        (master,) = [
            process
            for process, words in yarn.processes().items()
            if "org.apache.spark.deploy.yarn.ApplicationMaster" in words and Path(words[0]).name == "java"
        ]
        os.kill(master, signal.SIGKILL)
        application.feed(3)
        application.finish()
        assert len(application.attempts()) == 2
        assert yarn.attempts(application.id) == 2


def test_a_node_is_lost(packed_environment: Path, tmp_path: Path) -> None:
    """The executors are so large that a node has room for one beside the ApplicationMaster."""
    conf = {"spark.executor.memoryOverhead": "1500m"}
    with (
        miniyarn.running() as yarn,
        Application(
            yarn, tmp_path / "node", "client", yarn.uploaded(packed_environment), conf=conf
        ) as application,
    ):
        application.feed(3)
        application.submit(until=7)
        application.wait_until(lambda: application.is_committed(2), "the third batch")
        (lost,) = [
            number
            for number in range(miniyarn.NODES)
            if not any(container.endswith("_000001") for container in yarn.containers(number))
        ]
        assert yarn.containers(lost), "there is no executor to lose"
        yarn.stop_node(lost)
        application.feed(4)
        application.finish()
