"""When to merge: the chain, what a restore costs, times of day, and the policy over them. No I/O."""
