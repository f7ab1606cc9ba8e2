"""What a store is going to take: the planning code driven through many batches, on sizes alone."""
