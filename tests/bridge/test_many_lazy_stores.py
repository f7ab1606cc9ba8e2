"""Many lazily restored stores of an executor: threads, descriptors and mappings of both processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from driver import Jvm

from state_store.core.checkpoint.names import VersionId
from state_store.core.storage import open_storage
from state_store.data.embedded import EmbeddedStore

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

FEW, MANY = 8, 40
LAZY = {"restoreMode": "lazy", "localRecovery": "false"}
ROWS = {f"key{n:05d}": f"{n:06d}" * 40 for n in range(3000)}


class Handles:
    """Threads, descriptors and mappings of a process."""

    def __init__(self, process: int) -> None:
        directory = Path(f"/proc/{process}")
        self.threads = len(list((directory / "task").iterdir()))
        self.descriptors = len(list((directory / "fd").iterdir()))
        self.mappings = len((directory / "maps").read_text().splitlines())


@pytest.mark.parametrize(
    ("options", "mappings_each"), [({"hydrationRateLimit": "20k"}, 1), ({"localDiskLimit": "1"}, 2)]
)
def test_stores_share_threads_and_the_agent_holds_no_file_of_them(
    own_jvm: Jvm, tmp_path: Path, options: dict[str, str], mappings_each: int
) -> None:
    """The JVM has a descriptor and one or two mappings for each open file, up to a bound of its own."""
    first = tmp_path / "state" / "0"
    own_jvm.provider("writer", f"probe://{first}", **LAZY)
    version, id = own_jvm.batch("writer", 0, None, **ROWS)
    own_jvm("close", provider="writer")
    (store_directory,) = (path.parent for path in first.rglob("delta"))
    with EmbeddedStore(open_storage(str(store_directory)), tmp_path / "full") as store:
        store.load(VersionId(version, id))
        store.checkpoint(full=True)

    def open_up_to(begin: int, end: int) -> tuple[Handles, Handles]:
        for number in range(begin, end):
            location = tmp_path / "state" / str(number)
            if number:
                shutil.copytree(first, location)
            own_jvm.provider(f"p{number}", f"probe://{location}", **LAZY, **options)
            own_jvm("begin", provider=f"p{number}", store=f"s{number}", version=version, id=id)
            assert own_jvm("get", store=f"s{number}", key="key00007") == ROWS["key00007"]
        agent = own_jvm.agent()
        assert agent is not None
        return Handles(own_jvm.process.pid), Handles(agent)

    few_jvm, few_agent = open_up_to(0, FEW)
    many_jvm, many_agent = open_up_to(FEW, MANY)
    stores = MANY - FEW
    assert many_agent.threads - few_agent.threads < stores // 2
    assert many_jvm.threads - few_jvm.threads < stores // 2
    assert many_agent.descriptors - few_agent.descriptors < stores // 2
    assert many_agent.mappings - few_agent.mappings < stores // 2
    assert many_jvm.descriptors - few_jvm.descriptors < stores * 3 // 2
    assert many_jvm.mappings - few_jvm.mappings < stores * (2 * mappings_each + 1) // 2
