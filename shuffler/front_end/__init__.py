"""Collect submissions in several processes, with keys from the coordinator."""
