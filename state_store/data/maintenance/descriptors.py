"""File descriptors: how many the process may have, and how many of them each store gets."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from state_store.data.query.arguments import check_number

MAX_STORES = 1024
"""Stores that are worked on at a time at most."""

_ENOUGH = 65_536
"""Descriptors that suffice for any work here; the soft limit is not raised above this number."""

_RESERVED = 48
"""Descriptors for the interpreter, its libraries and connections."""

_PER_STORE = 64
"""Descriptors that one store needs at least: its database's log, manifest and directories, and transfers."""

_TRANSFERS = 32
"""Descriptors of a store's share that its database does not get."""

MAX_OPEN_FILES = 4096
"""Tables that a database keeps open at most, however many descriptors the process may have."""


@dataclass(frozen=True)
class Share:
    """Stores that are worked on at a time, and tables that the database of each may keep open."""

    stores: int
    open_files: int


def share(stores: int) -> Share:
    """Divide the descriptors of the process among stores.

    The soft limit of the process is raised to the hard limit first.

    Args:
        stores: stores that are to be worked on at a time; fewer are if descriptors are short.

    Raises:
        OptionError: `stores` is no number from 1 to 1024.
    """
    check_number("stores", stores, minimum=1, maximum=MAX_STORES)
    available = _raise_limit() - _RESERVED
    at_once = max(1, min(stores, available // _PER_STORE))
    return Share(at_once, min(MAX_OPEN_FILES, max(available // at_once - _TRANSFERS, _TRANSFERS)))


def _raise_limit() -> int:
    """Raise the soft limit of open files as far as it helps and as this process may; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
