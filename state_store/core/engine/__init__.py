"""RocksDB behind one door: the only package that imports `rocksdict`.

`database` opens, ingests, compacts and reads, and writes tables. `table` reads a table without RocksDB,
`rows` those of a database page by page. `rocksdict` is loaded when a database is first opened; `require`
tells at once whether that can be done.
"""

from __future__ import annotations

import importlib.util
import sys

from state_store.errors import InternalError

ROCKSDB_VERSION = "9.8.4"
"""RocksDB inside the supported rocksdict, and inside the rocksdbjni that Spark 4.0 to 4.3 ship."""


def require() -> None:
    """Raise InternalError, which names this interpreter and the remedy, if `rocksdict` is not installed."""
    if importlib.util.find_spec("rocksdict") is None:
        raise InternalError(
            f"the Python at {sys.executable} lacks the package 'rocksdict', which the state store needs on "
            f"every executor: run '{sys.executable} -m pip install rocksdict==0.3.29', ship an environment "
            "that has it (venv-pack and --archives), or set "
            "spark.sql.streaming.stateStore.incremental.agentPython to a Python that has it"
        )
