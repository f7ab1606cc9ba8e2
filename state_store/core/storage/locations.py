"""Locations without their secrets: a URI such as `s3://key:secret@bucket/directory` has one.

`without_secret` is for every location that comes from outside. It keeps the secret in the memory of this
process, where `open_storage` finds it again, so that nothing else has one that it could print or store.
"""

from __future__ import annotations

import re

from state_store.errors import MASK, OptionError, masked

_KNOWN: dict[str, str] = {}
"""Beginnings of URIs, up to the `@`, by what is left of them without the secret."""

_SLASHES = re.compile(r"(s3[an]?|gs|abfss?)://[^/:@]*:(?!\d+/)[^/@]*/[^@]*@", re.IGNORECASE)


def without_secret(location: str) -> str:
    """Return a path or URI with `***` in place of a secret, which this process keeps.

    Raises:
        OptionError: If the secret has a slash, so that it ends the name of the bucket.
    """
    start, at, rest = location.partition("@")
    location_text = masked(f"{start}@")[:-1]
    if not at or location_text == start:
        return location
    if _SLASHES.match(location):
        raise OptionError(
            f"the secret in '{location_text}@{rest}' has a slash, which ends the name of a host: write %2F, "
            "or give the secret by the environment",
            option="checkpointLocation",
        )
    if not start.endswith(f":{MASK}"):
        _KNOWN[location_text] = start
    return f"{location_text}@{rest}"


def with_secret(location: str) -> str:
    """Return the URI that `without_secret` was given.

    Raises:
        OptionError: If another process was given it.
    """
    start, at, rest = location.partition("@")
    if not at or not start.endswith(f":{MASK}"):
        return location
    if start not in _KNOWN:
        raise OptionError(
            f"'{location}' has {MASK} in place of a secret that this process does not know: give the secret, "
            "or better a profile or variables of the environment",
            option="checkpointLocation",
        )
    return f"{_KNOWN[start]}@{rest}"
