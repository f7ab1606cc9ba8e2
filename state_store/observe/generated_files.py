"""Files that are made of the declarations: alert rules, help of the page, and parts of pages.

    python -m state_store.observe.generated_files [CHECKOUT]

Alert rules for Prometheus come from the rules of the verdict. The help travels with the page of checkpoints,
in jar and wheel: hints over headings, and a page to read, with an anchor for each alert, so that links of
findings lead somewhere without any site.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from state_store.observe import metrics
from state_store.observe.documents import ENDPOINTS, Endpoint
from state_store.observe.rest_answers import DRIVER, HISTORY, SERVE, Finding
from state_store.observe.verdict import ALERT_SEVERITIES, RULES, WARNING, Alert, Rule
from state_store.session import build

MARK = "<!-- written by make docs from here on -->\n"


_ALERTS_HEAD = """\
# Alert rules of the incremental state store, for Prometheus. Written from the declarations by `make docs`; do
# not edit. `promtool check rules` takes this file. docs/alerts.md has a paragraph on each alert.
groups:
  - name: incremental-state-store
    rules:
"""


EXTRA: tuple[tuple[Alert, str], ...] = (
    (
        Alert(
            "StateStoreAbsent",
            "absent(state_store_up)",
            "10m",
            "Nothing tells of any query: the service or the scrape is down.",
        ),
        "docs/alerts.md#alert-statestoreabsent",
    ),
)
"""Alerts that no finding belongs to, each with its link."""


def alerts() -> Iterator[tuple[Alert, str, str]]:
    """Yield every alert, the code of its finding and its link."""
    for rule in RULES:
        if rule.alert is not None:
            yield rule.alert, rule.code, rule.link
    for alert, link in EXTRA:
        yield alert, "absent", link


def severity_of(code: str) -> str:
    """Return the severity of the alert of a finding, or of that which has no finding."""
    severities = {rule.code: rule.severity for rule in RULES}
    return ALERT_SEVERITIES[severities.get(code, WARNING)]


def alert_rules() -> str:
    """Return the rules as YAML. Texts are quoted as in JSON, which YAML takes."""
    return _ALERTS_HEAD + "".join(_alert_rule(*alert) for alert in alerts())


def _alert_rule(alert: Alert, code: str, link: str) -> str:
    quoted = {name: json.dumps(text) for name, text in _texts_of(alert, code, link).items()}
    return (
        f"      - alert: {alert.name}\n"
        f"        expr: {quoted['expression']}\n"
        f"        for: {alert.lasts}\n"
        f"        labels: {{severity: {severity_of(code)}, finding: {code}}}\n"
        "        annotations:\n"
        f"          summary: {quoted['summary']}\n"
        f"          remedy: {quoted['remedy']}\n"
        f"          runbook: {quoted['link']}\n"
    )


def _texts_of(alert: Alert, code: str, link: str) -> dict[str, str]:
    return {"expression": alert.expression, "summary": alert.summary, "remedy": remedy_of(code), "link": link}


def remedy_of(code: str) -> str:
    """Return the remedy of a finding, or that of the alert which has no finding."""
    rules: dict[str, Rule] = {rule.code: rule for rule in RULES}
    if code in rules:
        return rules[code].remedy
    return "Look whether `state-store serve` runs and Prometheus reaches it."


WORDS: dict[str, dict[str, str]] = {
    "The figures at the top": {
        "Slowest restore": "How long the slowest store is expected to take if a task must restore it without "
        "local files, beside the query's `restoreObjective`.",
        "A checkpoint has": "Bytes of all files that the newest checkpoint needs, and the share of them that "
        "older versions wrote, so that they were not uploaded again.",
        "The last one wrote": "Bytes that the newest version wrote itself, in all stores.",
        "Longest chain": "Deltas that a restore reads after the snapshot, of the store with the most. Merges "
        "cut it.",
        "Full checkpoint": "When the newest full checkpoint was made that each store has; of the stores, the "
        "oldest. Older files are not needed for a restore of it. `never`: a store has none.",
        "In storage": "Bytes of all files in checkpoint storage, and how many versions can be restored. "
        "Only in `serve`.",
        "Merges failed": "Merges of this run that failed. Only in Spark's UI.",
        "Stores restored": "Restores of stores in this run: one a task without local files to go on with. "
        "Only in Spark's UI.",
        "Stores by executor": "The number of stores on each executor; 0 if it takes tasks and has none. "
        "Only in Spark's UI.",
        "Last batch took": "How long the newest batch took: by Spark's progress, or, in `serve`, from "
        "its entry in Spark's offset log to that in the commit log. The longest commit of a store is "
        "a part of it.",
        "Verified": "When `state-store verify` last read all files of the query. Listings show lost files, "
        "not changed bytes. Only in `serve`.",
    },
    "All queries": {
        "Query": "The name of the query, else its id or its directory. Choose one to see it.",
        "Verdict": "The worst severity of its findings: critical, warning or fine. The list asks again "
        "every few seconds.",
        "What it says": "The verdict in one sentence.",
        "Last checkpoint": "When Spark committed the newest batch.",
        "Stores": "How many stores it has: partitions of its stateful operators, each with the stores of "
        "its side or kind.",
    },
    "Latest": {
        "Latest failure": "The newest merge that failed, or the error that ended the query, in "
        "its own words.",
        "Latest restore": "The newest restore of a store: how long it took. Known to the Spark UI "
        "of the query.",
    },
    "Summary": {
        "Figure": "A figure over the stores, at the newest checkpoint, or over the checkpoints of the "
        "history.",
        "Median": "Half of the stores, or checkpoints, have at most this.",
        "95 %": "95 of 100 have at most this.",
        "Largest": "The largest value.",
        "All": "The sum, where a sum says something.",
    },
    "Stores": {
        "Store": "Number of the operator, number of the partition, name of the store; and what the "
        "operator does.",
        "Bytes, by age of the files": "The files that a restore of the store reads, by the number of "
        "versions since they were written. Old bytes are shared by many checkpoints.",
        "Bytes": "Bytes of the files that a restore needs.",
        "Keys": "Rows of the store, where they are known without reading it.",
        "Deltas": "Deltas that a restore reads after the snapshot.",
        "Files": "SST files that a restore needs.",
        "Restore": "How long a restore without local files is expected to take; red if longer than "
        "`restoreObjective`.",
        "Full checkpoint": "When the newest full checkpoint of the store was made.",
    },
    "Merges": {
        "State": "running, waiting or failed.",
        "Store": "Number of the operator, number of the partition, name of the store.",
        "Kind": "`ingest` frees memory, `incremental` rewrites young files, `full` rewrites all of them.",
        "Since": "Since when it runs or waits, or when it failed.",
        "Why, or what it waits for": "The option that caused it, or what it waits for, or why it failed.",
    },
    "Checkpoints": {
        "Version": "The state after batch version - 1. Open it to see its stores, its files and its reasons.",
        "Made": "When Spark committed it.",
        "Wrote": "Each store writes a delta. A merge or a full checkpoint was made of it later, with "
        "the reason.",
        "Batch": "How long the whole batch took, from Spark's offset log to its commit log.",
        "Commit": "The longest commit of a store: writing the delta, then storing it. A part of the batch. "
        "Only in Spark's UI.",
        "Merge": "The longest merge of it that was published. Merges run beside batches. Only in Spark's UI.",
        "Stores": "Stores that have it.",
        "Deltas": "Longest chain of deltas of a store.",
        "Files": "Files that it needs, in all stores.",
        "Bytes": "Bytes of these.",
        "New bytes": "Bytes of the files that it needs and no older version does.",
        "Restore": "How long the slowest store is expected to take to restore it.",
    },
    "Configuration": {
        "Option": "Name of the option, below `spark.sql.streaming.stateStore.incremental.`.",
        "Value": "The value in force.",
        "Default": "The value if it is not set.",
        "Meaning": "What the option does.",
    },
}
"""Sentences on figures and columns, by the part of the page and its heading."""


_PAGE_DIRECTORY = "jvm_bridge/resources/state-store/page"
"""Directory of the page's files in a checkout."""


