"""The harness of Spark's suites, which is written for Spark 4.2, as another release compiles it.

A copy of its directory, with what follows: sources without the calls that the release lacks, and no list of
required tests, which is of 4.2. Every test has to pass there that `exceptions.json` does not name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

OF_HARNESS = "4.2"
"""The Spark release of the harness."""

REQUIRED = "required.json"
_WITHOUT = (REQUIRED, "src/RenamedProvider.scala")
"""The provider behind another name is there to find out which tests are required."""

_CONTRACT = "src/ContractSuite.scala"
_UPGRADE = r'  test\("own: a read store becomes the write store.*?\n  }\n'
_CHANGES: Mapping[str, Mapping[str, Sequence[tuple[str, str]]]] = {
    "4.0": {
        _CONTRACT: [
            (_UPGRADE, ""),
            (r"override (def newStoreProvider(?:WithClonedConf|NoInit)\()", r"\1"),
            (r"store\.release\(\)", "store.abort()"),
            (r"StateStore\.removeFromLoadedProvidersAndClose\(", "StateStore.unload("),
        ]
    },
    "4.1": {},
}
"""Patterns and their replacements, by release and source."""


def harness(directory: Path, release: str, into: Path) -> Path:
    """Return the harness of `directory` for a release such as `4.1`: itself, or a copy in `into`.

    Raises ValueError if this module does not know the harness.
    """
    if release == OF_HARNESS:
        return directory
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(directory, into)
    for name in _WITHOUT:
        (into / name).unlink()
    for name, changes in _CHANGES[release].items():
        path = into / name
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in changes:
            text, found = re.subn(pattern, replacement, text, flags=re.DOTALL)
            if not found:
                raise ValueError(f"{directory / name} does not have '{pattern}'")
        path.write_text(text, encoding="utf-8")
    return into
