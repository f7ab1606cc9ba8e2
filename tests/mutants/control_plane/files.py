"""Breaks of `state_store/core/files`: a fetched file has the bytes that its checksum says, and a directory
has one owner.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_FILES = "state_store/core/files"

MUTANTS = [
    Mutant(
        "an upload starts past the deadline",
        "state_store/core/storage/contract.py",
        "        self._before(is_deletion=False)\n        self.inner.upload(",
        "        self.inner.upload(",
        ("tests/agent/wire/test_files.py",),
    ),
    Mutant(
        "bases that the JVM has open go with a dead agent",
        f"{_FILES}/workspace.py",
        "if path not in held:",
        "if True:",
        ("tests/agent/process/test_local_disk.py",),
    ),
    Mutant(
        "everybody may look into the local directories",
        f"{_FILES}/workspace.py",
        "directory.mkdir(mode=0o700)",
        "directory.mkdir()",
        ("tests/core/files/test_local_files.py",),
    ),
    Mutant(
        "SHA-256 is not compared",
        f"{_FILES}/transfer.py",
        "    is_other = sha256 != wanted_file.sha256\n",
        "    is_other = False\n",
        ("tests/core/snapshots/test_restore.py",),
    ),
    Mutant(
        "a local copy without a checksum is used",
        f"{_FILES}/transfer.py",
        "return wanted_file.verifiable and cache.link(",
        "return cache.link(",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a short part is accepted",
        f"{_FILES}/transfer.py",
        "    if count != length:",
        "    if False:",
        ("tests/core/files/test_transfer.py",),
    ),
]
