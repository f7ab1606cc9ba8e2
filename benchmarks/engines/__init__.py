"""The same keyed counter in Python on several engines: `python -m benchmarks.engines.side_by_side --help`."""
