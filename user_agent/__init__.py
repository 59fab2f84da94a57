"""A user's device: the only party that sees a true value."""
