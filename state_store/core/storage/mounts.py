"""Mounted file systems that may show old attributes, which breaks the protocol of docs/deletion.md."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_LOG = logging.getLogger(__name__)
_MOUNTS = Path("/proc/self/mountinfo")
_LOGGED: set[str] = set()


def warn_of_cached_attributes(directory: Path, mounts: Path = _MOUNTS) -> None:
    """Log, once for a mount, that `directory` is on an NFS that caches attributes."""
    try:
        point = cached_mount(directory, mounts.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return
    if point is not None and point not in _LOGGED:
        _LOGGED.add(point)
        _LOG.warning(
            "'%s' is an NFS that caches attributes: executors may not see each other's files at once, and a "
            "clean-up may delete what is still needed. Mount it with 'noac', or with "
            "'lookupcache=none,actimeo=0'",
            point,
        )


def cached_mount(directory: Path, mountinfo: str) -> str | None:
    """Return the mount point of `directory` if it is an NFS with attribute caching, else None.

    Args:
        directory: any directory.
        mountinfo: the text of `/proc/self/mountinfo`.
    """
    real = os.path.realpath(directory)
    mount: tuple[str, str, set[str]] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode().decode("unicode_escape")
        is_below = real == point or real.startswith(point.rstrip("/") + "/")
        if is_below and (mount is None or len(point) >= len(mount[0])):
            mount = (point, rest[0], {*fields[5].split(","), *rest[2].split(",")})
    if mount is None or not mount[1].startswith("nfs"):
        return None
    return None if _shows_all(mount[2]) else mount[0]


def _shows_all(options: set[str]) -> bool:
    attributes = {"acregmax=0", "acdirmax=0"} <= options or "actimeo=0" in options
    return "noac" in options or (attributes and "lookupcache=none" in options)
