"""The command `state-store`, which reads and mends the state of a query; a module for each command."""
