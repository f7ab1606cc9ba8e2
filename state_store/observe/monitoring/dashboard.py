"""The Grafana dashboard, from the declarations of metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from state_store.observe.model.metrics import METRICS, Metric

CHOSEN = 'query=~"$query",job=~"$job",instance=~"$instance"'
_BY_NAME = {metric.name: metric for metric in METRICS}
_COLUMNS = 24


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        title: its title.
        unit: Grafana's name of the unit.
        queries: PromQL with `SEL` for the selection of queries, and the legend of its series.
        about: metrics that it shows; their questions are its description.
        kind: `stat` or `timeseries`.
        wide: columns of 24.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: tuple[str, ...]
    kind: str = "timeseries"
    wide: int = 8


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it well?",
        (
            Panel(
                "Verdict",
                "none",
                (("max by (query) (state_store_verdict{SEL})", "{{query}}"),),
                ("state_store_verdict",),
                "stat",
                4,
            ),
            Panel(
                "Age of the newest checkpoint",
                "s",
                (
                    (
                        "time() - max by (query) (state_store_last_checkpoint_timestamp_seconds{SEL})",
                        "{{query}}",
                    ),
                ),
                ("state_store_last_checkpoint_timestamp_seconds",),
                "stat",
                4,
            ),
            Panel(
                "Restore against objective",
                "percentunit",
                (
                    (
                        (
                            "max by (query) (state_store_restore_predicted_seconds{SEL}) / on (query) "
                            "max by (query) (state_store_restore_objective_seconds{SEL})"
                        ),
                        "{{query}}",
                    ),
                ),
                ("state_store_restore_predicted_seconds",),
                "stat",
                4,
            ),
            Panel(
                "Longest chain",
                "none",
                (("max by (query) (state_store_chain_deltas{SEL})", "{{query}}"),),
                ("state_store_chain_deltas",),
                "stat",
                4,
            ),
            Panel(
                "Age of the oldest files that are needed",
                "s",
                (("time() - min by (query) (state_store_chain_start_timestamp_seconds{SEL})", "{{query}}"),),
                ("state_store_chain_start_timestamp_seconds",),
                "stat",
                4,
            ),
            Panel(
                "Bytes in storage",
                "bytes",
                (("sum by (query) (state_store_stored_bytes{SEL})", "{{query}}"),),
                ("state_store_stored_bytes",),
                "stat",
                4,
            ),
        ),
    ),
    (
        "What is wrong?",
        (
            Panel(
                "Chain",
                "none",
                (
                    ("max by (query) (state_store_chain_deltas{SEL})", "{{query}} deltas"),
                    ("max by (query) (state_store_chain_deltas_since_full{SEL})", "{{query}} since full"),
                ),
                ("state_store_chain_deltas", "state_store_chain_deltas_since_full"),
            ),
            Panel(
                "Restore, and the objective",
                "s",
                (
                    ("max by (query) (state_store_restore_predicted_seconds{SEL})", "{{query}}"),
                    ("max by (query) (state_store_restore_objective_seconds{SEL})", "{{query}} objective"),
                ),
                ("state_store_restore_predicted_seconds", "state_store_restore_objective_seconds"),
            ),
            Panel(
                "Bytes of the newest checkpoint",
                "bytes",
                (
                    ("sum by (query) (state_store_chain_bytes{SEL})", "{{query}}"),
                    ("sum by (query) (state_store_chain_shared_bytes{SEL})", "{{query}} shared"),
                ),
                ("state_store_chain_bytes", "state_store_chain_shared_bytes"),
            ),
            Panel(
                "Largest store, per byte of the median",
                "none",
                (("state_store_largest_store_ratio{SEL}", "{{query}} {{operator}}/{{store}}"),),
                ("state_store_largest_store_ratio",),
            ),
            Panel(
                "Storage that nothing needs",
                "bytes",
                (("sum by (query) (state_store_unneeded_bytes{SEL})", "{{query}}"),),
                ("state_store_unneeded_bytes",),
            ),
            Panel(
                "Requests to storage, by this service",
                "reqps",
                (
                    (
                        "sum by (query, kind) (rate(state_store_storage_requests_total{SEL}[5m]))",
                        "{{query}} {{kind}}",
                    ),
                ),
                ("state_store_storage_requests_total",),
            ),
        ),
    ),
    (
        "The running query",
        (
            Panel(
                "Merges",
                "none",
                (
                    (
                        "sum by (query, kind) (rate(state_store_merges_total{SEL}[5m])) * 60",
                        "{{query}} {{kind}} a minute",
                    ),
                    ("sum by (query) (state_store_merges_waiting{SEL})", "{{query}} waiting"),
                    ("max by (query) (state_store_merge_failures_in_row{SEL})", "{{query}} failed in a row"),
                ),
                (
                    "state_store_merges_total",
                    "state_store_merges_waiting",
                    "state_store_merge_failures_in_row",
                ),
            ),
            Panel(
                "Bytes uploaded",
                "Bps",
                (
                    (
                        "sum by (query, part) (rate(state_store_uploaded_bytes_total{SEL}[5m]))",
                        "{{query}} {{part}}",
                    ),
                ),
                ("state_store_uploaded_bytes_total",),
            ),
            Panel(
                "Commit, 95th percentile",
                "s",
                (
                    (
                        (
                            "histogram_quantile(0.95, sum by (query, le) "
                            "(rate(state_store_commit_duration_seconds_bucket{SEL}[5m])))"
                        ),
                        "{{query}}",
                    ),
                ),
                ("state_store_commit_duration_seconds",),
            ),
            Panel(
                "Memory",
                "bytes",
                (("sum by (query) (state_store_memory_bytes{SEL})", "{{query}}"),),
                ("state_store_memory_bytes",),
            ),
            Panel(
                "Restores",
                "none",
                (("sum by (query) (increase(state_store_restores_total{SEL}[5m]))", "{{query}}"),),
                ("state_store_restores_total",),
            ),
            Panel(
                "Damage and restarts",
                "none",
                (
                    (
                        "sum by (query) (increase(state_store_damaged_files_total{SEL}[1h]))",
                        "{{query}} damaged files",
                    ),
                    (
                        "sum by (query) (increase(state_store_agent_restarts_total{SEL}[1h]))",
                        "{{query}} agents",
                    ),
                ),
                ("state_store_damaged_files_total", "state_store_agent_restarts_total"),
            ),
        ),
    ),
)
"""Rows of the dashboard, in the order of an operator's questions."""


