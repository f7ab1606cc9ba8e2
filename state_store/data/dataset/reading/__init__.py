"""Versions for readers: a version is chosen, leased and restored, partition by partition."""
