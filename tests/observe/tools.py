"""Programs beside Python that tests need: where they are, or why a test cannot run."""

from __future__ import annotations

import os
import shutil

import pytest

HOW = {
    "chromium": "run scripts/install-test-tools as root, or install Debian's package chromium",
    "promtool": "run scripts/install-test-tools as root, or install Debian's package prometheus",
}


def tool(name: str) -> str:
    """Return the path of a program. Without it the test is skipped, or fails where the checks require it."""
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not installed: {HOW[name]}"
    if os.environ.get("STATE_STORE_TEST_TOOLS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)
