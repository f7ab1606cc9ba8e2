"""All options of the state store, each declared once.

An option is a field made with `option`: its name below `PREFIX`, type, default, meaning and trade-off. The
options of a group stand together: here, in `local_options` or in `checkpoint_options`. The reference page
(docs/options.md), the template (conf/spark-defaults.conf) and `state-store options` are generated from them;
`parsing` reads the texts that Spark hands over. To add an option, add a field to its group; run `make docs`.

Values: sizes are `int` bytes, durations are `int` milliseconds. Texts follow Spark: `512m`, `1g`,
`500ms`, `30s`, `10min`, `1h`, `7d`. Everything here is immutable and safe for any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from state_store.core.settings.checkpoint_options import CheckpointOptions
from state_store.core.settings.local_options import LocalOptions
from state_store.core.settings.option import EXECUTOR, Option, option
from state_store.core.settings.option_types import BOOL, BYTES, DURATION, TEXT, at_least, one_of


@dataclass(frozen=True)
class Options(CheckpointOptions, LocalOptions):
    """The parsed options of one query, an attribute each: durations in milliseconds, sizes in bytes."""

    vectorized_enabled: bool = option(
        "vectorized.enabled",
        BOOL,
        "true",
        group="Vectorised functions",
        doc="""Run functions marked with state_store.vectorized, state_store.per_group or
        state_store.accelerate on the vectorised operator, which gets many groups at a time. Needs the
        session extension.""",
        trade_off="If off, they run group by group on Spark's own operator, with the same results.",
    )
    vectorized_accelerate: bool = option(
        "vectorized.accelerate",
        BOOL,
        "false",
        group="Vectorised functions",
        doc="""Treat every function that is passed to applyInPandasWithState as if marked
        state_store.accelerate.""",
        trade_off="Faster without a change of the code; off by default, so that nothing changes unasked.",
    )
    vectorized_processors: bool = option(
        "vectorized.processors",
        BOOL,
        "true",
        group="Vectorised functions",
        doc="""Run processors of transformWithState in Python, unchanged, in a worker whose calls on state
        travel for many groups in one message, on this store and on Spark's RocksDB store (Spark 4.1 and
        later). Needs the session extension.""",
        trade_off="""If off, they run in Spark's own worker, with the same results and a message for each
        call.""",
    )
    vectorized_max_batch_bytes: int = option(
        "vectorized.maxBatchBytes",
        at_least(BYTES, 1),
        "64m",
        group="Vectorised functions",
        doc="Bytes of rows and states after which no further group joins a call of a marked function.",
        trade_off="""More groups in a call cost less each; a call is held in memory whole, in the JVM and in
        Python.""",
    )
    vectorized_max_group_bytes: int = option(
        "vectorized.maxGroupBytes",
        at_least(BYTES, 1),
        "256m",
        group="Vectorised functions",
        doc="""Bytes of rows up to which a group is handed over whole. A function marked with split_groups
        gets a larger group in pieces; otherwise such a group fails the query.""",
        trade_off="Higher lets larger groups through and needs that much memory in the worker.",
    )
    agent_python: str = option(
        "agentPython",
        TEXT,
        "",
        group="Agent",
        doc="""Python interpreter on the executors that runs the agent; it needs the package rocksdict. Empty:
        the one that PySpark uses there (spark.pyspark.python, PYSPARK_PYTHON, or python3).""",
        trade_off="Set it if the Python of the workers lacks rocksdict and cannot be given it.",
    )
    agent_start_timeout_ms: int = option(
        "agentStartTimeout",
        at_least(DURATION, 1000),
        "60s",
        scope=EXECUTOR,
        group="Agent",
        doc="Longest time that an agent may take from its start until it answers.",
        trade_off="Longer tolerates slow disks and loaded machines; shorter reports a broken Python sooner.",
    )
    call_timeout_ms: int = option(
        "callTimeout",
        at_least(DURATION, 1000),
        "120s",
        group="Agent",
        doc="""Longest time that a task waits for a call to the agent (open, commit, restore) before it
        fails. The agent goes on. If it does not even answer a ping, it is replaced, and the call is made
        again. Merges and clean-ups have time-outs of their own.""",
        trade_off="Must be longer than a restore of the largest partition takes.",
    )
    log_level: str = option(
        "logLevel",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "INFO",
        scope=EXECUTOR,
        group="Agent",
        doc="Least level of the agent's log lines that reach the executor's log.",
        trade_off="DEBUG explains every decision of merging and retention, a few lines per batch and store.",
    )


OPTIONS: tuple[Option, ...] = tuple(attribute.metadata["option"] for attribute in fields(Options))
