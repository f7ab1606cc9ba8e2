"""New checkpoints: copied, imported, bootstrapped, or with another number of partitions.

`copying`, `importing`, `bootstrapping` (with Spark) and `repartition` write them; `replacing` encodes new
rows for a store, `derived_rows` makes Spark's rows that follow from them, `spark_files` copies Spark's own
files.
"""
