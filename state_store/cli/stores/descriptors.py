"""File descriptors: how many the process may have, and how many of them each store gets."""

from __future__ import annotations

import resource
from dataclasses import dataclass

_WANTED = 65_536
"""Descriptors that are enough for anything here; the soft limit is not raised above."""

_RESERVED = 48
"""For the interpreter, its libraries and connections."""

_LEAST = 64
"""What one store needs: its database's log, manifest and directories, and the files under transfer."""

_TRANSFERS = 32
"""Of a store's share, what its database does not get."""

MOST_FILES = 4096
"""Tables that a database keeps open at most, however many the process may have."""


@dataclass(frozen=True)
class Share:
    """How many stores work at once, and how many tables the database of each may keep open."""

    stores: int
    open_files: int


def share(stores: int) -> Share:
    """Divides the descriptors among at most `stores` at once; raises the soft limit to the hard one first."""
    available = _raise_limit() - _RESERVED
    at_once = max(1, min(stores, available // _LEAST))
    return Share(at_once, min(MOST_FILES, max(available // at_once - _TRANSFERS, _TRANSFERS)))


def _raise_limit() -> int:
    """The soft limit of open files after it was raised as far as it helps and this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _WANTED if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
