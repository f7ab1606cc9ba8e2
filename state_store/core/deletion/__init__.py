"""Who may delete what: leases, what a store's directory holds, the clean-up (proof: docs/deletion.md)."""
