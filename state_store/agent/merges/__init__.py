"""Merges of all stores of an executor.

`merge_queue` decides which comes next, `scheduler` when and in which thread, and `merging` makes it.
"""
