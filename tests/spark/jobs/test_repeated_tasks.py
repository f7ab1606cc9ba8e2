"""Tasks that are killed or fail at first, on two executors: each store is written once, in both formats.

Spark runs no copy of a slow task on the host that has it, so a cluster of one machine has none;
`tests/data/dataset/test_repartition.py` writes a store twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"

CLUSTER = """
import json, os, sys
from pathlib import Path

from pyspark.sql import SparkSession

import quick_java
import state_store
from state_store.data.dataset.rewriting import repartition, store_writer
from state_store.errors import StorageError

root = Path(sys.argv[1])
options = {
    **quick_java.CHECKPOINT_FILES,
    "spark.task.maxFailures": "3",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": quick_java.spark_options(),
    "spark.executor.extraJavaOptions": quick_java.spark_options(),
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=options).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def is_first(place, name):
    try:
        os.close(os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def with_trouble(place):
    class Troubled(store_writer.Receipts):
        def claim(self, key, written):
            name = f"{key.partition}-{key.name}"
            if key.name.startswith("left") and key.partition == 0 and is_first(place, f"killed-{name}"):
                os._exit(9)
            if key.name.startswith("left") and key.partition == 1 and is_first(place, f"failed-{name}"):
                raise StorageError("the storage fails once")
            return super().claim(key, written)

    return Troubled


for form in ("ids", "no-ids"):
    place = root / f"trouble-{form}"
    place.mkdir()
    repartition.Receipts = with_trouble(place)
    state_store.repartition(root / form, root / f"{form}-new", 6, spark=spark)
print("FOUND", json.dumps({f: sorted(os.listdir(root / f"trouble-{f}")) for f in ("ids", "no-ids")}))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, checkout) -> tuple[Path, dict]:
    root = tmp_path_factory.mktemp("cluster")
    for form in ("ids", "no-ids"):
        shutil.copytree(JOIN / form, root / form)
    path = os.pathsep.join(map(str, (checkout, checkout / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, root],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    return root, json.loads(lines[0].removeprefix("FOUND "))


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_each_store_is_written_once_whatever_happens_to_tasks(cluster, form):
    root, troubles = cluster
    happened = {name.partition("-")[0] for name in troubles[form]}
    assert happened == {"killed", "failed"}
    state_store.repartition(root / form, root / f"{form}-alone", 6)
    for store in ("left-keyWithIndexToValue", "right-keyWithIndexToValue", "right-keyToNumValues"):
        found = []
        for target in (root / f"{form}-new", root / f"{form}-alone"):
            with state_store.open(target, store=store) as state:
                found.append(sorted(state.to_arrow().to_pylist(), key=repr))
        assert found[0] == found[1] and found[0]
    deltas = [len(list(place.glob("*.sst"))) for place in (root / f"{form}-new").rglob("delta")]
    assert deltas == [1] * 24
    assert not (root / f"{form}-new/_written").exists()
    assert state_store.verify(root / f"{form}-new").ok
