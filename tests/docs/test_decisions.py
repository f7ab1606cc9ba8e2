"""Decisions are numbered, indexed, and have one form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).resolve().parents[2] / "docs/decisions"
RECORDS = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
SECTIONS = ["Context", "Decision", "Consequences", "Rejected"]


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_its_number_a_status_and_the_four_sections(record):
    number, text = record.name[:4], record.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith(f"# {number}. ")
    assert re.fullmatch(r"Status: (accepted|replaced by \d{4}|draft).*", lines[2])
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert max(len(line) for line in lines) <= 130


def test_numbers_are_unique():
    numbers = [record.name[:4] for record in RECORDS]
    assert len(numbers) == len(set(numbers))


def test_the_index_lists_every_record_with_its_title():
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[\d{4}\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE))
    titles = {record.name: record.read_text(encoding="utf-8").splitlines()[0][8:] for record in RECORDS}
    assert rows == titles
