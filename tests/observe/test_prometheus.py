"""Metrics, alert rules and the dashboard, checked by Prometheus itself."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from owned_processes import started
from prometheus_client.parser import text_string_to_metric_families
from query_directory import QueryDirectory, rows
from running_service import Served, serving
from tools import tool
from waiting import PATIENCE_S, awaited

from state_store.observe import generated_files
from state_store.observe.generated_files import alert_rules, alerts
from state_store.observe.metrics import METRICS
from state_store.observe.rest_answers import SERVE

STORE = 'query="a",operator="0",store="default",partition="0"'
MINUTE = 60

# For each alert: series and values in which it fires at the time in minutes, and those in which it does not.
# Notation of promtool: `1x5` is 1 and five more, `0+60x9` grows by 60.
CASES: dict[str, tuple[int, dict[str, str], dict[str, str]]] = {
    "StateStoreUnreadable": (
        12,
        {'state_store_up{query="a"}': "1x5 0x30"},
        {'state_store_up{query="a"}': "1x40"},
    ),
    "StateStoreQueryFailed": (
        10,
        {'state_store_failed{query="a"}': "0x5 1x30"},
        {'state_store_failed{query="a"}': "0x40"},
    ),
    "StateStoreDamaged": (
        10,
        {'state_store_damaged_stores{query="a"}': "2x40"},
        {'state_store_damaged_stores{query="a"}': "0x40"},
    ),
    "StateStoreVerifyFoundDamage": (
        10,
        {'state_store_verify_problems{query="a"}': "1x40"},
        {'state_store_verify_problems{query="a"}': "0x40"},
    ),
    "StateStoreNotVerified": (
        8 * 24 * 60,
        {'state_store_unverified_since_timestamp_seconds{query="a"}': "0x300"},
        {'state_store_unverified_since_timestamp_seconds{query="a"}': "0+3600x300"},
    ),
    "StateStoreMergesFail": (
        10,
        {f"state_store_merge_failures_in_row{{{STORE}}}": "3x40"},
        {f"state_store_merge_failures_in_row{{{STORE}}}": "2x40"},
    ),
    "StateStoreDamagedFiles": (
        90,
        {'state_store_damaged_files_total{query="a"}': "0x80 1x30"},
        {'state_store_damaged_files_total{query="a"}': "4x100"},
    ),
    "StateStoreRestoreAboveObjective": (
        30,
        {
            f"state_store_restore_predicted_seconds{{{STORE}}}": "12x40",
            'state_store_restore_objective_seconds{query="a"}': "10x40",
        },
        {
            f"state_store_restore_predicted_seconds{{{STORE}}}": "12x40",
            'state_store_restore_objective_seconds{query="a"}': "0x40",
        },
    ),
    "StateStoreChainGrows": (
        30,
        {f"state_store_chain_deltas{{{STORE}}}": "201x40"},
        {f"state_store_chain_deltas{{{STORE}}}": "200x40"},
    ),
    "StateStoreSkew": (
        90,
        {
            'state_store_largest_store_bytes{query="a",operator="0",store="default"}': "1e9x120",
            'state_store_largest_store_ratio{query="a",operator="0",store="default"}': "5x120",
        },
        {
            'state_store_largest_store_bytes{query="a",operator="0",store="default"}': "1e6x120",
            'state_store_largest_store_ratio{query="a",operator="0",store="default"}': "5x120",
        },
    ),
    "StateStoreUnneededBytes": (
        400,
        {
            f"state_store_unneeded_bytes{{{STORE}}}": "6e9x500",
            f"state_store_stored_bytes{{{STORE}}}": "1e10x500",
        },
        {
            f"state_store_unneeded_bytes{{{STORE}}}": "4e9x500",
            f"state_store_stored_bytes{{{STORE}}}": "1e10x500",
        },
    ),
    "StateStoreCannotStart": (
        10,
        {'state_store_start_problems{query="a"}': "1x40"},
        {'state_store_start_problems{query="a"}': "0x40"},
    ),
    "StateStoreUndeletableFiles": (
        90,
        {f"state_store_undeletable_files{{{STORE}}}": "2x100"},
        {f"state_store_undeletable_files{{{STORE}}}": "0x100"},
    ),
    "StateStoreAgentRestarts": (
        90,
        {'state_store_agent_restarts_total{query="a"}': "0+1x100"},
        {'state_store_agent_restarts_total{query="a"}': "7x100"},
    ),
    "StateStoreIdleExecutors": (
        30,
        {'state_store_idle_executors{query="a"}': "1x40"},
        {'state_store_idle_executors{query="a"}': "0x40"},
    ),
    "StateStoreNoCheckpoint": (
        35,
        {f"state_store_last_checkpoint_timestamp_seconds{{{STORE}}}": "0+60x10 600x30"},
        {f"state_store_last_checkpoint_timestamp_seconds{{{STORE}}}": "0+60x40"},
    ),
    # The query never had a full checkpoint: there is no series of its time, and the alert must fire all the
    # same.
    "StateStoreFullCheckpointOld": (
        8 * 24 * 60,
        {f"state_store_chain_start_timestamp_seconds{{{STORE}}}": "0x200"},
        {f"state_store_chain_start_timestamp_seconds{{{STORE}}}": "0+3600x200"},
    ),
    "StateStoreAbsent": (15, {'other{query="a"}': "1x40"}, {'state_store_up{query="a"}': "1x40"}),
}


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == {alert.name for alert, _, _ in alerts()}


MINUTES = {"StateStoreFullCheckpointOld": 60, "StateStoreNotVerified": 60}
"""Minutes between the samples of a series, and between evaluations, where it is not one."""


def promtool_case(name: str, series: dict[str, str], at: int, fires: bool) -> dict[str, Any]:
    """Return a case of `promtool test rules` that counts the alerts of a name."""
    expected = [{"value": 1, "labels": "{}"}] if fires else []
    expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {
        "interval": f"{MINUTES.get(name, 1)}m",
        "input_series": [{"series": text, "values": values} for text, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{at}m", "exp_samples": expected}],
    }


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", CASES)
def test_the_alert_fires_and_does_not(name: str, tmp_path: Path) -> None:
    at, firing, quiet = CASES[name]
    (tmp_path / "rules.yml").write_text(alert_rules())
    cases = [promtool_case(name, firing, at, True), promtool_case(name, quiet, at, False)]
    content = {"rule_files": ["rules.yml"], "evaluation_interval": cases[0]["interval"], "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(content))
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("name", "counter", "first"),
    [
        ("StateStoreDamagedFiles", "state_store_damaged_files_total", 1),
        ("StateStoreAgentRestarts", "state_store_agent_restarts_total", 4),
    ],
)
def test_an_alert_counts_what_was_counted_before_the_first_scrape(
    name: str, counter: str, first: int, tmp_path: Path
) -> None:
    """A driver that begins beside an older one shows a query after its restores and its first batch."""
    older, newer = f'{counter}{{query="a",instance="1"}}', f'{counter}{{query="a",instance="2"}}'
    (tmp_path / "rules.yml").write_text(alert_rules())
    cases = [
        promtool_case(name, {older: "0x80", newer: f"_x75 {first}x100"}, at, fires)
        for at, fires in ((80, True), (150, False))
    ] + [promtool_case(name, {older: "0x80", newer: f"_x75 {first - 1}x100"}, 80, False)]
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(content))
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_rules_are_valid(checkout: Path) -> None:
    rules = checkout / "conf/prometheus/state-store-rules.yml"
    subprocess.run([tool("promtool"), "check", "rules", str(rules)], check=True, capture_output=True)


@pytest.mark.parametrize("name", generated_files.written(Path(__file__).resolve().parents[2]))
def test_a_file_of_the_declarations_is_current(name: str, checkout: Path) -> None:
    assert (checkout / name).read_text(encoding="utf-8") == generated_files.written(checkout)[name], (
        "run `make docs`"
    )


def test_links_of_findings_lead_to_headings(checkout: Path) -> None:
    for _, _, link in alerts():
        page, _, anchor = link.partition("#")
        text = (checkout / page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in slugs, link


def test_the_exposition_has_what_is_declared_and_prometheus_likes_it(served: Served) -> None:
    text = served.http.get("metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        if SERVE in metric.sources:
            family = families[metric.name.removesuffix("_total")]
            assert family.type == metric.kind and family.documentation == metric.meaning
            # Absent: the number of keys, which no listing has, and the time of a verification.
            unknown = ("state_store_keys", "state_store_verified_timestamp_seconds")
            assert family.samples or metric.name in unknown, metric.name
        else:
            assert metric.name.removesuffix("_total") not in families
    ran = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_query_without_a_full_checkpoint_has_the_series_that_the_alert_asks_for(tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "young", tmp_path / "scratch", partitions=1)
    query.commit(rows(0, 5))
    service = serving(query.location)
    try:
        text = service.http.get("metrics").text
        assert "\nstate_store_chain_start_timestamp_seconds{" in text
        assert "\nstate_store_last_full_checkpoint_timestamp_seconds{" not in text
    finally:
        service.stop()


def panels(checkout: Path) -> list[dict[str, Any]]:
    """Return the panels of the Grafana dashboard."""
    dashboard = json.loads((checkout / "conf/grafana/state-store-dashboard.json").read_text(encoding="utf-8"))
    return dashboard["panels"]


def expressions(checkout: Path) -> list[str]:
    """Return the PromQL of all panels, with the variables of the dashboard."""
    return [target["expr"] for panel in panels(checkout) for target in panel.get("targets", ())]


def test_panels_are_about_declared_metrics_and_say_what_they_ask(checkout: Path) -> None:
    declared = {metric.name: metric for metric in METRICS}
    assert expressions(checkout)
    for panel in panels(checkout):
        texts = [target["expr"] for target in panel.get("targets", ())]
        names = [
            name.removesuffix("_bucket") for text in texts for name in re.findall(r"state_store_\w+", text)
        ]
        assert set(names) <= declared.keys(), panel["title"]
        assert all('query=~"$query"' in text for text in texts), panel["title"]
        assert not names or declared[names[0]].question in panel["description"], panel["title"]


def test_panels_of_the_dashboard_do_not_overlap(checkout: Path) -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels(checkout))
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in panels(checkout)]
    assert len(ids) == len(set(ids))


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.tier("more")
def test_a_real_prometheus_scrapes_evaluates_and_draws(
    served: Served, checkout: Path, tmp_path: Path
) -> None:
    tool("promtool")
    program = shutil.which("prometheus")
    assert program, "Debian's package prometheus has both"
    target = served.url.removeprefix("http://").rstrip("/")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(checkout / "conf/prometheus/state-store-rules.yml")],
        "scrape_configs": [{"job_name": "state-store", "static_configs": [{"targets": [target]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", timeout=PATIENCE_S) as api,
    ):

        def series(text: str) -> list[Any]:
            answer = api.get("query", params={"query": text})
            if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:  # it is starting
                return []
            assert answer.json()["status"] == "success", (text, answer.text)
            return answer.json()["data"]["result"]

        def has_looked() -> bool:
            try:
                up = series("state_store_up == 1")
                return bool(up and series("count_over_time(state_store_up[10m]) > 3"))
            except httpx.TransportError:
                return False

        awaited(has_looked, "Prometheus has asked the service")
        running = ("merge", "upload", "commit", "memory", "restores_total", "damaged", "agent")
        for text in expressions(checkout):
            for name in ("query", "job", "instance"):
                text = text.replace(f"${name}", ".+")
            found = series(text)
            assert found or any(word in text for word in running), text
        groups = api.get("rules").json()["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
        firing = [rule["name"] for group in groups for rule in group["rules"] if rule["state"] == "firing"]
        assert firing == []
