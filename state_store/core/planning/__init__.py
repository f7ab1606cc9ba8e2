"""Decisions when to merge: the chain, the cost of a restore, times of day, and the policy. No I/O."""
