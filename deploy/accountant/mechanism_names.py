"""Names of the mechanisms that the accountant answers queries about."""

from typing import Final

HASHED: Final = {"grr": False, "local-hashing": True}
"""Mechanisms with an alphabet, and whether they hash values."""
MECHANISMS: Final = (
    *HASHED,
    *("symmetric-unary", "optimized-unary", "duchi", "piecewise", "laplace"),
    "rappor",
)
