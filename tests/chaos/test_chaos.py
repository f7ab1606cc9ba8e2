"""Ten faults on a real cluster; `make chaos N=500` does the same for an hour."""

from __future__ import annotations

import pytest
import scala_jars

from chaos import verdict
from chaos.cluster import Cluster
from chaos.life import Life
from chaos.plan import plans

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

SEED = 0
FAULTS = 10


def test_queries_are_right_after_ten_faults(tmp_path):
    (plan,) = plans(SEED, FAULTS)
    with Cluster(tmp_path / "cluster") as cluster:
        questions = ["join", "pandas", "vectorized", "windows"]
        life = Life(cluster, plan, questions, tmp_path / "life", [scala_jars.probes_jar()])
        life.play()
        verdict.check(life)
        assert life.faults.total() == FAULTS
    assert cluster.processes() == []
