"""`applyInPandasWithState` for many groups in one call.

A function is marked with `vectorized` or `per_group` (or an ordinary one with `accelerate`) and passed to
Spark's own `applyInPandasWithState`. With the session extension the JVM sends whole batches of groups as
Arrow; without it the same function runs group by group on Spark's own operator, with equal results.

Importing this package imports neither pyarrow nor pandas nor pyspark: that happens where they are used.
"""

from state_store.functions.decorators import accelerate, per_group, vectorized
from state_store.functions.group_context import GROUP, BadResultError, Context, Result, VectorizationWarning

__all__ = [
    "GROUP",
    "BadResultError",
    "Context",
    "Result",
    "VectorizationWarning",
    "accelerate",
    "per_group",
    "vectorized",
]
