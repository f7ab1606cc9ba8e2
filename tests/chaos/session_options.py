"""The options of a session on the cluster: quick to notice what is lost, and never tired of trying again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import quick_java

import state_store
from chaos.cluster import CORES, Cluster, quick_start
from chaos.life_places import Checkpoints
from chaos.plan import RESTORES, STORES, Plan
from chaos.small_agent import program

JOURNAL = "spark.chaos.journal"
"""The file that chaos.TaskJournal writes."""


def session_options(
    plan: Plan, cluster: Cluster, checkpoints: Checkpoints, journal: Path, jars: Iterable[Path]
) -> dict[str, str]:
    """All options of the driver of a life on the cluster."""
    patience = f"{cluster.noticed_after_s}s"
    restores = RESTORES[plan.restores]
    agent = {"agentPython": str(program(cluster.room))} if restores else {}
    ours = state_store.spark_conf(
        {
            "tolerableFailedMerges": -1,
            "callTimeout": patience,
            "placement": plan.placement,
            **plan.profile.store,
            **restores,
            **agent,
        }
    )
    all_jars = [*ours.get("spark.jars", "").split(","), *map(str, [*jars, *checkpoints.jars])]
    return {
        **_SESSION,
        **_LOSSES,
        "spark.driver.extraJavaOptions": quick_start(),
        "spark.executor.extraJavaOptions": quick_start(),
        "spark.master": cluster.url,
        "spark.network.timeout": patience,
        "spark.executorEnv.PYTHONPATH": cluster.environment()["PYTHONPATH"],
        **ours,
        **plan.profile.spark,
        **checkpoints.options,
        STORES + "checkpointFormatVersion": str(plan.checkpoint_format),
        "spark.jars": ",".join(filter(None, all_jars)),
        "spark.extraListeners": "statestore.chaos.TaskJournal",
        JOURNAL: str(journal),
    }


_SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.cores": str(CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
    **quick_java.WORKERS,
    "spark.python.worker.faulthandler.enabled": "true",
}
_LOSSES = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeoutInterval": "2s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "400ms",
    "spark.decommission.enabled": "true",
    "spark.locality.wait": "500ms",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.executor.maxNumFailures": "10000",
}
