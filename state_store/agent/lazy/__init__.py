"""Lazy restores, whose files are fetched while they are read.

`hydration` fetches the files of one base, `hydrations` has those of a store, and `budget` bounds all of an
executor.
"""
