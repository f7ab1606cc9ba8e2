"""State as data: the stores of a query as Arrow tables, without Spark or a JVM.

`layout` has views, schemas, columns and keys; `reading` chooses, leases and restores versions; `sql` runs
DuckDB over state; `rewriting` writes new checkpoints. The modules here answer questions about a state.
"""
