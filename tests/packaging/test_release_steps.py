"""A release is published if its version, its changes and its tag agree; missing parts are named."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

CHANGES = "# Changes\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-01\n\n- All.\n"


@pytest.fixture(scope="module")
def steps(checkout) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_steps", checkout / "scripts/release_steps.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changelog_has_sections_as_the_steps_expect_them(checkout, steps):
    changes = (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\]", changes, re.MULTILINE)
    assert sections == re.findall(r"^## (?:\[)?([^\]\n]+)", changes, re.MULTILINE)
    for version in sections:
        assert version == "Unreleased" or steps.missing(version, changes, "", []) == []


def test_a_release_with_all_it_needs(steps):
    assert steps.missing("1.2.3", CHANGES, "", ["1.2.2"]) == []


@pytest.mark.parametrize(
    ("version", "changed", "tags", "said"),
    [
        ("1.2.3.dev0", "", [], ["is not a release", "no section '## [1.2.3.dev0] - '"]),
        ("1.2.4", "", [], ["no section '## [1.2.4] - '"]),
        ("1.2", "", [], ["is not a release", "no section '## [1.2] - '"]),
        ("1.2.3", " M README.md\n", [], ["not committed"]),
        ("1.2.3", "", ["1.2.3"], ["the tag 1.2.3 is there already"]),
    ],
)
def test_missing_tools_are_named(steps, version, changed, tags, said):
    found = steps.missing(version, CHANGES, changed, tags)
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))