def expressions() -> list[str]:
    """Return the PromQL of all panels, with the variables of the dashboard."""
    return [_expression(text) for _, panels in ROWS for panel in panels for text, _ in panel.queries]


def _expression(text: str) -> str:
    return text.replace("{SEL}", "{" + CHOSEN + "}")


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    shown: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS:
        shown.append(_row(len(shown) + 1, title, top))
        top, left = top + 1, 0
        high = 4 if panels[0].kind == "stat" else 8
        for panel in panels:
            if left + panel.wide > _COLUMNS:
                top, left = top + high, 0
            place = {"x": left, "y": top, "w": panel.wide, "h": high}
            shown.append(_panel(len(shown) + 1, panel, place))
            left += panel.wide
        top += high
    return {
        "title": "Incremental state store",
        "uid": "incremental-state-store",
        "tags": ["spark", "streaming", "state-store"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(name) for name in ("job", "instance", "query"))]},
        "panels": shown,
    }


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    metrics: list[Metric] = [_BY_NAME[name] for name in panel.about]
    targets = [
        {"refId": chr(ord("A") + index), "expr": _expression(text), "legendFormat": legend}
        for index, (text, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": " ".join(dict.fromkeys(f"{metric.question} {metric.meaning}" for metric in metrics)),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": f"label_values(state_store_up, {name})", "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
    }


def dashboard_text() -> str:
    """Return the dashboard's file."""
    return json.dumps(dashboard(), indent=1) + "\n"
