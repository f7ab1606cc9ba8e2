"""Conformance kits, shipped so that others can test their own implementations."""
