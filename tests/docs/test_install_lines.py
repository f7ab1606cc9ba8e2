"""Pages name the packages of pyproject.toml, and say everywhere in the same lines how to install them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = (
    "README.md",
    "docs/install.md",
    "docs/state.md",
    "docs/rest.md",
    "docs/deployment.md",
    "docs/operations.md",
)
"""Pages after whose first block somebody runs a query or looks at one."""

FOR_EXECUTORS = ("docs/install.md", "docs/deployment.md", "docs/operations.md")


def text(checkout: Path, page: str) -> str:
    return (checkout / page).read_text(encoding="utf-8")


def project(checkout: Path) -> dict:
    return tomllib.loads(text(checkout, "pyproject.toml"))["project"]


def distributions(requirements: list[str]) -> set[str]:
    """Return the names of the distributions, without this one."""
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]
    return names - {"incremental-state-store"}


def test_all_pages_say_the_same_two_lines(checkout: Path) -> None:
    lines = {
        page: re.findall(r"^    pip install '\.\[(?:spark|serve)\]'.*$", text(checkout, page), re.MULTILINE)
        for page in PAGES
    }
    assert len(lines["docs/install.md"]) == 2
    assert {page for page, found in lines.items() if found != lines["docs/install.md"]} == set()


def test_the_line_for_executors_is_made_of_the_requirements(checkout: Path) -> None:
    """The agent needs a pinned package, Python workers of Spark the others; pyspark is on every executor."""
    declared = project(checkout)
    (pinned,) = declared["dependencies"]
    extra = [text for text in declared["optional-dependencies"]["spark"] if not text.startswith("pyspark")]
    line = " ".join(["pip install", pinned, *(f"'{requirement}'" for requirement in extra)])
    for page in FOR_EXECUTORS:
        assert text(checkout, page).count(line) == 1, page
    assert f"pip install {pinned}'" in text(checkout, "state_store/core/engine/__init__.py")


def test_rocksdict_is_installed_in_no_other_version(checkout: Path) -> None:
    (pinned,) = project(checkout)["dependencies"]
    for page in sorted((checkout / "docs").glob("*.md")):
        for line in re.findall(r"pip install .*", page.read_text(encoding="utf-8")):
            assert "rocksdict" not in line or pinned in line, f"{page.name}: {line}"


def test_each_extra_for_users_is_explained_with_its_packages(checkout: Path) -> None:
    declared = project(checkout)["optional-dependencies"]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text(checkout, "docs/install.md"), re.MULTILINE)
    explained = {extra: set(re.findall(r"`([\w-]+)`", packages)) for extra, packages in rows}
    developers = {"demo", "test", "docs", "lint", "benchmark"}
    assert explained.keys() == declared.keys() - developers
    for extra, packages in explained.items():
        assert packages == distributions(declared[extra])


@pytest.mark.parametrize("extra", ["spark", "arrow"])
def test_pandas_comes_with_what_gives_frames(checkout: Path, extra: str) -> None:
    assert "pandas>=2.2,<3" in project(checkout)["optional-dependencies"][extra]


def test_nothing_says_that_the_name_is_on_an_index(checkout: Path) -> None:
    """`pip install NAME` would install what somebody else puts on the index under that name."""
    named = re.compile(r"pip install [^\n`(]*?incremental[-_]state[-_]store(?!-\*)(?!\[\w+\] @ git\+)")
    sources = [*(checkout / "state_store").rglob("*.py"), *(checkout / "examples").glob("*.py")]
    pages = [checkout / "README.md", checkout / "CONTRIBUTING.md", *(checkout / "docs").glob("*.md")]
    found = {path.name for path in [*sources, *pages] if named.search(path.read_text(encoding="utf-8"))}
    assert found == set()
    assert named.search("pip install 'incremental-state-store[cli]'")
