"""Breaks of `state_store/core/planning`."""

from __future__ import annotations

from mutants.mutant import Mutant

_PLANNING = "state_store/core/planning"

MUTANTS = [
    Mutant(
        "the delta of a snapshot's own version stays in the chain",
        f"{_PLANNING}/chain.py",
        "if delta.name.version > manifest.version)",
        "if delta.name.version >= manifest.version)",
        ("tests/core/planning/test_chain.py",),
    ),
    Mutant(
        "any two versions have a common lineage",
        f"{_PLANNING}/chain.py",
        "return tuple(reversed(path)) if current == after else None",
        "return tuple(reversed(path))",
        ("tests/core/planning/test_chain.py",),
    ),
    Mutant(
        "a commit made again is counted twice",
        f"{_PLANNING}/chain.py",
        "if self.deltas and self.deltas[-1].name.version_id == delta.name.version_id:",
        "if False:",
        ("tests/core/planning/test_chain.py",),
    ),
    Mutant(
        "one delta more than maxDeltas",
        f"{_PLANNING}/policy.py",
        "if deltas >= self._longest(chain):",
        "if deltas > self._longest(chain):",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "deltas are merged just before a rewrite",
        f"{_PLANNING}/policy.py",
        "return LONGER_BEFORE_REWRITE * longest if is_near else longest",
        "return longest",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "one merge more than fullAfterMerges",
        f"{_PLANNING}/policy.py",
        "if self._max_merges and chain.merges_since_full >= self._max_merges:",
        "if self._max_merges and chain.merges_since_full > self._max_merges:",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "a full checkpoint is made although it needs as many files",
        f"{_PLANNING}/policy.py",
        "if expected * 2 > chain.files:",
        "if False:",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "the jitter is up to twice as long as it may be",
        f"{_PLANNING}/schedule.py",
        "* longest >> 64",
        "* longest >> 63",
        ("tests/core/planning",),
    ),
    Mutant(
        "the time before is given at the very moment of the next",
        f"{_PLANNING}/schedule.py",
        "if not self._known_from_ms <= now_ms < self._known_until_ms:",
        "if not self._known_from_ms <= now_ms <= self._known_until_ms:",
        ("tests/core/planning/test_schedule.py",),
    ),
    Mutant(
        "the week begins on another day",
        f"{_PLANNING}/schedule.py",
        "local.isoweekday() % 7)",
        "local.weekday())",
        ("tests/core/planning/test_schedule.py",),
    ),
    Mutant(
        "all days have 24 hours",
        f"{_PLANNING}/schedule.py",
        "at_ms = self._midnight_ms(local.date()) - _MINUTE_MS",
        "at_ms -= (local.hour * 60 + local.minute + 1) * _MINUTE_MS",
        ("tests/core/planning/test_schedule.py",),
    ),
    Mutant(
        "a scheduled time is never advanced",
        f"{_PLANNING}/schedule.py",
        "self._known_until_ms = self._find_next(now_ms)",
        "self._known_until_ms = now_ms + _LONGEST_MS",
        ("tests/core/planning/test_schedule.py",),
    ),
    Mutant(
        "the schedule is evaluated at each commit",
        f"{_PLANNING}/schedule.py",
        "if not self._known_from_ms <= now_ms < self._known_until_ms:",
        "if True:",
        ("tests/core/planning/test_schedule.py",),
    ),
    Mutant(
        "partitions that begin together cut in the same batch",
        f"{_PLANNING}/policy.py",
        "return limit - jitter(limit // 10, limit, *names) if options.full_schedule_jitter_ms else limit",
        "return limit",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "a full checkpoint for the objective need not pay",
        f"{_PLANNING}/policy.py",
        "kind != FULL or chain.size_bytes - live >= live * FULL_LEAST_SAVING",
        "True",
        ("tests/core/planning/test_write_amplification.py",),
    ),
    Mutant(
        "a state that shrank counts with its old size",
        f"{_PLANNING}/statistics.py",
        "return max(1, size_bytes * self.keys // keys if keys else size_bytes)",
        "return max(size_bytes, size_bytes * self.keys // keys if keys else size_bytes)",
        ("tests/core/planning/test_policy.py",),
    ),
    Mutant(
        "the size of the live state is unknown after a restart",
        f"{_PLANNING}/statistics.py",
        "self._live = (oldest_run_bytes(snapshot), snapshot.keys)",
        "pass",
        ("tests/core/planning/test_policy.py",),
    ),
]
