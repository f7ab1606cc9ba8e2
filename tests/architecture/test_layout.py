"""Sources are short."""

from __future__ import annotations

import subprocess
from pathlib import Path

MOST_LINES = 500


def sources(checkout: Path) -> list[str]:
    """Return the Python and Scala files of the project."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.scala"]
    done = subprocess.run(listed, cwd=checkout, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.splitlines() if (checkout / name).is_file()]


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_no_source_is_longer_than_500_lines(checkout: Path) -> None:
    """A longer one has more than one responsibility."""
    long = {name: lines(checkout / name) for name in sources(checkout)}
    assert not {name: count for name, count in long.items() if count > MOST_LINES}
