"""The guarantee: what formula it follows from and whom it is against."""
