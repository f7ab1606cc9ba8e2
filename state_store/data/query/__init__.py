"""A query as Spark left it in its checkpoint directory: its operators, its stores, its batches."""

from state_store.data.query.logs import CommitTimes, SparkFileProblem
from state_store.data.query.operators import DEFAULT_NAME, Filter, Operator, StoreKey
from state_store.data.query.progress import Progress, ProgressOption, ProgressUpdate, reporting
from state_store.data.query.query import LISTED_AT_ONCE, Query

__all__ = [
    "DEFAULT_NAME",
    "LISTED_AT_ONCE",
    "CommitTimes",
    "Filter",
    "Operator",
    "Progress",
    "ProgressOption",
    "ProgressUpdate",
    "Query",
    "SparkFileProblem",
    "StoreKey",
    "reporting",
]
