"""A query with a keytab goes on after its delegation tokens have expired, and its connections have ended.

Its executor has no keytab and no ticket, only the tokens that Spark's driver obtains, renews and sends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import minikerberos
import pytest
import quick_java
import scala_jars
from minikerberos import REALM, SecureCluster
from owned_processes import ENDED_S, started
from waiting import awaited

pytestmark = [pytest.mark.spark, pytest.mark.hdfs, pytest.mark.tier("long")]

TOKEN_LIFE_S = 60
HOME = "/user/alice/query"
MANAGER = "org.apache.spark.sql.execution.streaming.state.incremental.probe.ClusterWithTokens"

PROGRAM = """
import json, os, sys, threading, traceback
from pathlib import Path

from pyspark.sql import SparkSession, functions as F

import state_store

root, checkpoint, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
stores = {"maxDeltas": 2, "minPauseBetweenMerges": "0s", "fullAfterMerges": 1, "retainedCheckpoints": 2,
          "localRecovery": False}
options = {**state_store.spark_conf(stores), **options}
spark = SparkSession.builder.master("local-tokens").config(map=options).getOrCreate()


def keep(frame, batch):
    rows = {row["key"]: row["n"] for row in frame.collect()}
    (root / "unfinished").write_text(json.dumps(rows))
    (root / "unfinished").rename(root / "out" / f"{batch}.json")


def end_with(query):
    try:
        query.awaitTermination()
    except Exception:
        traceback.print_exc()
        os._exit(1)


def start():
    stream = spark.readStream.schema("key string").option("maxFilesPerTrigger", "1")
    counts = stream.json(f"file://{root}/in").groupBy("key").agg(F.count("*").alias("n"))
    writer = counts.writeStream.outputMode("update").foreachBatch(keep)
    query = writer.option("checkpointLocation", checkpoint).start()
    threading.Thread(target=end_with, args=[query], daemon=True).start()
    return query


query = start()
for _ in sys.stdin:
    query.stop()
    query = start()
query.stop()
spark.stop()
"""


class _Query:
    """A query that counts keys; each `batch` waits for its rows."""

    def __init__(self, cluster: SecureCluster, directory: Path, process: subprocess.Popen[str]) -> None:
        self.cluster, self.directory, self.process = cluster, directory, process
        self.batches = 0
        self.counts: dict[str, int] = {}

    def run(self, batches: int) -> None:
        for _ in range(batches):
            key, number = f"k{self.batches % 3}", self.batches
            self.counts[key] = self.counts.get(key, 0) + 1
            self.batches += 1
            fresh = self.directory / "fresh"
            fresh.write_text(json.dumps({"key": key}) + "\n")
            fresh.rename(self.directory / "in" / f"{number:05}.json")
            assert json.loads(self._answer(number).read_text()) == {key: self.counts[key]}

    def merge_and_clean(self) -> None:
        """Run batches until a merge has stored its checkpoint, and a file from before is gone."""
        before = self.cluster.files_below(f"{HOME}/state")

        def is_done() -> bool:
            self.run(1)
            after = self.cluster.files_below(f"{HOME}/state")
            return any("/snapshot/" in name for name in after - before) and not before <= after

        awaited(is_done, "no merge, or no clean-up")

    def start_again(self) -> None:
        """Stop the query, and start it again: its stores are restored from HDFS."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()

    def _answer(self, number: int) -> Path:
        answer = self.directory / "out" / f"{number}.json"

        def is_there() -> bool:
            assert self.process.poll() is None, (self.directory / "log").read_text()[-6000:]
            return answer.exists()

        awaited(is_there, f"no batch {number}: {self.directory / 'log'}")
        return answer


@contextmanager
def _running(cluster: SecureCluster, directory: Path) -> Iterator[_Query]:
    for name in ("in", "out", "services/META-INF/services"):
        (directory / name).mkdir(parents=True)
    service = directory / "services/META-INF/services/org.apache.spark.scheduler.ExternalClusterManager"
    service.write_text(MANAGER)
    cluster.keytab_of("alice", directory)
    uri = f"hdfs://localhost:{cluster.mini.getNameNodePort(0)}"
    java = f"{quick_java.QUICK_START} -Djava.security.krb5.conf={cluster.krb5}"
    options = {
        "spark.kerberos.principal": f"alice@{REALM}",
        "spark.kerberos.keytab": str(directory / "alice.keytab"),
        "spark.kerberos.access.hadoopFileSystems": uri,
        "spark.hadoop.yarn.resourcemanager.principal": f"yarn@{REALM}",
        "spark.security.credentials.renewalRatio": "0.25",
        "spark.security.credentials.retryWait": "5s",
        "spark.driver.extraClassPath": f"{scala_jars.probes_jar()}:{directory / 'services'}",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.ui.enabled": "false",
    }
    environment = {
        **os.environ,
        "HADOOP_CONF_DIR": str(cluster.configuration),
        "KRB5CCNAME": str(directory / "no-tickets"),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-c", PROGRAM, str(directory), f"{uri}{HOME}", json.dumps(options)]
    with (
        (directory / "log").open("w") as log,
        started(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, env=environment, cwd=directory
        ) as process,
    ):
        yield _Query(cluster, directory, process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(ENDED_S) == 0, (directory / "log").read_text()[-6000:]


def test_a_query_outlives_its_tokens_and_connections(tmp_path: Path) -> None:
    with minikerberos.running(TOKEN_LIFE_S) as cluster, _running(cluster, tmp_path) as query:
        query.run(4)
        # It is younger than all tokens of the connections so far, and as them nobody renews it.
        token = cluster.write_tokens("alice", tmp_path / "unused")
        cluster.wait_until_expired(token)
        cluster.restart_namenode()
        query.run(1)
        query.merge_and_clean()
        query.start_again()
        query.merge_and_clean()
