"""Merges of all stores of an executor.

`merge_queue` decides which comes next, `scheduler` when and in which thread, and keeps the events of merges
for the JVM; `merging` makes a merge.
"""
