"""Deletion without locks: leases, the contents of a store, the clean-up (proof: docs/deletion.md)."""
