"""New checkpoints: copied, imported, bootstrapped, or with another number of partitions.

`copying`, `importing` (and bootstrapping, with Spark) and `repartition` write them; `store_writer` writes
their stores, and `replacing` encodes new rows for a store.
"""
