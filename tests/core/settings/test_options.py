"""The declarations of options, values that users may write, and messages for other values."""

from __future__ import annotations

import dataclasses
import re

import pytest

from state_store.core.deletion.retention import RetentionPolicy
from state_store.core.settings.option import PREFIX
from state_store.core.settings.options import (
    OPTIONS,
    REMOVED,
    Options,
    by_name,
    changed_texts,
    options,
    parse,
)
from state_store.errors import OptionError


def test_defaults_are_what_the_declarations_say():
    parsed = parse({option.name: option.default for option in OPTIONS})
    assert parsed == parse({}) == Options()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("memoryBudget", "64m", 64 << 20),
        ("memoryBudget", "1G", 1 << 30),
        ("memoryBudget", "33554432", 32 << 20),
        ("memoryBudget", "2gb", 2 << 30),
        ("memoryBudget", "2 GiB", 2 << 30),
        ("restoreObjective", "500ms", 500),
        ("restoreObjective", "5s", 5_000),
        ("restoreObjective", "2min", 120_000),
        ("restoreObjective", " 2m ", 120_000),
        ("fullInterval", "36h", 129_600_000),
        ("retainedAge", "7d", 604_800_000),
        ("fullInterval", "0", 0),
        ("tolerableFailedMerges", "-1", -1),
        ("localRecovery", "FALSE", False),
        ("fullSpaceAmplification", "1.5", 1.5),
        ("logLevel", "warning", "WARNING"),
        ("fullSchedule", "*/15  0-6 1,15 * 7", "*/15 0-6 1,15 * 7"),
        ("fullScheduleTimeZone", "Europe/Berlin", "Europe/Berlin"),
        ("localDir", "/disk1/state", "/disk1/state"),
        ("minPauseBetweenMerges", "36500d", 36_500 * 86_400_000),
        ("fullSchedule", "0 3 29 2 *", "0 3 29 2 *"),
        ("fullSchedule", "0 3 31 2,3 *", "0 3 31 2,3 *"),
        ("fullSchedule", "0 3 30 2 1", "0 3 30 2 1"),
    ],
)
def test_texts_become_values(name, text, value):
    for given in (name, PREFIX + name):
        assert by_name(parse({given: text}))[name] == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("memoryBudget", "lots", "512m"),
        ("memoryBudget", "1m", "but 16m or more is needed"),
        ("leaseExpiry", "1s", "but 1min or more is needed"),
        ("memoryBudget", "-1", "size in bytes"),
        ("restoreObjective", "5", "with its unit"),
        ("restoreObjective", "5 fortnights", "with its unit"),
        ("maxConcurrentMerges", "0", "1 or more"),
        ("maxConcurrentMerges", "1.5", "whole number"),
        ("localRecovery", "yes", "true or false"),
        ("logLevel", "LOUD", "DEBUG, INFO, WARNING, ERROR"),
        ("fullSpaceAmplification", "nan", "number of 0 or more"),
        ("fullSchedule", "0 3 * *", "five cron fields"),
        ("fullSchedule", "0 24 * * *", "outside 0 to 23"),
        ("fullSchedule", "0 3 * * mon", "not a cron item"),
        ("fullSchedule", "*/0 3 * * *", "outside"),
        ("fullSchedule", "30-10 3 * * *", "outside"),
        ("fullSchedule", "0 3 30,31 2 *", "none of its months has such a day"),
        ("fullSchedule", "0 3 31 2,4,6,9,11 *", "none of its months has such a day"),
        ("minPauseBetweenMerges", "36501d", "100 years"),
        ("memoryBudget", "8192p", "less than 8192p"),
        ("maxDeltaShare", "9" * 400, "smaller number"),
        ("fullScheduleTimeZone", "Mars/Olympus", "name of a time zone"),
        ("fullScheduleTimeZone", "../etc/passwd", "name of a time zone"),
    ],
)
def test_wrong_texts_are_refused_by_name_value_and_remedy(name, text, message):
    with pytest.raises(OptionError) as refused:
        parse({name: text})
    assert refused.value.option == PREFIX + name
    assert PREFIX + name in refused.value.message
    assert repr(text) in refused.value.message
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("misspelt", "nearest"),
    [
        ("memorybudget", "memoryBudget"),
        ("memoryBuget", "memoryBudget"),
        ("fullAfterDelta", "fullAfterDeltas"),
        ("retainCheckpoints", "retainedCheckpoints"),
        ("minPauseBetweenCheckpoints", "minPauseBetweenMerges"),
        ("maxConcurrentMerge", "maxConcurrentMerges"),
    ],
)
def test_misspelt_names_are_refused_with_the_nearest(misspelt, nearest):
    with pytest.raises(OptionError) as refused:
        parse({PREFIX + misspelt: "1"})
    assert refused.value.option == PREFIX + misspelt
    assert f"The nearest is {PREFIX}{nearest}." in refused.value.message


