"""The agent: a Python process beside each executor's JVM, which serves docs/protocol.md on a Unix socket."""
