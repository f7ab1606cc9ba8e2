"""Command line of the benchmark."""

from benchmarks.benchmark_command import main

if __name__ == "__main__":
    main()
