"""Reports and commands travel between the driver and the executors of a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.cluster import Cluster
from observed.schema import check
from observed.ui_application import SETTINGS, Running, outcome, request_full

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2", "4.1", "4.0")), pytest.mark.tier("more")]

OPTIONS = {
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.locality.wait": "0",
}


def stores(app: Running, query: str) -> list[dict]:
    return app.get(f"queries/{query}/stores").json["stores"]


def test_two_executors_report_and_make_full_checkpoints(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path / "cluster") as cluster,
        Running(
            tmp_path / "app", cluster.url, {**SETTINGS, "maxDeltas": "100"}, cluster.environment(), **OPTIONS
        ) as app,
    ):
        app.start("totals")
        app.feed("totals", 3)
        assert {store["executor"] for store in stores(app, "totals")} == {"0", "1"}
        operation = outcome(app, "totals", request_full(app, "totals"))
        check(operation, "Operation", "driver")
        assert (operation["made"], operation["failed"]) == (4, 0), operation
        assert {store["version"] for store in operation["stores"]} == {3}
        assert app.get("queries/totals/merges").json == {"waiting": [], "running": [], "failed": []}

        next(process for process in cluster.processes() if process.role == "executor").kill()
        operation = outcome(app, "totals", request_full(app, "totals"))
        assert {store["outcome"] for store in operation["stores"]} == {"already", "failed"}
        assert "ask again" in operation["failure"]["message"]
        app.feed("totals", 2)
        operation = outcome(app, "totals", request_full(app, "totals"))
        assert operation["failed"] == 0, operation
        assert "Exception" not in app.get("queries").text
