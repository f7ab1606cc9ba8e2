"""Benchmark of the state store against Spark's own: `python -m benchmarks --help`.

A scenario (`benchmarks.scenarios`) runs all providers side by side, checks the rows that they return and
leaves one JSON file of statistics. `benchmarks.page` makes the pages and their plots from these files alone.
"""
