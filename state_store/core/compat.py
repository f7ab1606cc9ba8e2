"""Functions of Python 3.10 for Python 3.9, which Spark 4.0 runs on.

Every wing may use them. Safe for any thread.

A module that calls `zip` with `strict` imports it from here.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 10):
    from builtins import zip  # noqa: UP029
    from itertools import pairwise
else:
    import builtins
    import itertools

    def pairwise(items):
        """Return the pairs of neighbours, as `itertools.pairwise` does."""
        first, right = itertools.tee(items)
        next(right, None)
        return builtins.zip(first, right)

    def zip(*iterables, strict=False):
        """Return the tuples of members, as the built-in function does."""
        return _equally_many(*iterables) if strict and iterables else builtins.zip(*iterables)

    def _equally_many(first, *others):
        """Yield tuples of members; only the members of the first pass through Python code."""
        is_over = False

        def watched():
            nonlocal is_over
            yield from first
            is_over = True

        rest = [iter(items) for items in others]
        yield from builtins.zip(watched(), *rest)
        if not is_over or any(True for items in rest for _ in items):
            raise ValueError("the arguments of zip() are not of one length")


__all__ = ["pairwise", "zip"]
