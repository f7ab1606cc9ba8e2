"""Breaks of `state_store/observe`: a stranger neither reads nor writes, and a look changes nothing."""

from __future__ import annotations

from mutants.mutant import Mutant

_GUARD = "state_store/observe/web.py"
_OPERATIONS = "state_store/observe/operations.py"
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
        "hmac.compare_digest(token.strip().encode(), expected.encode())",
        "token.strip() == expected",
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
        "a look may delete",
        "state_store/observe/look.py",
        _REFUSING,
        _REFUSING.replace("raise self._refused(path)", "self.storage.delete(path)"),
        ("tests/observe/test_look.py",),
    ),
    Mutant(
        "a request with the id of another one is made anew",
        _OPERATIONS,
        "            if operation is not None:\n",
        "            if False:\n",
        ("tests/observe/test_rest.py",),
    ),
    Mutant(
        "a defect ends the looks at a query",
        "state_store/observe/look.py",
        "        except Exception as error:  # without its thread",
        "        except (StateStoreError, OSError) as error:  # without its thread",
        ("tests/observe/test_look.py",),
    ),
]
"""One-line breaks of the code, and the tests that must see them."""
