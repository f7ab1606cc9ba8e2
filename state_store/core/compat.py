"""What Python has from 3.10 on, for 3.9, which Spark 4.0 runs on. Every room may use it. Safe for any thread.

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
        """As `itertools.pairwise`."""
        ones, others = itertools.tee(items)
        next(others, None)
        return builtins.zip(ones, others)

    def zip(*iterables, strict=False):
        """As the function of that name."""
        return _equally_many(*iterables) if strict and iterables else builtins.zip(*iterables)

    def _equally_many(first, *others):
        """Only what comes from the first passes through Python: the others are asked when it has ended."""
        whole = False

        def watched():
            nonlocal whole
            yield from first
            whole = True

        rest = [iter(one) for one in others]
        yield from builtins.zip(watched(), *rest)
        if not whole or any(True for one in rest for _ in one):
            raise ValueError("the arguments of zip() are not of one length")


__all__ = ["pairwise", "zip"]
