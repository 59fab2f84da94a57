"""Clients of the three services, and a local cluster of them."""
