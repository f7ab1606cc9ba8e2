"""An agent of many stores: the memory and descriptors of each do not grow with their number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.harness import AgentProcess, Job

FEW, MANY = 20, 140
MAX_BYTES_EACH = 32 << 10


def anonymous_bytes(process: int) -> int:
    found = re.search(r"Pss_Anon:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) << 10


def handles(process: int) -> tuple[int, int]:
    """Threads and descriptors."""
    threads, descriptors = (list(Path(f"/proc/{process}/{kind}").iterdir()) for kind in ("task", "fd"))
    return len(threads), len(descriptors)


@pytest.mark.tier("more")
def test_a_store_takes_as_much_beside_many_others_as_beside_few(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        client, process = agent.connect(), agent.process.pid
        jobs: list[Job] = []

        def open_up_to(count: int) -> tuple[int, tuple[int, int]]:
            new = [
                Job(client, tmp_path / f"state-{len(jobs) + number}") for number in range(count - len(jobs))
            ]
            for job in new:
                job.commit({b"\0\0%05d" % key: b"value" for key in range(20)})
            jobs.extend(new)
            for job in jobs:
                job.cleanup()
            return anonymous_bytes(process), handles(process)

        few_bytes, few = open_up_to(FEW)
        many_bytes, many = open_up_to(MANY)
        assert (many_bytes - few_bytes) / (MANY - FEW) < MAX_BYTES_EACH
        assert many == few
