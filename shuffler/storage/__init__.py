"""Storage of submissions and batches until delivery."""
