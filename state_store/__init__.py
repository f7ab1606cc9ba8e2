"""An incremental RocksDB state store for Spark Structured Streaming.

Importing this package is cheap: the public names below are loaded when first used. Safe for any thread.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036 (executors may run another Python than that which installed it)
    raise ImportError(
        f"incremental-state-store needs Python 3.10 or later, and {sys.executable} is "
        f"{sys.version.split()[0]}: give the driver and the executors a later one (spark.pyspark.python)"
    )

if TYPE_CHECKING:
    from state_store.core.settings.options import Options as Options
    from state_store.core.settings.options import options as options
    from state_store.data.dataset.checkpoints import chain as chain
    from state_store.data.dataset.checkpoints import checkpoints as checkpoints
    from state_store.data.dataset.checkpoints import files as files
    from state_store.data.dataset.opening import diff as diff
    from state_store.data.dataset.opening import export as export
    from state_store.data.dataset.opening import get as get
    from state_store.data.dataset.opening import history as history
    from state_store.data.dataset.opening import open as open
    from state_store.data.dataset.opening import show as show
    from state_store.data.dataset.opening import sql as sql
    from state_store.data.dataset.opening import stats as stats
    from state_store.data.dataset.rewriting.copying import copy as copy
    from state_store.data.dataset.rewriting.copying import repartition as repartition
    from state_store.data.dataset.rewriting.importing import bootstrap as bootstrap
    from state_store.data.dataset.rewriting.importing import import_state as import_state
    from state_store.data.dataset.state import State as State
    from state_store.data.embedded import EmbeddedStore as EmbeddedStore
    from state_store.data.estimation.estimate import Estimate as Estimate
    from state_store.data.estimation.estimate import Prices as Prices
    from state_store.data.estimation.estimate import estimate as estimate
    from state_store.data.estimation.workload import Measured as Measured
    from state_store.data.estimation.workload import Workload as Workload
    from state_store.data.estimation.workload import measure as measure
    from state_store.data.maintenance.full_checkpoints import FullCheckpoints as FullCheckpoints
    from state_store.data.maintenance.full_checkpoints import full_checkpoint as full_checkpoint
    from state_store.data.maintenance.repair import Repairs as Repairs
    from state_store.data.maintenance.repair import repair as repair
    from state_store.data.maintenance.verification import Verification as Verification
    from state_store.data.maintenance.verification import verify as verify
    from state_store.data.migration import migrate as migrate
    from state_store.data.query.progress import ProgressUpdate as ProgressUpdate
    from state_store.errors import StateStoreError as StateStoreError
    from state_store.functions import BadResultError as BadResultError
    from state_store.functions import Context as Context
    from state_store.functions import Result as Result
    from state_store.functions import VectorizationWarning as VectorizationWarning
    from state_store.functions import accelerate as accelerate
    from state_store.functions import per_group as per_group
    from state_store.functions import vectorized as vectorized
    from state_store.observe.look import doctor as doctor
    from state_store.observe.serve import serve as serve
    from state_store.session.configuration import check_checkpoint as check_checkpoint
    from state_store.session.configuration import configure as configure
    from state_store.session.configuration import spark_conf as spark_conf
    from state_store.session.jar import build_jar as build_jar
    from state_store.session.jar import jar_path as jar_path

__version__ = "0.2.0"

_HOMES = {
    "State": "state_store.data.dataset.state",
    "EmbeddedStore": "state_store.data.embedded",
    "Estimate": "state_store.data.estimation.estimate",
    "FullCheckpoints": "state_store.data.maintenance.full_checkpoints",
    "Measured": "state_store.data.estimation.workload",
    "Options": "state_store.core.settings.options",
    "Prices": "state_store.data.estimation.estimate",
    "ProgressUpdate": "state_store.data.query.progress",
    "Repairs": "state_store.data.maintenance.repair",
    "StateStoreError": "state_store.errors",
    "Verification": "state_store.data.maintenance.verification",
    "Workload": "state_store.data.estimation.workload",
    "build_jar": "state_store.session.jar",
    "bootstrap": "state_store.data.dataset.rewriting.importing",
    "chain": "state_store.data.dataset.checkpoints",
    "checkpoints": "state_store.data.dataset.checkpoints",
    "check_checkpoint": "state_store.session.configuration",
    "doctor": "state_store.observe.look",
    "estimate": "state_store.data.estimation.estimate",
    "full_checkpoint": "state_store.data.maintenance.full_checkpoints",
    "jar_path": "state_store.session.jar",
    "measure": "state_store.data.estimation.workload",
    "options": "state_store.core.settings.options",
    "serve": "state_store.observe.serve",
    "show": "state_store.data.dataset.opening",
    "open": "state_store.data.dataset.opening",
    "copy": "state_store.data.dataset.rewriting.copying",
    "diff": "state_store.data.dataset.opening",
    "export": "state_store.data.dataset.opening",
    "get": "state_store.data.dataset.opening",
    "history": "state_store.data.dataset.opening",
    "stats": "state_store.data.dataset.opening",
    "files": "state_store.data.dataset.checkpoints",
    "import_state": "state_store.data.dataset.rewriting.importing",
    "migrate": "state_store.data.migration",
    "repartition": "state_store.data.dataset.rewriting.copying",
    "repair": "state_store.data.maintenance.repair",
    "sql": "state_store.data.dataset.opening",
    "configure": "state_store.session.configuration",
    "spark_conf": "state_store.session.configuration",
    "verify": "state_store.data.maintenance.verification",
    "BadResultError": "state_store.functions",
    "Context": "state_store.functions",
    "Result": "state_store.functions",
    "VectorizationWarning": "state_store.functions",
    "accelerate": "state_store.functions",
    "per_group": "state_store.functions",
    "vectorized": "state_store.functions",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'state_store' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