def test_a_name_like_no_other_is_refused_with_where_to_look():
    with pytest.raises(OptionError, match="state-store options"):
        parse({"zzzz": "1"})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("temporaryExpiry", "leaseExpiry"),
        ("mergeThreads", "maxConcurrentMerges"),
        ("pageCacheLimit", "localDiskLimit"),
        ("hydrationDiskBudget", "localDiskLimit"),
        ("lazyRestoreThreshold", "restoreMode"),
    ],
)
def test_removed_options_are_refused_with_what_takes_their_place(name, instead):
    assert name in REMOVED
    assert instead in {option.name for option in OPTIONS}
    for refuse in (lambda: parse({PREFIX + name: "1"}), lambda: options(name)):
        with pytest.raises(OptionError, match=f"{name} was removed.*{instead}") as refused:
            refuse()
        assert refused.value.option == PREFIX + name


def test_removed_options_are_none_and_have_advice():
    assert not set(REMOVED) & {option.name for option in OPTIONS}
    assert all(advice.endswith(".") for advice in REMOVED.values())


def test_leftovers_go_when_they_are_many_times_as_old_as_a_lease():
    assert parse({}).temporary_expiry_ms == RetentionPolicy(batches=2).temporary_expiry_ms == 86_400_000
    assert parse({"leaseExpiry": "30min"}).temporary_expiry_ms == 12 * 3_600_000


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(OptionError, match=r"leaseExpiry .* must be longer than .*mergeTimeout"):
        parse({"mergeTimeout": "2h", "leaseExpiry": "1h"})


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().memory_budget_bytes = 1  # type: ignore[misc]


def test_every_option_is_documented_and_named_after_its_attribute():
    for attribute, option in zip(dataclasses.fields(Options), OPTIONS, strict=True):
        plain = option.name.replace(".", "_")
        words = "".join("_" + letter.lower() if letter.isupper() else letter for letter in plain)
        suffix = {"milliseconds": "_ms", "bytes": "_bytes"}.get(option.unit, "")
        words = words.removesuffix(suffix) + suffix
        assert attribute.name.removesuffix("_per_s") == words
        assert len(option.doc) > 30, option.name
        assert option.doc.endswith((".", ")")), option.name
        assert len(option.trade_off) > 20, option.name
        assert option.group, option.name


def test_every_option_has_an_effect(checkout):
    """Each is read somewhere: its attribute in the control plane, or its name in the data plane."""
    python = [path for path in (checkout / "state_store").rglob("*.py") if path.name != "options.py"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in python)
    scala = "\n".join(path.read_text(encoding="utf-8") for path in (checkout / "jvm_bridge").rglob("*.scala"))
    for attribute, option in zip(dataclasses.fields(Options), OPTIONS, strict=True):
        read_in_python = re.search(rf"options\.{attribute.name}\b|Options\(\)\.{attribute.name}\b", code)
        in_scala = f'"{option.name}"' in scala
        assert read_in_python or in_scala, f"{option.name} changes nothing"


def test_changed_options_are_texts_that_mean_the_same():
    given = {
        "memoryBudget": "2g",
        "restoreObjective": "90s",
        "localRecovery": "FALSE",
        "fullSpaceAmplification": "0.00001",
        "fullSchedule": "0 3 * * 1",
        "tolerableFailedMerges": "5",
        "maxDeltas": "100000",
        "retainedAge": "7d",
    }
    options = parse(given)
    texts = changed_texts(options)
    assert parse(texts) == options
    assert texts["restoreObjective"] == "90000ms"
    assert changed_texts(Options()) == {}