_HELP_HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Checkpoints: help</title>
<link rel="stylesheet" href="page.css">
</head>
<body class="state-store-alone">
<div id="state-store">
<main class="help">
<h1>Read the page of checkpoints</h1>
<p class="card">A version is the state of the query after a batch. A delta is what one batch changed; a merge
makes one snapshot of many deltas and shares the files that did not change; a full checkpoint shares nothing
with older ones. The verdict says what is wrong, worst first, and what to do; each finding has its paragraph
below.</p>
"""


_HELP_END = "</main>\n</div>\n</body>\n</html>\n"


def page_files() -> dict[str, str]:
    """Return the texts of the files by their paths in a checkout."""
    words = json.dumps(WORDS, indent=1, ensure_ascii=False)
    comment = "// Words of the page. Written from the declarations by `make docs`.\n"
    return {
        f"{_PAGE_DIRECTORY}/words.js": f"{comment}window.stateStoreWords = {words};\n",
        f"{_PAGE_DIRECTORY}/help.html": "".join((_HELP_HEAD, *_help_parts(), *_help_findings(), _HELP_END)),
    }


def page_directory() -> Path:
    """Return the directory of the page's files, which jar and wheel both carry."""
    return build.source_directory() / "resources" / "state-store" / "page"


def help_on(finding: Finding) -> str:
    """Return the address of the paragraph on a finding, in the page of help that is installed with this."""
    page = page_directory() / "help.html"
    return f"{page.as_uri()}#{finding.link.partition('#')[2]}" if page.is_file() else finding.link


