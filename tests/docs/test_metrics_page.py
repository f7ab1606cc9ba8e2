"""The metrics of docs/metrics.md are those that the store declares."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest


@pytest.fixture(scope="module")
def generator(checkout):
    spec = importlib.util.spec_from_file_location("metrics_page", checkout / "scripts/metrics_page.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_not_stale(generator, checkout):
    written = (checkout / "docs/metrics.md").read_text(encoding="utf-8")
    assert written == generator.page(checkout), "run `make docs`"


def test_no_declaration_is_overlooked(generator, checkout):
    source = generator.source_file(checkout).read_text(encoding="utf-8")
    names = re.findall(r'"(incremental[A-Z]\w*)"', source)
    assert sorted(metric.name for metric in generator.declared(source)) == sorted(names)


def test_metrics_that_the_documents_name_exist(generator, checkout):
    source = generator.source_file(checkout).read_text(encoding="utf-8")
    known = {metric.name for metric in generator.declared(source)}
    for page in (checkout / "docs").rglob("*.md"):
        named = set(re.findall(r"`(incremental[A-Z]\w+)`", page.read_text(encoding="utf-8")))
        assert named <= known, f"{page.name} names metrics that do not exist: {sorted(named - known)}"
