"""Programs of their own (`python -m benchmarks.comparisons.NAME`): one part beside what else could do it."""
