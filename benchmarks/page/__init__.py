"""The pages of the benchmarks and their pictures, made from result files alone."""
