"""Check that a release can be published, and print the steps: python scripts/release_steps.py DIST.

It publishes nothing. The exit status is 1 where something is missing, and each such thing is said.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

import state_store  # noqa: E402


def missing(version: str, changes: str, changed_files: str, tags: list[str]) -> list[str]:
    """Return a sentence for each thing that keeps `version` from being published.

    Args:
        version: the version, such as `1.2.3`.
        changes: the text of CHANGELOG.md.
        changed_files: the output of `git status --porcelain`.
        tags: the tags of the repository.
    """
    obstacles = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        obstacles.append(
            f"{version} is not a release: set __version__ in state_store/__init__.py to one like 1.2.3"
        )
    section = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(section, changes, re.MULTILINE):
        heading = f"'## [{version}] - ' and the day"
        obstacles.append(f"CHANGELOG.md has no section {heading}: rename '## [Unreleased]' to it")
    if changed_files.strip():
        obstacles.append("there are changes that are not committed: git status")
    if version in tags:
        obstacles.append(
            f"the tag {version} is there already: a release is published once, take the next number"
        )
    return obstacles


def main() -> int:
    dist, version = sys.argv[1], state_store.__version__
    obstacles = missing(
        version,
        (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"),
        _git("status", "--porcelain"),
        _git("tag").split(),
    )
    for sentence in obstacles:
        print(f"not yet: {sentence}", file=sys.stderr)
    if not obstacles:
        print(f"The artefacts in {dist} passed. To publish {version}:")
        print(f"  git tag {version} && git push origin {version}")
        print(f"  python -m twine upload {dist}/*")
        print("  then set __version__ to the next with .dev0, and begin '## [Unreleased]' in CHANGELOG.md")
    return 1 if obstacles else 0


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
