"""Queries on a real cluster whose processes are killed, stopped and resumed at random instants.

`python -m chaos --help`, with `tests` on the path, or `make chaos N=500`.
"""
