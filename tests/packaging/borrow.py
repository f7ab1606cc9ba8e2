"""Print the paths in site-packages of some distributions and their dependencies, one a line.

python borrow.py NAME...
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path


def borrowable(names: list[str]) -> set[Path]:
    """Return the entries of site-packages that belong to these distributions and their dependencies."""
    found: set[Path] = set()
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a requirement for other platforms
        for file in distribution.files or ():
            if file.parts[0] not in ("..", "__pycache__"):
                found.add(Path(str(distribution.locate_file(file.parts[0]))))
        required = [text for text in distribution.requires or () if "extra ==" not in text]
        names += [match[0] for text in required if (match := re.match(r"[\w.-]+", text))]
    return found


if __name__ == "__main__":
    print("\n".join(map(str, sorted(borrowable(sys.argv[1:])))))
