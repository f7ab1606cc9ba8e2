"""What a checkpoint is: names, manifests, delta metadata, lineage, registry.
Values and functions; no I/O, no clock.
"""
