"""The distribution of the keys that batches write, from which the sizes of runs and of memory follow."""

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
    """A number of keys that are written `rate` times a batch on average, independently of each other."""

    keys: float
    rate: float


@dataclass(frozen=True)
class Touches:
    """The keys that batches write.

    Attributes:
        classes: existing keys, by how often they are written.
        new: keys of a batch that did not exist before.
        windows: measured counts of different keys in a number of consecutive batches, by that number, from 1
            up.
    """

    classes: tuple[KeyClass, ...]
    new: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()

    def distinct(self, batches: float) -> float:
        """Return the number of different keys that this many consecutive batches write."""
        measured = _between(self.windows, batches)
        if measured is not None:
            return measured
        if not self.windows:
            return self._modelled(batches)
        longest, count = self.windows[-1]
        bound = count + max(0.0, self._modelled(batches) - self._modelled(longest))
        return min(bound, count * (batches / longest) ** self._growth())

    def hit_ratio(self, batches: float) -> float:
        """Return the share of a batch's existing keys that the last `batches` batches wrote."""
        weights = [key_class.keys * -math.expm1(-key_class.rate) for key_class in self.classes]
        hits = sum(
            weight * -math.expm1(-key_class.rate * batches)
            for weight, key_class in zip(weights, self.classes, strict=True)
        )
        return hits / sum(weights) if sum(weights) else 1.0

    def batches_for(self, hit_ratio: float) -> float:
        """Return the number of last batches that wrote this share of the next batch's existing keys."""
        low, high = 0.0, 1.0
        while self.hit_ratio(high) < hit_ratio and high < _LONGEST_BATCHES:
            low, high = high, high * 2
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.hit_ratio(middle) < hit_ratio else (low, middle)
        return high

    def divided(self, parts: float) -> Touches:
        """Return the touches of one of this many partitions, which a hash of the keys makes alike."""
        return Touches(
            tuple(replace(key_class, keys=key_class.keys / parts) for key_class in self.classes),
            self.new / parts,
            tuple((batches, count / parts) for batches, count in self.windows),
        )

    def _growth(self) -> float:
        """Return the exponent by which the last windows grow; it does not rise any more."""
        if len(self.windows) < 2 or not self.windows[-2][1]:
            return 1.0
        (before, count_before), (after, count_after) = self.windows[-2:]
        return math.log(count_after / count_before) / math.log(after / before)

    def _modelled(self, batches: float) -> float:
        return self.new * batches + sum(
            key_class.keys * -math.expm1(-key_class.rate * batches) for key_class in self.classes
        )


def evenly(keys: float, updates: float, new: float = 0.0) -> Touches:
    """Return the touches of batches that write all keys equally often, `updates` existing keys each."""
    return Touches((KeyClass(keys, _rate(updates, keys)),) if updates > 0 else (), new)


def zipf(keys: float, updates: float, exponent: float, new: float = 0.0) -> Touches:
    """Return the touches for weights of rank r in proportion to r to the power of -`exponent`; 0: evenly."""
    if exponent == 0 or updates <= 0:
        return evenly(keys, updates, new)
    classes = [KeyClass(count, weight) for count, weight in _ranks(keys, exponent)]
    target = min(updates, keys * (1 - 1e-9))
    low, high = 0.0, 1.0
    while Touches(_scaled(classes, high)).distinct(1) < target and high < _LONGEST_BATCHES:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = Touches(_scaled(classes, middle)).distinct(1) >= target
        low, high = (low, middle) if enough else (middle, high)
    return Touches(_scaled(classes, high), new)


def observed(counts: Sequence[int], windows: Sequence[tuple[int, float]], keys: float, new: float) -> Touches:
    """Return the touches that consecutive deltas show.

    The batch's new keys are taken to be among those that were written least often.

    Args:
        counts: `counts[c]` keys were written in c of the batches; `counts[0]` is ignored.
        windows: different keys by the number of batches; the last window has all batches.
        keys: the number of keys in the store.
        new: new keys of a batch.
    """
    batches = windows[-1][0]
    remaining = [float(count) for count in counts]
    strangers = new * batches
    for times in range(1, len(remaining)):
        deducted = min(remaining[times], strangers)
        remaining[times] -= deducted
        strangers -= deducted
    total = sum(remaining[1:])
    classes = [
        KeyClass(count, times / batches) for times, count in enumerate(remaining) if times > 1 and count
    ]
    once = remaining[1] if len(remaining) > 1 else 0.0
    if once > 0:
        seldom = once + max(0.0, keys - total)
        classes.append(KeyClass(seldom, _singles(once / seldom) / batches))
    return Touches(tuple(classes), new, tuple(windows))


def _singles(share: float) -> float:
    """Return the mean, at most 1, of a Poisson distribution that has the value 1 with probability `share`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(-middle) < share else (low, middle)
    return high


def _rate(updates: float, keys: float) -> float:
    """Return the writes of each key in a batch for which a batch writes `updates` different ones."""
    return -math.log1p(-min(updates / max(keys, 1e-9), 1 - 1e-9))


def _scaled(classes: Sequence[KeyClass], factor: float) -> tuple[KeyClass, ...]:
    return tuple(replace(key_class, rate=key_class.rate * factor) for key_class in classes)


def _ranks(keys: float, exponent: float) -> Iterator[tuple[float, float]]:
    """Yield keys and their mean weight: single ranks first, then ever larger classes."""
    rank = 1.0
    while rank <= keys:
        width = 1.0 if rank <= _SINGLE_RANKS else rank * (2 ** (1 / _CLASSES_PER_OCTAVE) - 1)
        width = min(width, keys - rank + 1)
        yield width, (rank + (width - 1) / 2) ** -exponent
        rank += width


def _between(windows: Sequence[tuple[int, float]], batches: float) -> float | None:
    """Return the count interpolated between windows; None after the last."""
    before, count = 0.0, 0.0
    for after, next_count in windows:
        if batches <= after:
            return count + (next_count - count) * (batches - before) / (after - before)
        before, count = after, next_count
    return None
