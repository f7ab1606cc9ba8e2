"""Breaks of `state_store/core/files`."""

from __future__ import annotations

from mutants.mutant import Mutant

_FILES = "state_store/core/files"

MUTANTS = [
    Mutant(
        "a compressed table counts as uncompressed",
        f"{_FILES}/sst_end.py",
        "return _PLAIN in tail or is_plain_end(tail)",
        "return True",
        ("tests/core/snapshots/test_restore_by_blocks.py",),
    ),
    Mutant(
        "the length of a file is not compared where its end is right",
        f"{_FILES}/transfer.py",
        "if size_bytes != wanted.size_bytes or sha256(",
        "if sha256(",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "fetched files are not kept",
        f"{_FILES}/transfer.py",
        "elif file.path not in local:",
        "elif False:",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "an upload starts past the deadline",
        "state_store/core/storage/forwarding.py",
        "        self._before(is_deletion=False)\n        self.inner.upload(",
        "        self.inner.upload(",
        ("tests/agent/test_files.py",),
    ),
    Mutant(
        "bases of a dead agent stay",
        f"{_FILES}/workspace.py",
        '*self.root.glob("base-*")',
        '*self.root.glob("no-*")',
        ("tests/agent/test_local_disk.py",),
    ),
    Mutant(
        "bases that the JVM has open go with a dead agent",
        f"{_FILES}/workspace.py",
        "if path not in held:",
        "if True:",
        ("tests/agent/test_local_disk.py",),
    ),
    Mutant(
        "everybody may look into the local directories",
        f"{_FILES}/workspace.py",
        "directory.mkdir(mode=0o700)",
        "directory.mkdir()",
        ("tests/core/files/test_local_files.py",),
    ),
    Mutant(
        "the budget is held by looking at every file each time",
        f"{_FILES}/local_cache.py",
        "if known is None or known[0] != changed_ns:",
        "if True:",
        ("tests/core/files/test_local_files.py",),
    ),
    Mutant(
        "SHA-256 is not compared",
        f"{_FILES}/transfer.py",
        "return None if found == wanted.sha256 else",
        "return None if found else",
        ("tests/core/snapshots/test_restore.py",),
    ),
    Mutant(
        "CRC-32 is not compared",
        f"{_FILES}/transfer.py",
        "return None if crc == wanted.crc32 else",
        "return None if crc >= 0 else",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "the size of a file without a checksum is not compared",
        f"{_FILES}/transfer.py",
        "return sizes or None",
        "return None",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a local copy without a checksum is used",
        f"{_FILES}/transfer.py",
        "return wanted.verifiable and cache.link(",
        "return cache.link(",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a large file is fetched in one stream",
        f"{_FILES}/transfer.py",
        "if file.size_bytes > PART_BYTES]",
        "if file.size_bytes < 0]",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a file with a missing part stays",
        f"{_FILES}/transfer.py",
        "            target.unlink(missing_ok=True)\n",
        "            pass\n",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a short part is accepted",
        f"{_FILES}/parts.py",
        "    if count != length:",
        "    if False:",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "a part that fails once fails the file",
        f"{_FILES}/parts.py",
        "_TRIES = 2\n",
        "_TRIES = 1\n",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "large files of local storage are copied where a deadline is set",
        "state_store/core/storage/forwarding.py",
        "        self.is_local = inner.is_local\n",
        "",
        ("tests/core/files/test_transfer.py",),
    ),
    Mutant(
        "results of parallel work are in any order",
        f"{_FILES}/transfer.py",
        "return [results[number] for number in sorted(results)]",
        "return [results[number] for number in sorted(results, reverse=True)]",
        ("tests/core/files/test_transfer.py",),
    ),
]
