"""The page docs/benchmarks.md and its pictures, made from result files alone."""
