"""Prints what was damaged and what came of it."""

from __future__ import annotations

import pytest

from damage import tally


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found := tally.lines():
        terminalreporter.section("damage")
        for line in found:
            terminalreporter.write_line(line)
