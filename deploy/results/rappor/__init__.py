"""Decoding RAPPOR results against a list of candidates."""
