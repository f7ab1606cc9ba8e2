"""The gauges in Spark's own metrics system: `PrometheusServlet`, and a sink of a driver without a UI."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from observed.ui_application import Running, awaited

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.0",)), pytest.mark.tier("more")]

SINK = "spark.metrics.conf.*.sink"


def gauges(text: str, query: str) -> dict[str, float]:
    """Return the gauges of a query in the words of Spark's `PrometheusServlet`."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        _, is_ours, rest = name.partition(f"_driver_stateStore_{query}_")
        if is_ours:
            found[rest.partition("_Value")[0]] = float(value)
    return found


def test_prometheus_servlet_has_them(tmp_path: Path) -> None:
    options = {
        f"{SINK}.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        f"{SINK}.prometheusServlet.path": "/metrics/prometheus",
    }
    with Running(tmp_path / "app", **options) as app:

        def shown(query: str) -> dict[str, float]:
            return gauges(app.get("/metrics/prometheus").text, query)

        app.start("totals")
        app.start("other-one")
        assert shown("totals") == {}
        app.feed("totals", 2)
        app.feed("other-one", 1)
        awaited(lambda: shown("totals").get("committed_batch") == 1, "the batch is shown")
        awaited(lambda: shown("other_one").get("committed_batch") == 0, "so is that of the other query")
        found = shown("totals")
        assert (found["stores"], found["keys"], found["chain_deltas"]) == (2, 7, 2)
        assert found["chain_bytes"] > 0 and found["up"] == 1 and found["verdict"] == 0
        assert math.isnan(found["last_full_checkpoint_timestamp_seconds"]), "there was none"
        assert "merges_running" not in found, "executors are not asked when a sink reads"
        app.do("stop", name="totals")
        awaited(lambda: shown("totals") == {}, "a query that has ended has none")
        app.start("totals")
        app.feed("totals", 1)
        awaited(lambda: shown("totals").get("committed_batch") == 2, "one that was started again has")
        assert app.get("/metrics/json").status == 200


def test_a_sink_has_them_in_a_driver_without_a_ui(tmp_path: Path) -> None:
    options = {
        "spark.ui.enabled": "false",
        f"{SINK}.csv.class": "org.apache.spark.metrics.sink.CsvSink",
        f"{SINK}.csv.period": "1",
        f"{SINK}.csv.unit": "seconds",
        f"{SINK}.csv.directory": str(tmp_path / "csv"),
    }
    (tmp_path / "csv").mkdir()
    with Running(tmp_path / "app", **options) as app:
        app.start("totals")
        app.feed("totals", 2)

        def newest() -> float | None:
            files = list((tmp_path / "csv").glob("*.driver.stateStore.totals.chain_deltas.csv"))
            lines = files[0].read_text().splitlines()[1:] if files else []
            return float(lines[-1].partition(",")[2]) if lines else None

        awaited(lambda: newest() == 2, "the sink has written it")
    assert "Exception" not in (tmp_path / "app/log").read_text()
