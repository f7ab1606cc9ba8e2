"""The same stateful Python on several engines: `python -m benchmarks.engines.side_by_side --help`."""
