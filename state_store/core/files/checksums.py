"""Checksums of local files, which are read in pieces. Safe for any thread."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    _each_chunk(path, digest.update)
    return digest.hexdigest()


def sha256_of_end(path: Path, size_bytes: int) -> str:
    """Return the SHA-256 of the last `size_bytes` bytes of a file, or of all if it is shorter."""
    return hashlib.sha256(read_end(path, size_bytes)[1]).hexdigest()


def read_end(path: Path, size_bytes: int) -> tuple[int, bytes]:
    """Return the size of a file, and its last `size_bytes` bytes, or all if it is shorter."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        return size, os.pread(descriptor, size_bytes, max(0, size - size_bytes))
    finally:
        os.close(descriptor)


def crc32_of(path: Path) -> int:
    """Return the CRC-32 (IEEE) of a file."""
    crc = 0

    def add(chunk: memoryview) -> None:
        nonlocal crc
        crc = zlib.crc32(chunk, crc)

    _each_chunk(path, add)
    return crc


def _each_chunk(path: Path, use: Callable[[memoryview], object]) -> None:
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(max(1, min(_CHUNK_BYTES, os.fstat(file.fileno()).st_size)))
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            use(view[:count])
