"""Queries on a YARN cluster with an environment from an archive: exact output, whatever is lost."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import environment_archive
import miniyarn
import pytest
import submission
from submission import Application
from waiting import paths_below

from state_store.data.estimation.estimate import JVM_BYTES

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
    return [path for path in paths_below(yarn.directory, "agent-*.sock") if path.is_socket()]


def test_a_query_runs_in_client_mode(
    yarn: miniyarn.YarnCluster, packed_environment: Path, tmp_path: Path
) -> None:
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


def test_the_archive_of_the_page_runs_in_cluster_mode(
    yarn: miniyarn.YarnCluster, checkout: Path, tmp_path: Path
) -> None:
    """The page's commands make the archive, with packages of an index."""
    archive = archive_of_the_page(checkout, tmp_path)
    with Application(yarn, tmp_path / "page", "cluster", yarn.uploaded(archive)) as application:
        application.feed(3)
        application.submit(until=3)
        application.finish()
        (attempt,) = application.attempts()
        assert attempt["python"].endswith("/environment/bin/python")
        assert "/environment/lib/" in attempt["package"]


def archive_of_the_page(checkout: Path, room: Path) -> Path:
    """Run the commands of docs/deployment.md up to `spark-submit`, beside a wheel; return the archive."""
    text = (checkout / "docs" / "deployment.md").read_text("utf-8")
    (commands,) = re.findall(r"((?:^    .*\n)*?)^    spark-submit --archives", text, re.MULTILINE)
    tree = room / "tree"
    listed = ["git", "ls-files", "-z", "--", ".", ":!tests", ":!benchmarks"]
    names = subprocess.run(listed, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, names.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / name, tree / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", room, tree], cwd=room, check=True)
    # The machine's Python is the one that runs the tests.
    made = re.sub(r"^ *python -m venv", f"{shlex.quote(sys.executable)} -m venv", commands)
    assert made != commands
    subprocess.run(["sh", "-e", "-c", made], cwd=room, check=True)
    return room / "environment.tar.gz"


def run_beside_each_other(*applications: Application) -> None:
    """Run applications of three batches; the last batch comes when all have committed two."""
    for application in applications:
        application.feed(2)
        application.submit(until=3)
    for application in applications:
        application.wait_until(lambda of=application: of.is_committed(1), "the second batch")
    for application in applications:
        application.feed(1)
        application.finish()


def test_two_sparks_run_beside_each_other(
    yarn: miniyarn.YarnCluster, archive: str, checkout: Path, tmp_path: Path
) -> None:
    spark = submission.older(checkout, "4.0")
    packed = tmp_path / "environment-4.0.tar"
    pack = [spark.python, environment_archive.__file__, packed, checkout / "state_store"]
    subprocess.run(pack, check=True)
    with (
        Application(yarn, tmp_path / "newest", "client", archive) as first,
        Application(yarn, tmp_path / "older", "client", str(packed), installation=spark) as second,
    ):
        run_beside_each_other(first, second)
        assert "Running Spark version 4.0." in second.lines()
        assert "Running Spark version 4.0." not in first.lines()


def test_two_applications_run_in_cluster_mode(
    yarn: miniyarn.YarnCluster, archive: str, tmp_path: Path
) -> None:
    with (
        Application(yarn, tmp_path / "first", "cluster", archive) as first,
        Application(yarn, tmp_path / "second", "cluster", archive) as second,
    ):
        run_beside_each_other(first, second)
        for application in (first, second):
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
    """The executors are so large that each node has room for one, and beside it for the ApplicationMaster."""
    conf = {"spark.executor.memoryOverhead": "3000m"}
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


def test_containers_keep_their_limits(yarn: miniyarn.YarnCluster, archive: str, tmp_path: Path) -> None:
    """NodeManagers compare the resident size of a container's processes with its limit, and kill it above."""
    conf = {
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.driver.memory": "1g",
        "spark.executor.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch -XX:+UseSerialGC",
        "spark.executor.memoryOverhead": "1200m",
        "spark.sql.streaming.stateStore.incremental.memoryBudget": "128m",
    }
    keys, batches = 100_000, 4
    peaks: dict[str, int] = {}
    with Application(yarn, tmp_path / "memory", "client", archive, conf=conf) as application:
        for batch in range(batches):
            application.feed_words(f"key{number}" for number in range(batch * 1000, keys + batch * 1000))
        application.submit(until=batches)

        def sampled() -> bool:
            sums: dict[str, int] = {}
            for kind, sizes in yarn.resident().values():
                if kind == "master":
                    continue
                for name, size in sizes.items():
                    sums[f"{kind} {name}"] = sums.get(f"{kind} {name}", 0) + size
                sums["all"] = sums.get("all", 0) + sizes.get("VmRSS", 0)
            for name, size in sums.items():
                peaks[name] = max(size, peaks.get(name, 0))
            return application.is_committed(batches - 1)

        application.wait_until(sampled, "the last batch")
        application.finish()
        print({name: f"{size / (1 << 20):.0f} MiB" for name, size in sorted(peaks.items())})
        beyond_the_heap = peaks["executor VmRSS"] + peaks["agent VmRSS"] - (512 << 20)
        assert beyond_the_heap <= (128 << 20) + JVM_BYTES, "the estimate of the overhead is too low"
        assert "memory limit" not in application.last_lines()


def agents_of(yarn: miniyarn.YarnCluster) -> set[int]:
    """Return the processes of agents in containers."""
    return {
        process for process, words in yarn.processes().items() if "state-store-agent.py" in " ".join(words)
    }


def test_a_container_above_its_limit_is_replaced(
    yarn: miniyarn.YarnCluster, archive: str, tmp_path: Path
) -> None:
    """A Python worker takes more than the container has; its agent ends with it, and the batch runs again."""
    mark = tmp_path / "taken"
    conf = {
        "spark.executor.instances": "1",
        "spark.executorEnv.TAKE_MEMORY": str(mark),
        "spark.executorEnv.TAKE_MIB": "1500",
    }
    with Application(yarn, tmp_path / "above", "client", archive, conf=conf) as application:
        application.feed(3)
        application.submit(until=4)
        killed: set[int] = set()

        def taken() -> bool:
            before = agents_of(yarn)
            if not mark.exists():
                killed.update(before)
            return mark.exists()

        application.wait_until(taken, "the worker that takes memory")
        assert len(killed) == 1
        application.wait_until(lambda: application.is_committed(2), "the third batch")
        application.wait_until(lambda: not killed & agents_of(yarn), "the end of the agent")
        assert agents_of(yarn), "the new executor has no agent"
        application.feed(1)
        application.finish()
        message = r"Container killed by YARN for exceeding physical memory limits\. .* of 1\.5 GB physical"
        assert re.search(message, application.lines())
        assert "Consider boosting spark.executor.memoryOverhead" in application.lines()