def _help_parts() -> Iterator[str]:
    for part, words in WORDS.items():
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{_coded(text)}</dd>\n" for name, text in words.items())
        heading = f'<h2 id="{_slug(part)}">{escape(part)}</h2>'
        yield f'<section class="card">{heading}\n<dl>\n{rows}</dl></section>\n'


def _help_findings() -> Iterator[str]:
    sentences = {rule.code: rule.sentence for rule in RULES}
    yield '<h1 id="findings">Findings and alerts</h1>\n'
    for alert, code, link in alerts():
        anchor = escape(link.partition("#")[2])
        said = f"<p><strong>{_coded(sentences[code])}</strong></p>\n" if code in sentences else ""
        fires = f"after {escape(alert.lasts)} of <code>{escape(alert.expression)}</code>"
        yield (
            f'<section class="card"><h2 id="{anchor}">{escape(alert.name)}</h2>\n{said}'
            f"<p>{_coded(remedy_of(code))}</p>\n"
            f'<p class="soft small">Finding <code>{escape(code)}</code>, alert of severity '
            f"{severity_of(code)} {fires}</p></section>\n"
        )


def _coded(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _slug(text: str) -> str:
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


_PROGRESS = """\
# Metrics

Written from the declarations in `state_store/observe/metrics.py` by `make docs`; do not edit.

## In Spark's progress

Each stateful operator of a query reports these under `stateOperators[...].customMetrics` of its progress
(`query.lastProgress`, listeners, the event log), and Spark's UI shows them with the operator. A value is for
one batch and for all stores of the operator together: their sum, or their maximum. Times that are summed are
of tasks that run side by side, so they may exceed the batch's duration. [operations.md](operations.md) says
which to look at when.
"""


_BOTH_NAMES = """
## Two names of one fact

Spark's progress has whole numbers of one batch and names in Spark's style; Prometheus scrapes at any time,
and its names have `_` and base units. So a gauge has the number of the newest batch, a counter the sum over
the batches since the run began (a merge counts with the batch after it), and milliseconds are seconds there.
Figures of an operator are those of its stores together: `sum by (query, operator)`, or `max` where the
progress has the maximum. Names in the progress that have the same series are its parts.

| in Spark's progress | for Prometheus | the number |
|---|---|---|
"""


_PROMETHEUS = f"""\
## For Prometheus

`state-store serve` has these at `/metrics`, the driver at `/checkpoints/metrics`. Labels are `query`
(its name) and, for figures of stores, `operator`, `store` and `partition`. A query with more than
{metrics.MAX_STORES} stores has one series for the partitions of a store together, without `partition`: their
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


_UNITS = {
    metrics.SUM: "number",
    metrics.BYTES: "bytes",
    metrics.TIME: "ms",
    metrics.LARGEST: "number",
    metrics.OLDEST: "ms",
}


def metrics_page() -> str:
    """Return docs/metrics.md."""
    return "".join(
        (_PROGRESS, *_progress_tables(), _BOTH_NAMES, *_both_names(), "\n", _PROMETHEUS, *_for_prometheus())
    )


def _progress_tables() -> Iterator[str]:
    for heading, of_heading in metrics.PROGRESS.items():
        yield f"\n### {heading}\n\n| metric | unit | of the stores | meaning |\n|---|---|---|---|\n"
        for metric in of_heading:
            together = "maximum" if metric.kind in (metrics.LARGEST, metrics.OLDEST) else "sum"
            yield f"| `{metric.name}` | {_UNITS[metric.kind]} | {together} | {metric.meaning} |\n"


def _both_names() -> Iterator[str]:
    for name, series, relation in metrics.OF_SPARK:
        yield f"| `{name}` | `{series}` | differs: {relation} |\n"
    for metric in metrics.progress_metrics():
        if metric.series is not None:
            differs = "" if metric.relation in (metrics.SAME, metrics.ADDED_UP) else "differs: "
            yield f"| `{metric.name}` | `{metric.series}` | {differs}{metric.relation} |\n"


def _for_prometheus() -> Iterator[str]:
    for metric in metrics.METRICS:
        labels = ", ".join(f"`{name}`" for name in (*metrics.LABELS[metric.subject], *metric.labels))
        over = metric.over if metric.subject == "store" else ""
        yield (
            f"| `{metric.name}` | {metric.kind} | {labels} | {', '.join(metric.sources)} | {over} | "
            f"{metric.meaning} | {metric.question} |\n"
        )


def rest_section() -> str:
    """Return the reference in docs/rest.md."""
    return "".join(_endpoint(endpoint) for endpoint in ENDPOINTS)


def _endpoint(endpoint: Endpoint) -> str:
    names = {DRIVER: "driver", HISTORY: "History Server", SERVE: "serve"}
    lines = [f"\n### {endpoint.method} /v1{endpoint.path}\n", f"\n{endpoint.summary} "]
    lines.append(f"Answers {endpoint.status} `{endpoint.answer.__name__}`. ")
    lines.append(f"From: {', '.join(names[source] for source in endpoint.sources)}.\n")
    parameters = [parameter for parameter in endpoint.parameters if parameter.place == "query"]
    if parameters:
        lines.append("\n| parameter | default | meaning |\n|---|---|---|\n")
        for parameter in parameters:
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


def checkpoints_section() -> str:
    """Return the reference in docs/checkpoints.md: a table for each part of the page of checkpoints."""
    return "".join(
        f"\n### {part}\n\n| heading | meaning |\n|---|---|\n"
        + "".join(f"| {name} | {text} |\n" for name, text in words.items())
        for part, words in WORDS.items()
    )


def written(checkout: Path) -> dict[str, str]:
    """Return the texts of all files by their paths; pages keep what stands above the mark."""
    sections = {
        "docs/rest.md": rest_section(),
        "docs/alerts.md": alert_section(),
        "docs/checkpoints.md": checkpoints_section(),
    }
    texts = {}
    for name, section in sections.items():
        above, mark, _ = (checkout / name).read_text(encoding="utf-8").partition(MARK)
        if not mark:
            raise ValueError(f"{name} lacks the line {MARK.strip()}")
        texts[name] = above + MARK + section
    texts["docs/metrics.md"] = metrics_page()
    texts["conf/prometheus/state-store-rules.yml"] = alert_rules()
    return {**texts, **page_files()}


def main(checkout: Path) -> None:
    """Write the files into a checkout."""
    for name, text in written(checkout).items():
        (checkout / name).write_text(text, encoding="utf-8")
        print(f"wrote {checkout / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
