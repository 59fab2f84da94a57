"""Faults that are planted into the running code, so that the audit shows that it sees them."""
