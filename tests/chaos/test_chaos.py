"""12 faults on a real cluster; `make chaos N=500` does the same for an hour, `STORAGE=hdfs` elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import scala_jars

from chaos import comparison, life_places
from chaos.cluster import Cluster
from chaos.life import Life
from chaos.plan import STORAGES, plans

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Of all kinds but those of a machine and of a driver that wakes up beside its successor.
SEED, FAULTS = 3260, 12


def test_queries_are_right_after_a_dozen_faults(tmp_path):
    _check(tmp_path, "local", SEED, FAULTS, ["join", "pandas", "vectorized", "windows"])


@pytest.mark.tier("more")
def test_queries_are_right_whose_state_is_larger_than_the_cache_of_pages(tmp_path):
    _check(tmp_path, "remote", 12, FAULTS, ["pandas", "totals"])


@pytest.mark.tier("long")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("storage", "seed"), [("hdfs", 1), ("s3", 1)])
def test_queries_are_right_on_a_service_that_is_hit_as_well(tmp_path, storage, seed):
    faults = _check(tmp_path, storage, seed, FAULTS, ["totals", "vectorized"])
    assert faults >= STORAGES[storage].keys() - STORAGES["local"].keys()


def _check(room: Path, storage: str, seed: int, faults: int, questions: list[str]) -> set[str]:
    """Plays the faults, and judges; their kinds."""
    (plan,) = plans(seed, faults, kinds=STORAGES[storage])
    with life_places.STORAGES[storage](room / "life") as place:
        with Cluster(room / "cluster") as cluster:
            life = Life(cluster, plan, place, questions, room / "life", [scala_jars.probes_jar()])
            life.play()
        comparison.check(life)
    assert life.faults.total() == faults
    assert life.cached or not (plan.caches_pages and storage != "local"), "no executor had a base of pages"
    assert cluster.processes() == []
    return set(life.faults)
