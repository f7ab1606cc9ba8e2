"""State as data: the stores of a query as Arrow tables, without Spark or a JVM.

`opening` finds a state, `state` reads it: by `views` and `columns`, from `partitions` whose versions are
leased (`pinned`). `sql` runs DuckDB over state; `rewriting` writes new checkpoints. The others answer
questions.
"""
