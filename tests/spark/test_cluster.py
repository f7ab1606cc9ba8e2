"""Two executor JVMs, one of which is killed in mid-batch: its stores move, the result stays right."""

from __future__ import annotations

import pytest
from queries import settings, verdict
from queries.catalogue import SCENARIOS
from queries.history import History
from queries.running import Room

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

NAMES = ["aggregation-append", "join-left", "pandas-event-time"]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((["kill-executor"], 5), id="executor"),
        pytest.param((["kill-executor", "kill"], 8), id="executor-and-driver", marks=pytest.mark.long),
    ],
)
def history(provider, scala_jar, tmp_path_factory, request) -> History:
    acts, batches = request.param
    options = settings.spark_options(provider, 1 if provider == "hdfs" else 2, [scala_jar])
    history = History(
        Room(tmp_path_factory.mktemp("cluster") / "room"),
        [SCENARIOS[name] for name in NAMES],
        {**options, "spark.executor.memory": "512m", "spark.task.maxFailures": "8"},
        seed=5,
        acts=acts,
        batches=batches,
        master="local-cluster[2,1,512]",
    )
    history.play()
    print(*history.log, sep="\n")
    return history


@pytest.mark.parametrize("name", NAMES)
def test_output_is_right_after_the_loss_of_executors(history, name):
    verdict.check(history.room, SCENARIOS[name], history.records("events"))


def test_an_executor_was_killed(history):
    assert any(line.startswith("kill-executor") for line in history.log)
