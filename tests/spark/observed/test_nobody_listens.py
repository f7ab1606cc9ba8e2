"""Without a UI and an event log no reports are sent, and queries run as usual."""

from __future__ import annotations

from pathlib import Path

import pytest
from observed.ui_application import Running

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]


def test_queries_of_an_application_without_a_ui_run_silently(tmp_path: Path) -> None:
    with Running(tmp_path / "app", **{"spark.ui.enabled": "false"}) as app:
        assert app.ui is None
        app.start("totals")
        assert app.feed("totals", 5)["batch"] == 4
    log = (tmp_path / "app/log").read_text()
    assert "Exception" not in log
    assert "incremental" not in log
