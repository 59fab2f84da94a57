"""A third party's witness: cosigns the checkpoints of an analyzer's log."""
