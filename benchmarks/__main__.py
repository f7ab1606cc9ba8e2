"""Command line of the benchmark."""

from benchmarks.command import main

if __name__ == "__main__":
    main()
