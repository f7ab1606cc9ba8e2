"""Files that are made of the declarations: alert rules, the dashboard, and parts of pages.

python -m state_store.observe.monitoring.generated_files [CHECKOUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

from state_store.observe.model.declared import DRIVER, HISTORY, SERVE
from state_store.observe.model.endpoints import ENDPOINTS, Endpoint
from state_store.observe.model.metrics import LABELS, MAX_STORES, METRICS
from state_store.observe.model.rules import RULES
from state_store.observe.monitoring import page_help
from state_store.observe.monitoring.alerts import alert_rules, alerts, remedy_of, severity_of
from state_store.observe.monitoring.dashboard import dashboard_text

MARK = "<!-- written by make docs from here on -->\n"

_PROMETHEUS = f"""\
## For Prometheus

`state-store serve` has these at `/metrics`, the driver at `/checkpoints/metrics`. Labels are `query`
(its name) and, for figures of stores, `operator`, `store` and `partition`. A query with more than
{MAX_STORES} stores has one series for the partitions of a store together, without `partition`: their
sum, maximum or minimum. A figure that is not known has no series; none is 0 for that.
`conf/prometheus/state-store-rules.yml` has alerts ([alerts.md](alerts.md)),
`conf/grafana/state-store-dashboard.json` a dashboard. OpenTelemetry's collector scrapes the same text
with its Prometheus receiver.

### In Spark's metrics system

The driver's gauges are in Spark's own metrics system, too, without an option, for whatever sinks are
configured there: one for each metric and running query, over all its stores (sum, maximum or minimum, as
below). Their names are `<application>.driver.stateStore.<query>.<metric>`, `<metric>` without `state_store_`
and `<query>` with `_` for all but letters, digits and `-`. With `PrometheusServlet` that is, at
`/metrics/prometheus`,

```
metrics_local_1764080000000_driver_stateStore_flights_chain_deltas_Value{{type="gauges"}} 12
```

A gauge without a value is `NaN`. Counters, histograms, single stores, `merges_waiting` and `merges_running`
are at `/checkpoints/metrics` alone. A gauge costs nothing until a sink reads it: then the figures of its
query are put together, at most once a second. In a driver without a UI and without an event log, executors
report only if the Spark configuration has a `spark.metrics.conf...`.

### The metrics

| metric | type | labels | from | over partitions | meaning | question |
|---|---|---|---|---|---|---|
"""


def prometheus_section() -> str:
    """Return the section of docs/metrics.md on the metrics for Prometheus."""
    rows = []
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in (*LABELS[metric.subject], *metric.labels))
        over = metric.over if metric.subject == "store" else ""
        rows.append(
            f"| `{metric.name}` | {metric.kind} | {labels} | {', '.join(metric.sources)} | {over} | "
            f"{metric.meaning} | {metric.question} |\n"
        )
    return _PROMETHEUS + "".join(rows)


def rest_section() -> str:
    """Return the reference in docs/rest.md."""
    return "".join(_endpoint(endpoint) for endpoint in ENDPOINTS)


def _endpoint(endpoint: Endpoint) -> str:
    names = {DRIVER: "driver", HISTORY: "History Server", SERVE: "serve"}
    lines = [f"\n### {endpoint.method} /v1{endpoint.path}\n", f"\n{endpoint.summary} "]
    lines.append(f"Answers {endpoint.status} `{endpoint.answer.__name__}`. ")
    lines.append(f"From: {', '.join(names[source] for source in endpoint.sources)}.\n")
    chosen = [parameter for parameter in endpoint.parameters if parameter.place == "query"]
    if chosen:
        lines.append("\n| parameter | default | meaning |\n|---|---|---|\n")
        for parameter in chosen:
            choices = f" One of {', '.join(parameter.choices)}." if parameter.choices else ""
            lines.append(
                f"| `{parameter.name}` | {parameter.default or ''} | {parameter.meaning}{choices} |\n"
            )
    if endpoint.errors:
        lines.append("\n| error | when |\n|---|---|\n")
        lines += [f"| {status} | {reason} |\n" for status, reason in endpoint.errors]
    return "".join(lines)


def alert_section() -> str:
    """Return the section of docs/operations.md on alerts: a paragraph each."""
    sentences = {rule.code: rule for rule in RULES}
    paragraphs = []
    for alert, code, _ in alerts():
        rule = sentences.get(code)
        said = "" if rule is None else f' `state-store doctor` says: "{rule.sentence}"'
        paragraphs.append(
            f"\n### Alert: {alert.name}\n\n"
            f"Fires after {alert.lasts} (severity `{severity_of(code)}`) while `{alert.expression}`."
            f"{said}\n\n"
            f"{remedy_of(code)}\n"
        )
    return "".join(paragraphs)


def written(checkout: Path) -> dict[str, str]:
    """Return the texts of all files by their paths; pages keep what stands above the mark."""
    sections = {
        "docs/rest.md": rest_section(),
        "docs/alerts.md": alert_section(),
    }
    made = {}
    for name, section in sections.items():
        above, mark, _ = (checkout / name).read_text(encoding="utf-8").partition(MARK)
        if not mark:
            raise ValueError(f"{name} lacks the line {MARK.strip()}")
        made[name] = above + MARK + section
    made["conf/prometheus/state-store-rules.yml"] = alert_rules()
    made["conf/grafana/state-store-dashboard.json"] = dashboard_text()
    return {**made, **page_help.files()}


def main(checkout: Path) -> None:
    """Write the files into a checkout."""
    for name, text in written(checkout).items():
        (checkout / name).write_text(text, encoding="utf-8")
        print(f"wrote {checkout / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
