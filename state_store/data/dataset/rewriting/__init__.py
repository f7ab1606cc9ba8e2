"""Checkpoints that are written anew: copied, imported, begun, with another number of partitions.

`copying`, `importing`, `bootstrapping` (with Spark) and `repartition` do it; `replacing` encodes rows in the
place of those of a store, `companions` makes Spark's rows that follow from them, `logs` brings Spark's own
files along.
"""
