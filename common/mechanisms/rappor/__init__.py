"""RAPPOR: Bloom filters with permanent and instantaneous responses."""
