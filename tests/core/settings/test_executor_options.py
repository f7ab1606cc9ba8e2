"""Options of an executor count as its first query sets them, and others are warned."""

from __future__ import annotations

from state_store.core.settings.option import EXECUTOR, PREFIX
from state_store.core.settings.options import OPTIONS, ExecutorOptions, parse

FIRST = parse({"memoryBudget": "64m", "maxDeltas": "7"})
SECOND = parse({"memoryBudget": "1g", "maxDeltas": "9"})


def test_the_first_query_decides_and_another_is_told_once():
    shared = ExecutorOptions()
    assert shared.in_force(FIRST) == (FIRST, [])
    settled, warnings = shared.in_force(SECOND)
    assert settled == parse({"memoryBudget": "64m", "maxDeltas": "9"})
    (sentence,) = warnings
    assert f"{PREFIX}memoryBudget counts for the whole executor" in sentence
    assert f"set it to {64 << 20} bytes first: {1 << 30} bytes has no effect" in sentence
    assert shared.in_force(SECOND) == (settled, [])
    assert len(shared.in_force(parse({"memoryBudget": "2g"}))[1]) == 1


def test_queries_that_agree_are_told_nothing():
    shared = ExecutorOptions()
    for _ in range(2):
        assert shared.in_force(parse({"logLevel": "DEBUG"})) == (parse({"logLevel": "DEBUG"}), [])


def test_when_nothing_is_open_any_more_the_next_query_decides():
    shared = ExecutorOptions()
    shared.in_force(FIRST)
    shared.forget()
    assert shared.in_force(SECOND) == (SECOND, [])


def test_these_options_are_shared():
    names = {option.name for option in OPTIONS if option.scope == EXECUTOR}
    assert names == {
        "memoryBudget",
        "localRecoveryBudget",
        "verificationRateLimit",
        "hydrationRateLimit",
        "localDiskLimit",
        "maxConcurrentMerges",
        "agentStartTimeout",
        "logLevel",
    }
