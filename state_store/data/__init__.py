"""State as data: read, queried, exported, estimated, rewritten and migrated, without a JVM."""
