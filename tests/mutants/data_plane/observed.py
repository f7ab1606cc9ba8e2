"""Breaks of the tab in Spark's UI, of its API and of what executors tell the driver."""

from __future__ import annotations

from mutants.mutant import Mutant

_ROOM = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental/observed"

MUTANTS = [
    Mutant(
        "the driver takes a limit that is met as passed",
        f"{_ROOM}/Verdict.scala",
        "    if figure > limit\n",
        "    if figure >= limit\n",
        ("tests/spark/observed/test_tab_verdict.py",),
    ),
    Mutant(
        "a page of another site may request a full checkpoint",
        f"{_ROOM}/ApiServlet.scala",
        "if (isBrowser && !header(ApiServlet.TokenHeader).exists(isToken)) {",
        "if (false) {",
        ("tests/spark/observed/test_tab.py",),
    ),
    Mutant(
        "an agent that was started again is not counted",
        f"{_ROOM}/Board.scala",
        "math.max(0, report.agentRestarts - restarts))",
        "0)",
        ("tests/spark/observed/test_tab.py",),
    ),
    Mutant(
        "a query that has ended keeps its gauges",
        f"{_ROOM}/Exposition.scala",
        "    if (runs.remove(query, facts.run)) {\n",
        "    if (false) {\n",
        ("tests/spark/observed/test_metrics_system.py",),
    ),
]
"""One-line breaks of the code, and the tests that must see them."""
