"""Values of a checkpoint: names, manifests, delta metadata, lineage, registry. No I/O, no clock."""
