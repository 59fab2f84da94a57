"""Clients of the three services, and a local cluster that runs them."""
