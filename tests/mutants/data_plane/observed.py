"""Breaks of the tab in Spark's UI: a page of another site requests nothing."""

from __future__ import annotations

from mutants.mutant import Mutant

_ROOM = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental/observed"

MUTANTS = [
    Mutant(
        "a page of another site may request a full checkpoint",
        f"{_ROOM}/ApiServlet.scala",
        "if (isBrowser && !header(ApiServlet.TokenHeader).exists(isToken)) {",
        "if (false) {",
        ("tests/spark/observed/test_tab.py",),
    ),
]
"""One-line breaks of the code, and the tests that must see them."""
