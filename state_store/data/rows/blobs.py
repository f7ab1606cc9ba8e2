"""Stretches of bytes in words of 8, to which the words of Spark's rows refer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from state_store.core.compat import zip
from state_store.data.rows.packed import WORD


@dataclass(frozen=True)
class Blobs:
    """Stretches of bytes, each of which begins at a multiple of 8 in `words` and is padded with zeros:
    `starts` in words, `lengths` in bytes.
    """

    words: Any
    starts: Any
    lengths: Any

    @property
    def sizes(self) -> Any:
        """Words of each."""
        return (self.lengths + WORD - 1) // WORD


@dataclass(frozen=True)
class RoomyBlobs(Blobs):
    """Stretches of two words each, whatever their lengths."""

    @property
    def sizes(self) -> Any:
        import numpy

        return numpy.full(len(self.lengths), 2)


def texts_of(blobs: Blobs, *, before: bytes = b"") -> list[bytes]:
    """Each stretch, with `before` in front."""
    data = blobs.words.tobytes()
    starts = (blobs.starts * WORD).tolist()
    ends = (blobs.starts * WORD + blobs.lengths).tolist()
    return [before + data[start:end] for start, end in zip(starts, ends, strict=True)]


def copy(words: Any, starts: Any, blobs: Blobs) -> None:
    """Puts each stretch into `words` where `starts` says."""
    import numpy

    sizes = blobs.sizes
    within = numpy.arange(int(sizes.sum())) - numpy.repeat(numpy.cumsum(sizes) - sizes, sizes)
    words[numpy.repeat(starts, sizes) + within] = blobs.words[numpy.repeat(blobs.starts, sizes) + within]


def padded(data: Any, firsts: Any, lengths: Any) -> Blobs:
    """Stretches of `data`, wherever they are, as words."""
    import numpy

    sizes = (lengths + WORD - 1) // WORD
    starts = numpy.cumsum(sizes) - sizes
    copied = numpy.zeros(int(sizes.sum()) * WORD, numpy.uint8)
    within = numpy.arange(int(lengths.sum())) - numpy.repeat(numpy.cumsum(lengths) - lengths, lengths)
    copied[numpy.repeat(starts * WORD, lengths) + within] = data[numpy.repeat(firsts, lengths) + within]
    return Blobs(copied.view("<i8"), starts, lengths)
