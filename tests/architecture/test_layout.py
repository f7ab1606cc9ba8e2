"""Sources are stories, found by their names, and lie in folders that are not full."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

MAX_LINES = 1000
MAX_FILES = 25

REPEATED = {
    "__init__.py": "a package",
    "__main__.py": "a program, `python -m PACKAGE`",
    "conftest.py": "fixtures of a folder",
}
"""Names that Python gives to files, each with its meaning."""

NAMESAKES = {
    "state_store/cli/": "a command has the name of the module that it shows",
    "tests/cli/": "the tests of a command have the name of the command",
    "tests/mutants/": "breaks have the name of the room that they break",
}
"""Folders whose files may have the name of a file elsewhere, each with the reason."""


def sources(checkout: Path) -> list[str]:
    """Return the Python and Scala files of the project."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.scala"]
    done = subprocess.run(listed, cwd=checkout, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.splitlines() if (checkout / name).is_file()]


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_no_source_is_longer_than_1000_lines(checkout: Path) -> None:
    """A file is a story that is read from top to bottom; in a longer one there is a second story."""
    long = {name: lines(checkout / name) for name in sources(checkout)}
    assert not {name: count for name, count in long.items() if count > MAX_LINES}


def test_base_names_are_unique(checkout: Path) -> None:
    """A file is found by its name alone, and the name of a file in an error says which it is.

    A Scala file of a release replaces the one of older releases: they are one file.
    """
    files: dict[str, set[str]] = {}
    for name in sources(checkout):
        base = name.rpartition("/")[2]
        if base not in REPEATED and not name.startswith(tuple(NAMESAKES)):
            files.setdefault(base, set()).add(
                re.sub(r"^jvm_bridge/scala-[0-9.]+/", "jvm_bridge/scala/", name)
            )
    assert not {base: names for base, names in files.items() if len(names) > 1}


def test_no_folder_of_code_has_more_than_25_files(checkout: Path) -> None:
    """A fuller one is divided by subject."""
    folders = Counter(name.rpartition("/")[0] for name in sources(checkout))
    assert not {folder: count for folder, count in folders.items() if count > MAX_FILES}
