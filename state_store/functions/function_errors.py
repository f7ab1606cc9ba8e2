"""Errors of vectorised functions, as the user sees them."""

from __future__ import annotations


class BadResultError(ValueError):
    """A function returned something that cannot be applied; names the column, the group and the rule.

    Raised before anything of that call is written to the state store.
    """


class GroupTooLargeError(ValueError):
    """The rows of one group exceed the limit up to which groups are handed over whole."""


class VectorizationWarning(UserWarning):
    """A marked function runs group by group, because the session lacks the extension."""
