"""How many different keys batches write: what runs of several batches have, and what memory has to hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from state_store.core.compat import zip

_SINGLE_RANKS = 32
_CLASSES_PER_OCTAVE = 4
_LONGEST_BATCHES = 1e9


@dataclass(frozen=True)
class KeyClass:
    """This many keys that are each written `rate` times a batch on average, independently of each other."""

    keys: float
    rate: float


@dataclass(frozen=True)
class Touches:
    """The keys that batches write: those of `classes`, which are there, and `new` ones that were not.

    `windows` are counts of different keys in this many batches that follow each other, where they were
    measured, by the number of batches, from 1 up.
    """

    classes: tuple[KeyClass, ...]
    new: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def distinct(self, batches: float) -> float:
        """How many different keys this many batches in a row write."""
        measured = _between(self.windows, batches)
        if measured is not None:
            return measured
        if not self.windows:
            return self._modelled(batches)
        longest, count = self.windows[-1]
        more = count + max(0.0, self._modelled(batches) - self._modelled(longest))
        return min(more, count * (batches / longest) ** self._growth())

    def hit_ratio(self, batches: float) -> float:
        """The share of the keys that a batch writes, but new ones, that one of the last this many wrote."""
        weights = [one.keys * -math.expm1(-one.rate) for one in self.classes]
        hits = sum(
            weight * -math.expm1(-one.rate * batches)
            for weight, one in zip(weights, self.classes, strict=True)
        )
        return hits / sum(weights) if sum(weights) else 1.0

    def batches_for(self, hit_ratio: float) -> float:
        """Of how many batches the keys are, so that that share of the next batch's are among them."""
        low, high = 0.0, 1.0
        while self.hit_ratio(high) < hit_ratio and high < _LONGEST_BATCHES:
            low, high = high, high * 2
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.hit_ratio(middle) < hit_ratio else (low, middle)
        return high

    def divided(self, parts: float) -> Touches:
        """The touches of one of this many partitions, which a hash of the keys makes alike."""
        return Touches(
            tuple(replace(one, keys=one.keys / parts) for one in self.classes),
            self.new / parts,
            tuple((batches, count / parts) for batches, count in self.windows),
        )

    def _growth(self) -> float:
        """The power of the number of batches by which the last windows grow: it does not rise any more."""
        if len(self.windows) < 2 or not self.windows[-2][1]:
            return 1.0
        (before, fewer), (after, more) = self.windows[-2:]
        return math.log(more / fewer) / math.log(after / before)

    def _modelled(self, batches: float) -> float:
        return self.new * batches + sum(one.keys * -math.expm1(-one.rate * batches) for one in self.classes)


def evenly(keys: float, updates: float, new: float = 0.0) -> Touches:
    """Every key is written as often as any other: each batch writes this many that are there."""
    return Touches((KeyClass(keys, _rate(updates, keys)),) if updates > 0 else (), new)


def zipf(keys: float, updates: float, exponent: float, new: float = 0.0) -> Touches:
    """The key of rank r is written in proportion to r to the power of -`exponent`; 0: evenly."""
    if exponent == 0 or updates <= 0:
        return evenly(keys, updates, new)
    classes = [KeyClass(count, weight) for count, weight in _ranks(keys, exponent)]
    wanted = min(updates, keys * (1 - 1e-9))
    low, high = 0.0, 1.0
    while Touches(_scaled(classes, high)).distinct(1) < wanted and high < _LONGEST_BATCHES:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = Touches(_scaled(classes, middle)).distinct(1) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return Touches(_scaled(classes, high), new)


def observed(counts: Sequence[int], windows: Sequence[tuple[int, float]], keys: float, new: float) -> Touches:
    """What the deltas of `windows[-1][0]` batches in a row show of a store that has this many keys.

    `counts[c]` keys were written in c of these batches, c from 0 (which is not looked at); `windows` are
    different keys by the number of batches; a batch has `new` keys that were not there before, which are
    taken to be among those that were written least often.
    """
    batches = windows[-1][0]
    left = [float(count) for count in counts]
    strangers = new * batches
    for times in range(1, len(left)):
        taken = min(left[times], strangers)
        left[times] -= taken
        strangers -= taken
    seen = sum(left[1:])
    classes = [KeyClass(count, times / batches) for times, count in enumerate(left) if times > 1 and count]
    once = left[1] if len(left) > 1 else 0.0
    if once > 0:
        seldom = once + max(0.0, keys - seen)
        classes.append(KeyClass(seldom, _singles(once / seldom) / batches))
    return Touches(tuple(classes), new, tuple(windows))


def _singles(share: float) -> float:
    """The mean of a Poisson distribution of which that share is 1, at most 1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(-middle) < share else (low, middle)
    return high


def _rate(updates: float, keys: float) -> float:
    """Writes a batch of each of the keys, so that a batch writes this many different ones."""
    return -math.log1p(-min(updates / max(keys, 1e-9), 1 - 1e-9))


def _scaled(classes: Sequence[KeyClass], factor: float) -> tuple[KeyClass, ...]:
    return tuple(replace(one, rate=one.rate * factor) for one in classes)


def _ranks(keys: float, exponent: float) -> Iterator[tuple[float, float]]:
    """Keys and their mean weight: the first ranks by themselves, the others in ever larger classes."""
    rank = 1.0
    while rank <= keys:
        width = 1.0 if rank <= _SINGLE_RANKS else rank * (2 ** (1 / _CLASSES_PER_OCTAVE) - 1)
        width = min(width, keys - rank + 1)
        yield width, (rank + (width - 1) / 2) ** -exponent
        rank += width


def _between(windows: Sequence[tuple[int, float]], batches: float) -> float | None:
    """Interpolated between the windows next to it; None after the last, or where there are none."""
    before, count = 0.0, 0.0
    for after, more in windows:
        if batches <= after:
            return count + (more - count) * (batches - before) / (after - before)
        before, count = after, more
    return None
