"""Small file systems in memory, for tests of what happens when a disk is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(path: Path, size: str) -> Iterator[Path]:
    """Make a directory, and yield it as a file system of this size, as `mount` takes it: `8m`.

    The test is skipped if this user may not mount one.
    """
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
