"""An incremental RocksDB state store for Spark Structured Streaming.

Importing this package is cheap: the public names below are loaded when first used. Safe for any thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from state_store.dataset.chains import chain as chain
    from state_store.dataset.checkpoints import checkpoints as checkpoints
    from state_store.dataset.opening import open as open
    from state_store.dataset.rewriting.bootstrapping import bootstrap as bootstrap
    from state_store.dataset.state import State as State
    from state_store.embedded.store import EmbeddedStore as EmbeddedStore
    from state_store.errors import StateStoreError as StateStoreError
    from state_store.estimation.estimate import Estimate as Estimate
    from state_store.estimation.estimate import estimate as estimate
    from state_store.estimation.measured import Measured as Measured
    from state_store.estimation.measured import measure as measure
    from state_store.estimation.workload import Workload as Workload
    from state_store.jvm.jar import jar_path as jar_path
    from state_store.settings.options import Options as Options
    from state_store.spark import check_checkpoint as check_checkpoint
    from state_store.spark import spark_conf as spark_conf
    from state_store.vectorization import BadResultError as BadResultError
    from state_store.vectorization import Context as Context
    from state_store.vectorization import Result as Result
    from state_store.vectorization import VectorizationWarning as VectorizationWarning
    from state_store.vectorization import accelerate as accelerate
    from state_store.vectorization import per_group as per_group
    from state_store.vectorization import vectorized as vectorized

__version__ = "0.2.0.dev0"

_HOMES = {
    "State": "state_store.dataset.state",
    "EmbeddedStore": "state_store.embedded.store",
    "Estimate": "state_store.estimation.estimate",
    "Measured": "state_store.estimation.measured",
    "Options": "state_store.settings.options",
    "StateStoreError": "state_store.errors",
    "Workload": "state_store.estimation.workload",
    "bootstrap": "state_store.dataset.rewriting.bootstrapping",
    "chain": "state_store.dataset.chains",
    "checkpoints": "state_store.dataset.checkpoints",
    "check_checkpoint": "state_store.spark",
    "estimate": "state_store.estimation.estimate",
    "jar_path": "state_store.jvm.jar",
    "measure": "state_store.estimation.measured",
    "open": "state_store.dataset.opening",
    "spark_conf": "state_store.spark",
    "BadResultError": "state_store.vectorization",
    "Context": "state_store.vectorization",
    "Result": "state_store.vectorization",
    "VectorizationWarning": "state_store.vectorization",
    "accelerate": "state_store.vectorization",
    "per_group": "state_store.vectorization",
    "vectorized": "state_store.vectorization",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'state_store' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
