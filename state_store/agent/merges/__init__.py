"""Merges of all stores of an executor.

`scheduler` decides which merge comes next, when and in which thread; `merging` makes a merge, and keeps how
it ended for the JVM.
"""
