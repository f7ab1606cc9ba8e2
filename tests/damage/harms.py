"""Harms to a file: flipped bytes, a missing tail, another file in its place, no file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from damage.regions import regions_of


@dataclass(frozen=True)
class Harm:
    """A harm to a file, counted as `kind`; `text` is for people.

    `apply` returns the bytes that are left (None: no file).
    """

    kind: str
    text: str
    apply: Callable[[bytes], bytes | None]

    def do(self, path: Path) -> None:
        """Harm a file as a disk would: the same name, other bytes; a hard link elsewhere stays whole."""
        left = self.apply(path.read_bytes())
        path.unlink()
        if left is not None:
            path.write_bytes(left)


def flips(path: Path, chance: random.Random, *, in_each: int) -> Iterator[Harm]:
    """`in_each` bytes of every part of the file, each with another bit."""
    for name, part in regions_of(path).items():
        for position in chance.sample(part, min(in_each, len(part))):
            yield flip(position, 1 << chance.randrange(8), name)


def flip(position: int, mask: int, part: str) -> Harm:
    def apply(data: bytes) -> bytes:
        return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]

    return Harm("flipped", f"byte {position} ({part}) xor {mask:#x}", apply)


def truncations(path: Path, chance: random.Random, *, count: int) -> Iterator[Harm]:
    """Cut by one byte, to one byte, and at `count` other lengths, those where a part begins among them."""
    size = path.stat().st_size
    edges = [part.start for part in regions_of(path).values()]
    lengths = {1, size - 1, *chance.sample(edges, min(count // 2, len(edges)))}
    lengths |= {chance.randrange(1, size) for _ in range(count - count // 2)}
    for length in sorted(length for length in lengths if 0 < length < size):
        yield Harm("truncated", f"cut to {length} of {size} bytes", lambda data, length=length: data[:length])


def replacements(others: Sequence[Path]) -> Iterator[Harm]:
    """Nothing in it, no file at all, zeros, and each of the other files in its place."""
    yield Harm("emptied", "emptied", lambda data: b"")
    yield Harm("deleted", "deleted", lambda data: None)
    yield Harm("zeroed", "a page of zeros", lambda data: bytes(min(4096, len(data))) + data[4096:])
    for other in others:
        yield Harm("swapped", f"replaced by {other.name}", lambda data, other=other: other.read_bytes())
