"""Check the format of Scala sources: no tabs, no trailing blanks, at most 130 characters a line.

    python scripts/check_scala.py DIRECTORY...

Prints each finding as file:line and exits with 1 when there is any.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 130


def findings(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if "\t" in line:
            yield f"{path}:{number}: a tab"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end of the line"
        if len(line) > LONGEST and not line.lstrip().startswith("import "):
            yield f"{path}:{number}: {len(line)} characters, {LONGEST} are allowed"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield f"{path}: the file must end with exactly one newline"


def main(directories: list[str]) -> int:
    files = sorted(file for directory in directories for file in Path(directory).rglob("*.scala"))
    messages = [finding for file in files for finding in findings(file)]
    print("\n".join(messages) if messages else f"{len(files)} Scala files are well formatted")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
