"""Different keys of batches, against random draws."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from state_store.data.estimation.workload import observed, zipf

KEYS = 2000


def drawn(exponent: float, draws: int, batches: int) -> list[set[int]]:
    chance = random.Random(3)
    weights = list(itertools.accumulate(rank**-exponent for rank in range(1, KEYS + 1)))
    return [set(chance.choices(range(KEYS), cum_weights=weights, k=draws)) for _ in range(batches)]


def distinct(batches: list[set[int]], width: int) -> float:
    starts = range(0, len(batches) - width + 1, width)
    return sum(len(set().union(*batches[first : first + width])) for first in starts) / len(starts)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.5])
def test_distinct_keys_of_several_batches_are_predicted(exponent: float) -> None:
    batches = drawn(exponent, 400, 128)
    found = zipf(KEYS, distinct(batches, 1), exponent)
    for width in (1, 4, 16, 64):
        assert found.distinct(width) == pytest.approx(distinct(batches, width), rel=0.05)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.5])
def test_few_batches_predict_many(exponent: float) -> None:
    batches = drawn(exponent, 100, 256)
    seen = batches[:16]
    times = Counter(Counter(key for batch in seen for key in batch).values())
    windows = [(width, distinct(seen, width)) for width in (1, 2, 4, 8, 16)]
    found = observed(times, windows, KEYS, 0.0)
    for width in (1, 3, 16):
        assert found.distinct(width) == pytest.approx(distinct(batches, width), rel=0.08)
    near = 0.15 if exponent <= 1 else 0.25
    for width in (32, 64, 128):
        assert found.distinct(width) == pytest.approx(distinct(batches, width), rel=near)
    assert found.distinct(1e6) <= KEYS * 1.01


def test_new_keys_are_counted_apart_from_existing_ones() -> None:
    windows = [(1, 10.0), (2, 20.0), (4, 40.0)]
    found = observed({1: 40}, windows, KEYS, 10.0)
    assert [found.distinct(width) for width in (1, 3, 4, 8)] == pytest.approx([10, 30, 40, 80])


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_the_share_of_look_ups_of_recent_keys_is_predicted(exponent: float) -> None:
    batches = drawn(exponent, 200, 200)
    found = zipf(KEYS, distinct(batches, 1), exponent)
    for share in (0.3, 0.8):
        width = round(found.batches_for(share))
        ratios = [
            len(batches[at] & set().union(*batches[at - width : at])) / len(batches[at])
            for at in range(width, len(batches), 5)
        ]
        assert sum(ratios) / len(ratios) == pytest.approx(share, abs=0.05)


def test_partitions_share_the_keys() -> None:
    assert zipf(KEYS, 100, 0, 10).divided(4).distinct(1) == pytest.approx(110 / 4)
