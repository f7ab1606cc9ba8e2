"""The data plane: Scala sources that run in the executors' JVM, and how they are built."""
