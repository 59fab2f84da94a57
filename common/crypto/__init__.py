"""Encryption, signatures, randomness and hash trees."""
