"""The words of the page of checkpoints: what each figure and column shows, and what operators are called.

The page has the first as hints over its headings, and the page of help that travels with it has all of them;
`make docs` writes both.
"""

from __future__ import annotations

from collections.abc import Sequence

WORDS: dict[str, dict[str, str]] = {
    "The figures at the top": {
        "Slowest restore": "How long the slowest store is expected to take if a task must restore it without "
        "local files, beside the query's `restoreObjective`.",
        "A checkpoint has": "Bytes of all files that the newest checkpoint needs, and the share of them that "
        "older versions wrote, so that they were not uploaded again.",
        "The last one wrote": "Bytes that the newest version wrote itself, in all stores.",
        "Longest chain": "Deltas that a restore reads after the snapshot, of the store with the most. Merges "
        "cut it.",
        "Full checkpoint": "When the newest full checkpoint was made that each store has; of the stores, the "
        "oldest. Older files are not needed for a restore of it. `never`: a store has none.",
        "In storage": "Bytes of all files in checkpoint storage, and how many versions can be restored.",
        "Merges failed": "Merges of this run that failed.",
        "Stores restored": "Restores of stores in this run: one a task without local files to go on with.",
        "Last batch took": "From the entry of the batch in Spark's offset log to that in the commit log.",
        "Last commit took": "The longest commit of a store in the newest batch: writing the delta, "
        "and storing it.",
        "Verified": "When `state-store verify` last read all files of the query. Listings show lost files, "
        "not changed bytes.",
    },
    "All queries": {
        "Query": "The name of the query, else its id or its directory. Choose one to see it.",
        "Verdict": "The worst severity of its findings: critical, warning or fine. The list asks again "
        "every few seconds.",
        "What it says": "The verdict in one sentence.",
        "Last checkpoint": "When Spark committed the newest batch.",
        "Stores": "How many stores it has: partitions of its stateful operators, each with the stores of "
        "its side or kind.",
    },
    "Latest": {
        "Latest failure": "The newest merge that failed, or the error that ended the query, in "
        "its own words.",
        "Latest restore": "The newest restore of a store: how long it took. Known to the Spark UI "
        "of the query.",
    },
    "Summary": {
        "Figure": "A figure over the stores, at the newest checkpoint, or over the checkpoints of the "
        "history.",
        "Median": "Half of the stores, or checkpoints, have at most this.",
        "95 %": "95 of 100 have at most this.",
        "Largest": "The largest value.",
        "All": "The sum, where a sum says something.",
    },
    "Stores": {
        "Store": "Number of the operator, number of the partition, name of the store; and what the "
        "operator does.",
        "Bytes, by age of the files": "The files that a restore of the store reads, by the number of "
        "versions since they were written. Old bytes are shared by many checkpoints.",
        "Bytes": "Bytes of the files that a restore needs.",
        "Keys": "Rows of the store, where they are known without reading it.",
        "Deltas": "Deltas that a restore reads after the snapshot.",
        "Files": "SST files that a restore needs.",
        "Restore": "How long a restore without local files is expected to take; red if longer than "
        "`restoreObjective`.",
        "Full checkpoint": "When the newest full checkpoint of the store was made.",
    },
    "Merges": {
        "State": "running, waiting or failed.",
        "Store": "Number of the operator, number of the partition, name of the store.",
        "Kind": "`ingest` frees memory, `incremental` rewrites young files, `full` rewrites all of them.",
        "Since": "Since when it runs or waits, or when it failed.",
        "Why, or what it waits for": "The option that caused it, or what it waits for, or why it failed.",
    },
    "Checkpoints": {
        "Version": "The state after batch version - 1. Open it to see its stores, its files and its reasons.",
        "Made": "When Spark committed it.",
        "Wrote": "Each store writes a delta. A merge or a full checkpoint was made of it later, with "
        "the reason.",
        "Batch": "How long the whole batch took, from Spark's offset log to its commit log.",
        "Commit": "The longest commit of a store: writing the delta, then storing it. A part of the batch.",
        "Merge": "The longest merge of it that was published. Merges run beside batches.",
        "Stores": "Stores that have it.",
        "Deltas": "Longest chain of deltas of a store.",
        "Files": "Files that it needs, in all stores.",
        "Bytes": "Bytes of these.",
        "New bytes": "Bytes that it wrote itself.",
        "Restore": "How long the slowest store is expected to take to restore it.",
    },
    "Configuration": {
        "Option": "Name of the option, below `spark.sql.streaming.stateStore.incremental.`.",
        "Value": "The value in force.",
        "Default": "The value if it is not set.",
        "Meaning": "What the option does.",
    },
}
"""Sentences on figures and columns, by the part of the page and its heading."""

OPERATOR_WORDS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation in session windows",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "join of two streams",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState in Python",
    "transformWithStateInPySparkExec": "transformWithState in Python",
    "globalLimit": "limit",
}
"""Words for what a stateful operator does, by Spark's name of it. The tab reads them from the jar."""

MAX_KEYS = 3
"""Columns that a title names; more of them are counted."""


def title_of(name: str, keys: Sequence[str]) -> str:
    """Return the name of an operator for people, such as "aggregation on user".

    Args:
        name: Spark's name of the operator.
        keys: the columns by which it groups its rows; empty: none, or they are not known.
    """
    words = OPERATOR_WORDS.get(name, name)
    more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    return f"{words} on {', '.join(keys[:MAX_KEYS])}{more}" if keys else words
