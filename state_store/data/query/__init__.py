"""A query as Spark left it in its checkpoint directory: its operators, its stores, its batches."""

from state_store.data.query.keys import DEFAULT_NAME, Filter, StoreKey
from state_store.data.query.operators import Operator
from state_store.data.query.query import LISTED_AT_ONCE, Progress, Query

__all__ = ["DEFAULT_NAME", "LISTED_AT_ONCE", "Filter", "Operator", "Progress", "Query", "StoreKey"]
