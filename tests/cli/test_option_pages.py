"""The generated pages are in step with the declarations and mean what they say."""

from __future__ import annotations

from state_store.cli import job
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import OPTIONS, Options, parse
from state_store.core.settings.session import PROVIDER_CLASS, PROVIDER_KEY


def test_reference_page_is_not_stale(checkout):
    written = (checkout / "docs/options.md").read_text(encoding="utf-8")
    assert written == job.reference(), "run `make docs`"


def test_template_is_not_stale(checkout):
    written = (checkout / "conf/spark-defaults.conf").read_text(encoding="utf-8")
    assert written == job.template(), "run `make docs`"


def test_reference_page_has_every_option_with_type_default_and_trade_off():
    sections = job.reference().split("\n### ")[1:]
    assert sorted(section.split("\n")[0] for section in sections) == sorted(option.name for option in OPTIONS)
    for section in sections:
        (declared,) = (each for each in OPTIONS if each.name == section.split("\n")[0])
        assert f"`{declared.key}` -- {declared.type.name}" in section
        assert declared.doc in section
        assert f"*Trade-off:* {declared.trade_off}" in section
        assert declared.unit in section


def test_template_sets_the_provider_and_its_comments_are_the_defaults():
    lines = job.template().splitlines()
    assert f"{PROVIDER_KEY} {PROVIDER_CLASS}" in lines
    commented = [line.removeprefix("# ") for line in lines if line.startswith("# " + PREFIX)]
    pairs = dict((line + " ").split(" ", 1) for line in commented)
    assert len(pairs) == len(OPTIONS)
    assert parse({key: text.strip() for key, text in pairs.items()}) == Options()
