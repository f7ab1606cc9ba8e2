"""Breaks of `state_store/observe`, and of the command line that asks it."""

from __future__ import annotations

from mutants.mutant import Mutant

_GUARD = "state_store/observe/serving/guard.py"
_LOOK = "state_store/observe/watching/look.py"
_OPERATIONS = "state_store/observe/serving/operations.py"
_VERDICT = "state_store/observe/verdict.py"
_REFUSING = '''    def delete(self, path: str) -> None:
        """Refuse."""
        raise self._refused(path)
'''

MUTANTS = [
    Mutant(
        "a request for any host is answered",
        _GUARD,
        "        if name in self.hosts:\n",
        "        if True:\n",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "tokens are compared character by character",
        _GUARD,
        "hmac.compare_digest(given.strip().encode(), expected.encode())",
        "given.strip() == expected",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "another site may write",
        _GUARD,
        'if fetch_site not in (None, "same-origin", "none"):',
        "if False:",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "a body may have any size",
        "state_store/observe/serving/web.py",
        "        if len(body) > MAX_BODY_BYTES:\n",
        "        if False:\n",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "connections are not bounded",
        "state_store/observe/serving/program.py",
        "limit_concurrency=MAX_CONNECTIONS",
        "limit_concurrency=None",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "storage is looked at although nobody asks",
        "state_store/observe/watching/watched.py",
        "time.monotonic() - self._asked_s > self._idle_s and not self._fully",
        "False",
        ("tests/observe/test_guard.py",),
    ),
    Mutant(
        "a look may delete",
        "state_store/observe/watching/counted_storage.py",
        _REFUSING,
        _REFUSING.replace("raise self._refused(path)", "self.storage.delete(path)"),
        ("tests/observe/test_look.py",),
    ),
    Mutant(
        "archives are read at every look",
        _LOOK,
        "StoreContents.read(self._storages[key], self._known.get(key))",
        "StoreContents.read(self._storages[key], None)",
        ("tests/observe/test_look.py",),
    ),
    Mutant(
        "a query without a new batch is listed at every look",
        _LOOK,
        "            and last.batch == batch\n",
        "            and last.batch is batch is None\n",
        ("tests/observe/test_look.py",),
    ),
    Mutant(
        "the query's own objective is not looked for",
        _LOOK,
        "objective_ms = _objective_ms(options or {})",
        "objective_ms = _objective_ms({})",
        ("tests/observe/test_look.py",),
    ),
    Mutant(
        "small states are skewed",
        _VERDICT,
        "largest > SKEW_LEAST_BYTES",
        "largest > 0",
        ("tests/observe/test_verdict.py",),
    ),
    Mutant(
        "a limit that is met counts as passed",
        _VERDICT,
        "if figure > limit else None",
        "if figure >= limit else None",
        ("tests/observe/test_verdict.py",),
    ),
    Mutant(
        "a time is taken for its age",
        _VERDICT,
        "now_ms - value if rule.is_age else value",
        "value",
        ("tests/observe/test_verdict.py",),
    ),
    Mutant(
        "a request with the id of another one is made anew",
        _OPERATIONS,
        "            if known is not None:\n",
        "            if False:\n",
        ("tests/observe/test_rest.py",),
    ),
    Mutant(
        "a store that is full already is made again",
        _OPERATIONS,
        "_already(query, key) or _made(",
        "_made(",
        ("tests/observe/test_rest.py",),
    ),
    Mutant(
        "one lost poll ends the wait for a full checkpoint",
        "state_store/cli/stores/remote_full.py",
        "            except (StorageError, BusyError) as error:\n                if time.monotonic()",
        "            except BusyError as error:\n                if time.monotonic()",
        ("tests/observe/test_client.py",),
    ),
    Mutant(
        "a snapshot does not say why it was made",
        "state_store/agent/merges/merging.py",
        "Cause(request.reason[:LONGEST_REASON],",
        'Cause("",',
        ("tests/agent/test_causes.py",),
    ),
]
"""One-line breaks of the code, and the tests that must see them."""
