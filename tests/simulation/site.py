"""Site of a simulated cluster: everything that its executors share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.partition import Partition
from simulation.simulated_storage import Weather
from simulation.turns import Scheduler


@dataclass
class Site:
    """See the module. `count` counts events by name; `retain` may change when the query starts again.

    Somebody removes local files that the JVM has not opened yet if it `is_cleaned`.
    """

    scheduler: Scheduler
    partitions: Sequence[Partition]
    weather: Weather
    ids: bool
    retain: int
    is_honest: bool
    options: dict[str, str]
    directory: Path
    count: Callable[[str], None]
    is_cleaned: bool = False
