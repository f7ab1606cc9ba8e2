"""Programs (`python -m benchmarks.comparisons.NAME`), each of which compares one part with alternatives."""
